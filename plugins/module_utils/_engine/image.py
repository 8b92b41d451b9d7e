# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Container images of the engine: what an archive holds, what is in an image, and the image derived from it with Ray.

Standard library only. The controller reads archives with it, the host asks its Docker.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import re
import tarfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import cuda_kernels
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import (
    RAY_MINIMUM,
    EngineError,
    Pin,
    same_version,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.vllm_kernels import kernel_notes, kernel_problem
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import bounded_tar, foreign
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.versions import release
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.base import EngineOnHost
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.places import SERVICE

#: of images this collection made from others
LABEL_BASE = "sparkthor.base"
LABEL_LOCK = "sparkthor.lock"
LABEL_BUILD = "sparkthor.build"
DERIVED = "sparkthor/engine"
#: what an image's architecture is called by the kernel
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}

#: bytes of one description in an archive, at most, and of all that are read; members, of which an image has some 500
MOST, MOST_OF_ALL, MOST_MEMBERS = 1 << 20, 64 << 20, 10_000
_DIGEST = re.compile(r"\Asha256:[0-9a-f]{64}\Z")
_REFERENCE = re.compile(
    r"\A(?P<name>[a-z0-9][a-zA-Z0-9._:/-]*?)(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>\S+))?\Z"
)

#: bytes of what the probe says of an image
_SAID_LIMIT = 8 << 20
#: runs inside the image, once for each image, behind the source of _cuda_kernels
PROBE = r"""
import importlib.metadata, importlib.util, json, os, platform, shutil, sys
names = {}
for found in importlib.metadata.distributions():
    name = found.metadata["Name"]
    if name:
        names.setdefault(name.lower().replace("_", "-").replace(".", "-"), found.version)
def read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
problem = ""
if "ray" in names:
    try:
        import ray, ray.scripts.scripts
    except BaseException as error:
        problem = "%s: %s" % (type(error).__name__, error)
package = importlib.util.find_spec("vllm")
libraries = of_package(package.submodule_search_locations[0]) if package else {}
print("\n" + json.dumps({
    "libraries": libraries,
    "version": platform.python_version(), "machine": platform.machine(), "glibc": platform.libc_ver()[1],
    "executable": sys.executable, **{name: shutil.which(name) or "" for name in PROGRAMS},
    "packages": names, "ray_problem": problem,
    "nccl_files": {path: read(path) for path in ("/etc/nccl.conf", "/root/.nccl.conf") if read(path)},
    "nccl_environment": {key: value for key, value in os.environ.items() if key.startswith("NCCL_")},
}))
"""


def is_digest(text: str) -> bool:
    return _DIGEST.match(text) is not None


