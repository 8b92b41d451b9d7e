# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image on a host: found, loaded, pulled or derived by Docker, and the file by which its containers are run."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image as _image
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import registry, trial
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import (
    EngineError,
    Pin,
    extract_uv,
    uv_install_argv,
    uv_wheel,
    wheel_lines,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.venv import interesting
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_json, write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import container, location
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry as engines
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import parse_manifest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Store, private_store

#: where an image's archive and wheels wait, unless the module is told another folder
WORK_DIR = "/opt/sparkthor"
RECORD = "engine-images.json"
BUILDER = "sparkthor-engine-build"
#: the folder of the store in which an image's archive waits to be loaded
ARCHIVE = "archive"


class DockerHost:
    """Docker and the module's own files on this host."""

    def __init__(self, work_dir: str, timeout: float) -> None:
        self.work_dir = work_dir
        self.timeout = timeout

    def docker(self, *words: str, seconds: float = 60, stdin: str | None = None) -> str:
        status, out, err = run_limited(["docker", *words], seconds, stdin)
        if status != 0:
            reason = (err.strip() or out.strip() or f"exit status {status}")[-600:]
            raise EngineError(f"docker {' '.join(words[:2])}: {reason}")
        return out

    def answers(self) -> bool:
        """Whether Docker runs; in check mode the role has not started it where it does not."""
        return run_limited(["docker", "version", "--format", "{{.Server.Version}}"], 30)[0] == 0

    def containerd_store(self) -> bool:
        """Whether images lie in containerd's store, which knows them by their manifests alone."""
        return "io.containerd.snapshotter" in str(container.docker_info().get("DriverStatus") or "")

    def image(self, *names: str) -> _image.Image | None:
        """The image that has one of these names; one that another host pulled has its registry's names too."""
        records = self.records()
        known = [image for image, row in records.items() if not set(names).isdisjoint(row.get("digests") or ())]
        found = next((found for name in [*names, *known] if (found := self._inspect(name)) is not None), None)
        if found is None:
            return None
        noted = (records.get(found.image) or {}).get("digests") or []
        return found._replace(digests=list(dict.fromkeys([*found.digests, *noted])))

    def note(self, image: str, **known: Any) -> None:
        """Keep what Docker itself does not know of an image: whether we brought it, and its registry's ``digests``."""
        records = self.records()
        self._keep_records({**records, image: {**(records.get(image) or {}), **known}})

    def size(self, image: str) -> int:
        return int(self.docker("image", "inspect", "--format", "{{.Size}}", image))

    def _inspect(self, name: str) -> _image.Image | None:
        status, out, err = run_limited(["docker", "image", "inspect", name], 30)
        if status == 0:
            return _image.read_inspect(out)
        if "no such image" in err.lower():
            return None
        if status == 127:
            raise EngineError(
                "engine_runtime: container needs Docker, and there is none on this host. Install it (docker.io or "
                "docker-ce, 25 or newer for CDI), or set engine_runtime: venv."
            )
        raise EngineError(f"docker image inspect: {err.strip()[-600:]}")

    def store(self) -> Store:
        return private_store(os.path.join(self.work_dir, "images"))

    def records(self) -> dict[str, Any]:
        return read_json(self._record_path())

    def _record_path(self) -> str:
        return os.path.join(self.work_dir, RECORD)

    def probe(self, image: str, brought: bool = False) -> dict[str, Any]:
        """Ask an image once; a digest never means another content. Only one that was brought here is ever removed."""
        records = self.records()
        if "libraries" in (records.get(image) or ()):
            return dict(records[image])
        options = ["--rm", "--interactive", "--network", "none", "--cap-drop", "ALL", "--log-driver", "none"]
        try:
            out = self.docker(
                "run", *options, "--pull", "never", "--entrypoint", "python3", image, "-", seconds=300,
                stdin=_image.probe_program(),
            )  # fmt: skip
            found = _image.read_probe(out)
        except (EngineError, ValueError) as error:
            raise EngineError(f"{image}: its Python cannot be run: {error}") from error
        # only what is asked for again
        known = {key: value for key, value in records.items() if self.image(key) is not None}
        known[image] = {**(records.get(image) or {}), **found, **({"brought": True} if brought else {})}
        self._keep_records(known)
        return dict(found)

    def _keep_records(self, records: Mapping[str, Any]) -> None:
        os.makedirs(self.work_dir, exist_ok=True)
        write_atomic(self._record_path(), json.dumps(records), mode=0o644)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """One at a time; the kernel lets go of the lock when its holder dies."""
        os.makedirs(self.work_dir, exist_ok=True)
        with open(os.path.join(self.work_dir, ".images.lock"), "w", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def load(self, path: str, names: Sequence[str]) -> None:
        self.docker("load", "--quiet", "--input", path, seconds=self.timeout)
        if self.image(*names) is None:
            raise EngineError(f"engine_image_archive: after it was loaded there is no image {names[0]}: it is damaged")

    def derive(
        self, base: _image.Image, probe: dict[str, Any], lock: str, folder: str, wheels: Mapping[str, str]
    ) -> str:
        """Add wheels to an image in a container without network, and keep the result under a name of its own."""
        tag = _image.derived_tag(base.image, lock)
        place = tempfile.mkdtemp(prefix="build-", dir=os.path.dirname(folder))
        try:
            uv = uv_wheel(wheels)
            extract_uv(os.path.join(folder, uv), wheels[uv], place)
            wanted = {name: sha256 for name, sha256 in wheels.items() if name != uv}
            write_atomic(os.path.join(place, "requirements.txt"), wheel_lines("/mnt", wanted))
            for name in wanted:
                os.link(os.path.join(folder, name), os.path.join(place, name))
            labels = {_image.LABEL_BASE: base.image, _image.LABEL_LOCK: lock}
            argv = uv_install_argv("uv", str(probe["executable"]), "--break-system-packages", "--no-cache")[1:]
            words = ["/mnt/uv", *argv, "--requirement=/mnt/requirements.txt"]
            return self.changed(base, tag, labels, place, words)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def changed(self, base: _image.Image, tag: str, labels: Mapping[str, str], place: str, words: Sequence[str]) -> str:
        """The ID of the image that a command makes of another one, with the folder ``place`` at /mnt.

        The image's own files decide what runs there: as root of the container, with none of root's powers and without
        a network. Nothing is left of one that fails. Raises EngineError with the last of what it said.
        """
        run_limited(["docker", "rm", "--force", "--volumes", BUILDER], 60)
        try:
            self.docker(
                *("create", "--name", BUILDER, "--network", "none", "--user", "0:0", "--pull", "never"),
                *("--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--oom-score-adj", "1000"),
                *("--tmpfs", "/tmp:exec", "--env", "HOME=/tmp"),
                *("--env", "UV_NO_CONFIG=1", "--env", "UV_PYTHON_DOWNLOADS=never"),
                *("--mount", f"type=bind,source={place},target=/mnt,readonly"),
                *("--entrypoint", words[0], base.image, *words[1:]),
            )
            self.docker("start", "--attach", BUILDER, seconds=self.timeout)
            # the environment of the build is not the image's
            changes = [*_image.commit_changes(base.config, labels), "ENV HOME=/root"]
            options = [word for change in changes for word in ("--change", change)]
            return self.docker("commit", *options, BUILDER, tag, seconds=self.timeout).strip()
        finally:
            run_limited(["docker", "rm", "--force", "--volumes", BUILDER], 60)

    def prune(self, needed: set[str], keep: int) -> None:
        """Images that were made here or brought here, but those needed and the newest ``keep`` of the others.

        One in use stays: Docker refuses to remove it, as it does the base of an image that stays.
        """
        out = run_limited(["docker", "images", "--quiet", "--no-trunc", "--filter", f"label={_image.LABEL_BASE}"], 30)
        records = self.records()
        ours = {*out[1].split(), *(image for image, found in records.items() if found.get("brought"))} - needed
        bases: set[str] = set()
        for image in needed:
            while (image := self._base(image)) and image not in bases:
                bases.add(image)
        # in the order in which they were asked, the newest first; one that was never asked is the oldest
        order = [image for image in reversed(list(records)) if image in ours]
        order += sorted(ours - set(order))
        for image in [image for image in order if image not in bases][keep:]:
            run_limited(["docker", "rmi", image], 60)

    def _base(self, image: str) -> str:
        """What an image was made from here, empty of one that was not."""
        found = self._inspect(image) if image else None
        return found.labels.get(_image.LABEL_BASE, "") if found else ""


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def _check_archive_names(host: DockerHost, names: Sequence[str]) -> None:
    """An archive without an index names its image by its configuration alone, unknown to containerd's store."""
    if not names[1:] and host.containerd_store():
        raise EngineError(
            "engine_image_archive: it has no index.json, and this host's Docker keeps images in containerd's "
            "store, where the image in it could not be found again. Write it with docker save of Docker 25 or "
            'newer, take the image from a registry, or set {"features": {"containerd-snapshotter": false}} in '
            "/etc/docker/daemon.json."
        )


def _reference(params: Mapping[str, Any]) -> _image.Reference:
    target = params["target"]
    archive = target.get("archive") or {}
    return _image.parse_reference(
        target["image"], params["digest"] or ("" if archive.get("shared") else archive.get("image", ""))
    )


def _load(host: DockerHost, archive: Mapping[str, Any], names: Sequence[str], check: bool) -> dict[str, Any]:
    """Load an archive that lies in the store, or say what of it has to be sent."""
    manifest, store = parse_manifest([archive["entry"]]), host.store()
    plan = store.plan(ARCHIVE, manifest)
    if plan.need:
        store.check_space(plan.bytes_needed, "the image's archive")
    if check:
        return {}
    if plan.need:
        return {"need": plan.need, "what": "archive"}
    with host.alone():
        store.commit(ARCHIVE, manifest, store.plan(ARCHIVE, manifest).wrong)
        host.load(os.path.join(store.folder(ARCHIVE), manifest[0].path), names)
        store.remove(ARCHIVE)
    return {}


def bring(
    host: DockerHost, params: Mapping[str, Any], check: bool, actions: list[str]
) -> tuple[_image.Image | None, dict[str, Any]]:
    """The base image: there, loaded, pulled; or what has to be sent for it. None in check mode if it is lacking."""
    target = params["target"]
    archive = target.get("archive") or {}
    reference = _reference(params)
    # given by itself, inside the image's name, or by the archive
    digest = reference.digest
    if archive.get("shared") and not archive["others"] and host.containerd_store():
        # this host could not name what the other one wrote
        archive = {}
    # whoever pulled an image for all knows it by its registry's name
    names = [reference.pull] if not archive or archive.get("shared") else []
    names += [archive["image"], *archive.get("others", [])] if archive else []
    if check and not host.answers():
        actions.append(f"have {reference.tagged}, once Docker runs")
        return None, {}
    image = host.image(*names)
    if image is None and archive:
        _check_archive_names(host, names)
        actions.append(f"load {reference.tagged} from {params['archive'] or 'the host that pulled it'}")
        request = _load(host, archive, names, check)
        if check or request:
            return None, request
        image = host.image(*names)
    elif image is None:
        if not params["pull"]:
            raise EngineError(
                f"engine_image: {target['image']} is not on this host, and engine_image_pull is off: load it there, "
                "or give engine_image_archive"
            )
        actions.append(f"pull {reference.pull}")
        if check:
            return None, {}
        if target.get("wait"):
            # one host pulls it for all
            return None, {"lacks": reference.pull}
        host.docker("pull", "--quiet", reference.pull, seconds=params["timeout"])
        image = host.image(*names)
    elif target.get("tidy") and os.path.isdir(host.store().folder(ARCHIVE)):
        # every host has what was written for the others
        host.store().remove(ARCHIVE)
    if image is None:
        raise EngineError(f"engine_image: {names[0]} is not there after it was fetched")
    if archive.get("shared") and digest and not check:
        loaded = any(action.startswith("load ") for action in actions)
        image = _proved(host, image, reference, archive.get("documents") or [], loaded)
    if digest and not _image.has_digest(image, *(names if archive else []), digest):
        raise EngineError(
            f"{digest} is wanted (engine_image_digest, or in engine_image), but {names[0]} on this host is "
            f"{image.image} ({', '.join(image.digests) or 'no digest of a registry'})"
        )
    tagged = host.image(reference.tagged)
    if tagged is None or tagged.image != image.image:
        actions.append(f"name it {reference.tagged}")
        if not check:
            host.docker("tag", image.image, reference.tagged)
    return image, {}


def _proved(
    host: DockerHost, found: _image.Image, reference: _image.Reference, documents: Sequence[str], loaded: bool
) -> _image.Image:
    """The image that another host gave, once this one has seen that it is that of the wanted digest.

    An archive may carry names, so of one that was ``loaded`` they say nothing.
    """
    if not loaded and _image.has_digest(found, reference.digest):
        return found
    if not registry.proves(found.image, reference.digest, [text.encode() for text in documents]):
        try:
            # of layers that are here Docker fetches none
            host.docker("pull", "--quiet", reference.pull, seconds=host.timeout)
        except EngineError as error:
            if loaded:
                run_limited(["docker", "rmi", "--force", found.image], 60)
            raise EngineError(
                f"engine_image: what another host wrote down as {reference.pull} is {found.image} here, nothing that "
                f"came with it shows that this is the same, and its registry cannot be asked from here ({error}): let "
                "this host reach the registry, or give engine_image_archive. The image was not used."
            ) from error
        return host.image(reference.pull) or found
    # so that later runs know it, which ask for what the registry calls it
    host.note(found.image, digests=sorted({*found.digests, reference.pull}))
    return host.image(found.image) or found


def pulled(params: Mapping[str, Any]) -> list[str]:
    """The registry's digests of the image that this host has under the wanted tag; none where it has none."""
    host = DockerHost(params["work_dir"], params["timeout"])
    reference = _image.parse_reference(params["image"], params["digest"])
    return _image.registry_digests(host.image(reference.tagged), reference.name) if host.answers() else []


def with_steps(
    host: DockerHost, target: Mapping[str, Any], check: bool, base: _image.Image, actions: list[str]
) -> tuple[_image.Image | None, dict[str, Any]]:
    """The image to run: the base, or that which was built of it from the recipe's steps; or what is lacking for it.

    None where check mode finds that it has to be built or brought.
    """
    inputs = target.get("inputs") or ""
    if not inputs:
        return base, {}
    tag, archive = _image.built_tag(inputs), target.get("built") or {}
    image = host.image(tag)
    if _image.is_built(image, inputs):
        if archive and target["built_everywhere"] and os.path.isdir(host.store().folder(ARCHIVE)):
            host.store().remove(ARCHIVE)
        return image, {}
    if archive:
        actions.append(f"load {tag} from the host that built it")
        request = _load(host, archive, [tag], check)
        if check or request:
            return None, request
        image = host.image(tag)
        if image is None or not _image.is_built(image, inputs):
            raise EngineError(f"{tag}: what another host wrote down under this name was not built from these steps")
        return image, {}
    actions.append(f"build {tag}")
    # one host builds it for all
    return None, {} if check else {"unbuilt": base.image}


def with_ray(
    host: DockerHost,
    params: Mapping[str, Any],
    check: bool,
    base: _image.Image,
    probe: dict[str, Any],
    actions: list[str],
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The image to run, with its probe: the base if it has Ray or needs none, else the derived one; or what is needed
    to build it."""
    target = params["target"]
    packages = probe["packages"]
    if not params["ray"]:
        return base.image, probe, {}
    if "ray" in packages:
        _image.check_ray(packages["ray"], target["image"], params["ray_version"] or "")
        return base.image, probe, {}
    lock = target["lock"]
    image = host.image(_image.derived_tag(base.image, lock))
    if not _image.is_derived(image, base.image, lock):
        pins = [Pin(name, version) for name, version in target["pins"]]
        missing = _image.lacking(pins, packages)
        actions.append(f"add ray {dict(target['pins'])['ray']} and {len(missing) - 1} packages it needs")
        if check:
            predicted = {**packages, **{pin.name: pin.version for pin in missing}}
            return "", {**probe, "packages": predicted}, {}
        if not target.get("wheels"):
            wanted = [[pin.name, pin.version] for pin in [*missing, *(pin for pin in pins if pin.name == "uv")]]
            return "", probe, {"wanted": wanted, "probe": {key: probe[key] for key in ("version", "machine", "glibc")}}
        manifest = parse_manifest(target["wheels"])
        store = host.store()
        plan = store.plan("wheels", manifest)
        if plan.need:
            store.check_space(plan.bytes_needed, "Ray's wheels")
            return "", probe, {"need": plan.need, "what": "wheels"}
        with host.alone():
            store.commit("wheels", manifest, store.plan("wheels", manifest).wrong)
            wheels = {entry.path: entry.sha256 for entry in manifest}
            made = host.derive(base, probe, lock, store.folder("wheels"), wheels)
            store.remove("wheels")
        image = host.image(made)
    if image is None:
        raise EngineError(f"{target['image']}: Docker did not keep the image that Ray was added to")
    inside = host.probe(image.image)
    if inside["packages"].get("ray") != dict(target["pins"])["ray"] or inside["ray_problem"]:
        raise EngineError(
            f"{target['image']}: Ray was added to it, but does not run there: {inside['ray_problem'] or 'not found'}"
        )
    return image.image, inside, {}


def _diff(path: str, before: str, text: str, actions: list[str]) -> dict[str, str]:
    after = text + "".join(f"# {action}\n" for action in actions if not action.startswith("write "))
    return {"before_header": path, "after_header": path, "before": before, "after": after}


def _name_for_all(params: Mapping[str, Any], base: _image.Image | None) -> str:
    """By which hosts are compared, whatever each host's Docker calls the image: its archive's or registry's name."""
    archive = params["target"].get("archive") or {}
    if params["target"].get("inputs"):
        # of the base as well
        return f"sha256:{params['target']['inputs']}"
    if archive and not archive.get("shared"):
        return str(archive["image"])
    registry = _image.registry_digests(base, _reference(params).name)
    return registry[0] if registry else base.image if base else ""


def _python_of(config: Mapping[str, Any], gpus: Sequence[str]) -> list[str]:
    """Python of an image in a container of its own, which needs no other to run."""
    command = container.ask_arguments(config, [], {}, running=False)
    # the first that the kernel ends when memory runs out, as without a container
    return [*command[:2], "--name", trial.CONTAINER, "--oom-score-adj", "1000", *gpus, *command[2:]]


def _to_run(
    host: DockerHost, params: Mapping[str, Any], check: bool, base: _image.Image | None, actions: list[str]
) -> tuple[str, dict[str, Any], list[str], dict[str, Any]]:
    """The image that units run, its probe, what is to be said of it, and what is lacking for it.

    In check mode there may be no such image, and of one that was never asked no probe.
    """
    target, engine = params["target"], engines.engine_of({"engine": params["engine"]})
    if base is None:
        return "", {}, [], {}
    _image.check_architecture(base.architecture, platform.machine(), f"engine_image: {target['image']}")
    if check and base.image not in host.records():
        return "", {}, [], {}
    probe = host.probe(base.image, any(action.startswith(("load ", "pull ")) for action in actions))
    where, kind = target["image"], str(target.get("kind") or "")
    remarks = _image.check_probe(probe, where, params["engine_version"] or "", kind, params["calls"], engine)
    chosen, request = with_steps(host, target, check, base, actions)
    if request or chosen is None:
        return "", probe, remarks, request
    if chosen is not base:
        probe = host.probe(chosen.image, brought=True)
    used, probe, request = with_ray(host, params, check, chosen, probe, actions)
    return used, probe, remarks, request


def apply(params: Mapping[str, Any], check: bool) -> dict[str, Any]:
    target, engine = params["target"], engines.engine_of({"engine": params["engine"]})
    host = DockerHost(params["work_dir"], params["timeout"])
    actions: list[str] = []
    before, staged = read(params["config_path"]), not params["activate"]
    base, request = bring(host, params, check, actions)
    if request:
        return {"changed": True, **request}
    used, probe, remarks, request = _to_run(host, params, check, base, actions)
    if request:
        return {"changed": True, **request}
    gpus: list[str] = []
    if not check or host.answers():
        gpus = container.host_gpu_arguments(params["gpu"], container.docker_info())
    packages = probe.get("packages") or {}
    commands = _image.commands(probe, engine) if used else {}
    # the versions are for programs that must not wait for Docker
    known = {"image": used, "gpu": params["gpu"], "commands": commands, "versions": interesting(packages)}
    config, text = _image.launch_file(known, params["settings"])
    if text != before and not staged:
        actions.append(f"write {params['config_path']}")
        if not check:
            write_atomic(params["config_path"], text, mode=0o644)
    if actions and not check:
        host.store().clean_incoming()
        former = json.loads(before)["image"] if before.startswith("{") else ""
        host.prune({used, former, *params["needed"]}, params["keep"])
    return {
        "changed": bool(actions),
        "actions": actions,
        "digests": sorted({item.partition("@")[2] for item in base.digests} | {base.image}) if base else [],
        "pulled": _image.registry_digests(base, _reference(params).name),
        "nccl": _image.nccl_findings(probe),
        "warnings": remarks,
        "diff": _diff(params["config_path"], before, before if staged else text, actions),
        **({"command": _python_of(config, gpus)} if used else {}),
        "ansible_facts": {
            "sparkthor_engine": {
                "runtime": "container",
                "path": "",
                "image": target["image"],
                "image_id": _name_for_all(params, base),
                "digest": _image.settings_digest(config),
                "command": location.command("container", "python"),
                "python": ".".join(str(probe.get("version", "")).split(".")[:2]),
                "machine": str(probe.get("machine") or platform.machine()),
                "versions": interesting(packages),
            }
        },
    }