class Reference(NamedTuple):
    """Where an image comes from: ``name:tag``, and its digest if that is known."""

    name: str
    tag: str
    digest: str

    @property
    def tagged(self) -> str:
        return f"{self.name}:{self.tag}"

    @property
    def pull(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else self.tagged


def parse_reference(image: str, digest: str = "") -> Reference:
    """``engine_image`` and ``engine_image_digest``; a tag is wanted, and one that moves is refused without a digest."""
    match = _REFERENCE.match(image)
    if match is None or match["name"].endswith(("/", ":")) or {"", ".", ".."} & set(match["name"].split("/")):
        raise EngineError(
            f"engine_image: {image!r} is not the name of an image, such as registry.example.com/engine:26.10"
        )
    inside = match["digest"] or ""
    for variable, value in (("engine_image", inside), ("engine_image_digest", digest)):
        if value and not _DIGEST.match(value):
            raise EngineError(f"{variable}: {value!r} is not a digest: sha256: and 64 hexadecimal digits")
    if inside and digest and inside != digest:
        raise EngineError(f"engine_image names the digest {inside}, engine_image_digest {digest}: keep one")
    known = inside or digest
    tag = match["tag"] or ""
    if not known and tag in ("", "latest", "nightly"):
        raise EngineError(
            f"engine_image: {image!r} names {'no tag' if not tag else 'a tag that moves'}: every host could get "
            "another engine. Name a version's tag, or set engine_image_digest."
        )
    return Reference(match["name"], tag or "pinned", known)


class Archive(NamedTuple):
    """What ``docker save`` wrote, without having read its layers."""

    image: str  # the image's digest: of its configuration
    tags: list[str]
    architecture: str
    # what a Docker that keeps images in containerd's store calls it: digests of manifests, from Docker 25's archives on
    others: list[str]


def read_archive(path: str) -> Archive:
    try:
        manifest, configs = _documents(path)
    except FileNotFoundError:
        raise EngineError(f"engine_image_archive: {path} is not on the controller") from None
    except (OSError, tarfile.TarError, ValueError) as error:
        raise EngineError(f"engine_image_archive: {path} cannot be read as an archive: {error}") from error
    try:
        if len(manifest or []) != 1:
            raise EngineError(
                f"engine_image_archive: {path} must hold one image as written by docker save, and holds "
                f"{len(manifest or [])}"
            )
        text = configs[manifest[0]["Config"]]
        config = foreign.parse_object(text, MOST)
        tags = [str(tag) for tag in manifest[0].get("RepoTags") or []]
        rows = foreign.parse_object(configs.get("index.json", b"{}"), MOST).get("manifests") or []
        # a row for each tag
        others = list(dict.fromkeys(str(row["digest"]) for row in rows))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise EngineError(f"engine_image_archive: {path} is not what docker save writes: {error!r}") from error
    image = f"sha256:{hashlib.sha256(text).hexdigest()}"
    return Archive(image, tags, str(config.get("architecture") or ""), others)


def _documents(path: str) -> tuple[Any, dict[str, bytes]]:
    """``manifest.json``, and the small files before it and those that it needs, of an archive that anybody wrote.

    Plain files alone: a link may lead anywhere, also to itself. Raises OSError, TarError or ValueError.
    """
    manifest: Any = None
    configs: dict[str, bytes] = {}
    with contextlib.closing(bounded_tar.members(path, MOST_OF_ALL, MOST_MEMBERS)) as found:
        for archive, member in found:
            if not member.isfile() or member.size > MOST:
                continue
            data = configs[member.name] = _read(archive, member)
            if member.name == "manifest.json":
                manifest = foreign.parse(data, MOST)
                if not (isinstance(manifest, list) and all(isinstance(row, dict) for row in manifest)):
                    raise ValueError("manifest.json is no list of images")
            name = str(manifest[0].get("Config")) if manifest else ""
            # only the layout with blobs has the index, before or behind the rest
            if name in configs and ("index.json" in configs or not name.startswith("blobs/")):
                break
    return manifest, configs


def archive_documents(path: str) -> list[bytes]:
    """The manifests in an archive that was read before: of Docker 25 and later they are in it."""
    documents: list[bytes] = []
    try:
        for archive, member in bounded_tar.members(path, MOST_OF_ALL, MOST_MEMBERS):
            if member.isfile() and member.size <= MOST and (data := _read(archive, member))[:1] == b"{":
                documents.append(data)
    except (tarfile.TarError, ValueError) as error:
        raise EngineError(f"{path} cannot be read as an archive: {error}") from error
    return documents


def _read(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """What is JSON by its first letter; a small layer is not read."""
    stream = archive.extractfile(member)
    begin = stream.read(1) if stream else b""
    return begin + stream.read(MOST) if stream and begin in (b"{", b"[") else b""


def check_architecture(architecture: str, machine: str, what: str) -> None:
    found = MACHINES.get(architecture, architecture)
    if found and machine and found != machine:
        raise EngineError(f"{what} is for {found}, this host is {machine}: choose an image for it")


class Image(NamedTuple):
    """An image on a host, as ``docker image inspect`` shows it."""

    image: str
    digests: list[str]  # name@sha256:…
    architecture: str
    labels: dict[str, str]
    config: dict[str, Any]


def read_inspect(text: str) -> Image:
    data = json.loads(text)
    data = data[0] if isinstance(data, list) else data
    config = data.get("Config") or {}
    return Image(
        str(data["Id"]),
        [str(item) for item in data.get("RepoDigests") or []],
        str(data.get("Architecture") or ""),
        {str(key): str(value) for key, value in (config.get("Labels") or {}).items()},
        config,
    )


def registry_digests(image: Image | None, name: str) -> list[str]:
    """The digests under which the registry of ``name`` has this image; none for one that came from no registry."""
    found = (item.rpartition("@") for item in (image.digests if image else ()))
    return sorted(digest for known, _at, digest in found if _familiar(known) == _familiar(name))


def _familiar(name: str) -> str:
    """A name as Docker shows it, which leaves out its own registry."""
    return name.removeprefix("docker.io/").removeprefix("library/")


def has_digest(image: Image, *digests: str) -> bool:
    """Registries know an image by the digest of its manifest, archives by that of its configuration as well."""
    known = {image.image, *(item.rpartition("@")[2] for item in image.digests)}
    return not known.isdisjoint(digests)


def program_of(engine: EngineOnHost) -> str:
    """The engine's program by its name on the path."""
    return engine.program.partition(" ")[0]


def probe_program() -> str:
    programs = ("ray", *(program_of(engine) for engine in registry.ENGINES.values()))
    return f"{inspect.getsource(cuda_kernels)}\nPROGRAMS = {programs!r}\n{PROBE}"


def read_probe(output: str) -> dict[str, Any]:
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            return foreign.parse_object(line, _SAID_LIMIT)
    raise ValueError("no answer in the output")


def lock_digest(pins: Iterable[Pin]) -> str:
    return hashlib.sha256("\n".join(sorted(str(pin) for pin in pins)).encode()).hexdigest()


def check_ray_lock(pins: Sequence[Pin], source: str, ray_version: str = "") -> str:
    """The version of Ray that an image without one gets."""
    versions = {pin.name: pin.version for pin in pins}
    for name in ("ray", "uv"):
        if name not in versions:
            raise EngineError(f"{source}: {name} is not pinned in it (uv installs Ray into the image)")
    check_ray(versions["ray"], source, ray_version)
    return versions["ray"]


def check_ray(version: str, where: str, wanted: str = "") -> None:
    if release(version) < release(RAY_MINIMUM):
        raise EngineError(
            f"{where}: ray {version} is too old. Ray before {RAY_MINIMUM} has no token authentication (CVE-2023-48022, "
            "CVE-2025-62593, CVE-2026-27482): choose an image with a newer one, or with none, which gets it pinned."
        )
    if wanted and not same_version(wanted, version):
        raise EngineError(f"engine_ray_version is {wanted!r}, but {where} has ray {version}: change one of the two.")


def check_probe(
    probe: Mapping[str, Any],
    where: str,
    engine_version: str = "",
    kind: str = "",
    calls: Collection[str] = (),
    engine: EngineOnHost = registry.DEFAULT,
) -> list[str]:
    """What is to be said of the image's kernels.  Raises EngineError for an image that cannot serve the model here.

    ``calls`` says which libraries the model calls (cuda_kernels).
    """
    name, program = next(iter(engine.packages), ""), program_of(engine)
    version = (probe.get("packages") or {}).get(name, "")
    if not version or not probe.get(program):
        raise EngineError(
            f"{where}: there is no {engine.title} in this image (no package named {name} with a program {program})"
        )
    if engine is not registry.DEFAULT:
        return []
    if engine_version and not same_version(engine_version, version):
        raise EngineError(
            f"engine_vllm_version is {engine_version!r}, but {where} has {name} {version}: change one of the two."
        )
    found = {name: cuda_kernels.Kernels(*map(tuple, each)) for name, each in (probe.get("libraries") or {}).items()}
    if problem := kernel_problem(kind, version, found, calls):
        raise EngineError(f"{where}: its {problem}: choose an image that has them.")
    return [f"{where}: {remark}" for remark in kernel_notes(kind, version, found, calls)]


def lacking(pins: Iterable[Pin], packages: Mapping[str, str]) -> list[Pin]:
    """What has to be added: pins of distributions the image has not. What it has in another version stays as it is."""
    return [pin for pin in pins if pin.name != "uv" and pin.name not in packages]


def derived_tag(image: str, lock: str) -> str:
    return f"{DERIVED}:{image.removeprefix('sha256:')[:12]}-{lock[:12]}"


def is_derived(image: Image | None, base: str, lock: str) -> bool:
    return image is not None and (image.labels.get(LABEL_BASE), image.labels.get(LABEL_LOCK)) == (base, lock)


def built_tag(inputs: str) -> str:
    """The name of an image that was built from declared steps, by the SHA-256 of all that went into it."""
    return f"{DERIVED}:built-{inputs[:24]}"


def is_built(image: Image | None, inputs: str) -> bool:
    return image is not None and image.labels.get(LABEL_BUILD) == inputs


def commit_changes(config: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    """What ``docker commit`` is told, so that the new image differs from the old in its files and labels alone."""
    return [
        "LABEL " + " ".join(f"{name}={value}" for name, value in labels.items()),
        f"ENTRYPOINT {json.dumps(config.get('Entrypoint') or [])}",
        f"CMD {json.dumps(config.get('Cmd') or [])}",
        f"USER {config.get('User') or '0'}",
    ]


def commands(probe: Mapping[str, Any], engine: EngineOnHost = registry.DEFAULT) -> dict[str, list[str]]:
    """How the engine's programs are called inside, by the service that runs them."""
    python = str(probe["executable"])
    ray = [str(probe["ray"])] if probe.get("ray") else [python, "-m", "ray.scripts.scripts"]
    return {"python": [python], "ray": ray, SERVICE: [str(probe[program_of(engine)])]}


def nccl_findings(probe: Mapping[str, Any]) -> list[str]:
    """NCCL settings an image brings along that could turn RDMA off unseen."""
    findings = []
    for path, text in sorted((probe.get("nccl_files") or {}).items()):
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        if lines:
            findings.append(f"{path}: {', '.join(lines)}")
    settings = {
        key: value for key, value in (probe.get("nccl_environment") or {}).items() if not key.endswith("VERSION")
    }
    if settings:
        findings.append("environment: " + ", ".join(f"{key}={value}" for key, value in sorted(settings.items())))
    return findings


def launch_file(config: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """What the units' containers are run from: with the ``settings`` that the role gives them, and as a file."""
    whole = {**config, **settings}
    return whole, json.dumps(whole, indent=2, sort_keys=True) + "\n"


def settings_digest(config: Mapping[str, Any]) -> str:
    """The identity of what runs: image and everything its containers are given."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]
