# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The image's module on a host whose Docker is a stand-in that keeps images in memory."""

from __future__ import annotations

import hashlib
import json
import platform
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image as _image
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image_host, registry
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import container
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept
from ansible_collections.sparkthor.cluster.plugins.modules import engine_image, store_receive

BASE = "sha256:" + "a" * 64
DERIVED = "sha256:" + "d" * 64
#: what the registry has: the base's manifest, and an index that names it
MANIFEST = json.dumps({"schemaVersion": 2, "config": {"digest": BASE}, "layers": [{"digest": "sha256:" + "7" * 64}]})
INDEX = json.dumps({"manifests": [{"digest": registry.digest_of(MANIFEST.encode()), "platform": {}}]})
PULLED = registry.digest_of(INDEX.encode())
PINS = [["click", "8.5.1"], ["ray", "2.60.0"], ["uv", "0.13.8"]]
LOCK = "f" * 64
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


class Docker:
    """What the module asks of Docker, in memory. Keys of images are what they can be asked for by."""

    def __init__(self) -> None:
        self.images: dict[str, dict[str, Any]] = {}
        self.packages = {"vllm": "0.32.0", "click": "8.1.0"}
        self.calls: list[list[str]] = []
        self.down = ""
        self.pull_gives = PULLED
        self.load_gives = BASE

    def add(self, image: str, *names: str, labels: dict[str, str] | None = None) -> None:
        entry = {"Id": image, "RepoDigests": [], "Architecture": ARCHITECTURE, "Config": {"Labels": labels or {}}}
        for name in (image, *names):
            self.images[name] = entry

    def __call__(self, argv: list[str], _timeout: float, stdin: str | None = None) -> tuple[int, str, str]:
        words = argv[1:]
        self.calls.append(words)
        if self.down:
            return 127 if "not installed" in self.down else 1, "", self.down
        if words[:2] == ["image", "inspect"]:
            if not words[2] or words[2].startswith("/"):
                return 1, "", "Error response from daemon: invalid reference format"
            entry = self.images.get(words[2])
            return (0, json.dumps([entry]), "") if entry else (1, "", f"Error: No such image: {words[2]}")
        return getattr(self, f"do_{words[0]}")(words, stdin)

    def do_run(self, words: list[str], stdin: str | None) -> tuple[int, str, str]:
        assert stdin == _image.probe_program()
        assert words[words.index("--network") + 1] == "none"
        image = words[-2]
        packages = dict(self.packages)
        if image == DERIVED:
            packages["ray"] = "2.60.0"
        answer = {
            "version": "3.11.2",
            "machine": platform.machine(),
            "glibc": "2.36",
            "executable": "/usr/bin/python3",
            "ray": "",
            "vllm": "/usr/local/bin/vllm",
            "packages": packages,
            "ray_problem": "",
            "nccl_files": {"/etc/nccl.conf": "NCCL_IB_DISABLE=1\n"},
            "nccl_environment": {},
            "libraries": {"_C": [[80, 90], [90]]},
        }
        return 0, "\n" + json.dumps(answer) + "\n", ""

    def do_load(self, _words: list[str], _stdin: str | None) -> tuple[int, str, str]:
        self.add(self.load_gives)
        return 0, "", ""

    def do_pull(self, words: list[str], _stdin: str | None) -> tuple[int, str, str]:
        self.add(self.pull_gives, words[-1])
        self.images[self.pull_gives]["RepoDigests"] = [f"own/vllm@{PULLED}"]
        return 0, "", ""

    def do_tag(self, words: list[str], _stdin: str | None) -> tuple[int, str, str]:
        self.images[words[2]] = self.images[words[1]]
        return 0, "", ""

    def do_commit(self, words: list[str], _stdin: str | None) -> tuple[int, str, str]:
        label = next(word for word in words if word.startswith("LABEL "))
        self.add(DERIVED, words[-1], labels=dict(item.split("=") for item in label.split()[1:]))
        return 0, DERIVED + "\n", ""

    def do_rm(self, _words: list[str], _stdin: str | None) -> tuple[int, str, str]:
        return 0, "", ""

    do_create = do_start = do_rmi = do_rm

    def do_version(self, _words: list[str], _stdin: str | None) -> tuple[int, str, str]:
        return 0, "28.1\n", ""

    def do_images(self, _words: list[str], _stdin: str | None) -> tuple[int, str, str]:
        return 0, f"{DERIVED}\n" if DERIVED in self.images else "", ""

    def verbs(self) -> list[str]:
        return [words[0] for words in self.calls if words[:2] != ["image", "inspect"] and words[0] != "version"]


class Host:
    def __init__(self, root: Path, docker: Docker, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.docker, self.capsys = root, docker, capsys
        (root / "archive.tar").write_bytes(b"layers")
        self.archive = {"image": BASE, "entry": ["archive.tar", 6, hashlib.sha256(b"layers").hexdigest()]}
        self.wheels = []
        for name in ("ray-2.60.0-py3-none-any.whl", "uv-0.13.8-py3-none-any.whl"):
            with zipfile.ZipFile(root / name, "w") as wheel:
                wheel.writestr("uv-0.13.8.data/scripts/uv", "x")
            data = (root / name).read_bytes()
            self.wheels.append([name, len(data), hashlib.sha256(data).hexdigest()])

    def asked(self, image: str) -> dict[str, Any]:
        """What it answers before a run, when the controller has told it of no target."""
        return self(image=image, whole={})

    def __call__(self, *, check: bool = False, target: dict[str, Any] | None = None, **args: Any) -> dict[str, Any]:
        self.docker.calls.clear()
        whole = {"image": "own/vllm:1", "archive": self.archive, "lock": LOCK, "pins": PINS, **(target or {})}
        whole = args.pop("whole", whole)
        given = {
            "requirements": "lock.txt",
            "config_path": str(self.root / "container.json"),
            "work_dir": str(self.root / "work"),
            "settings": {"user": "sparkthor"},
            "target": whole,
            "_ansible_check_mode": check,
            "_ansible_diff": True,
            "_ansible_remote_tmp": str(self.root),
            **args,
        }
        deprecated = patch.object(AnsibleModule, "deprecate", side_effect=AssertionError)
        with patch_module_args(given), deprecated, pytest.raises(SystemExit):
            engine_image.main()
        return json.loads(self.capsys.readouterr().out)

    def receive(self, *names: str) -> None:
        rows = [self.archive["entry"], *self.wheels]
        parts = []
        for name in names:
            _name, size, sha256 = next(row for row in rows if row[0] == name)
            part = self.root / f"part-{name}"
            part.write_bytes((self.root / name).read_bytes())
            parts.append({"sha256": sha256, "offset": 0, "size": size, "file": str(part)})
        given = {"root": str(self.root / "work" / "images"), "parts": parts, "_ansible_remote_tmp": str(self.root)}
        with patch_module_args(given), pytest.raises(SystemExit):
            store_receive.main()
        assert json.loads(self.capsys.readouterr().out)["changed"]

    def whole(self) -> dict[str, Any]:
        """Everything that a bare host needs, as the controller's side would do it."""
        assert self()["what"] == "archive"
        self.receive("archive.tar")
        assert self()["wanted"] == [["ray", "2.60.0"], ["uv", "0.13.8"]]
        assert self(target={"wheels": self.wheels})["what"] == "wheels"
        self.receive(*(row[0] for row in self.wheels))
        return self(target={"wheels": self.wheels})


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Docker:
    found = Docker()
    monkeypatch.setattr(image_host, "run_limited", found)
    monkeypatch.setattr(container, "docker_info", lambda: {"ServerVersion": "28", "CDISpecDirs": []})
    monkeypatch.setattr(container, "host_gpu_arguments", lambda mode, info: [])
    return found


@pytest.fixture
def host(tmp_path: Path, docker: Docker, capsys: pytest.CaptureFixture[str]) -> Host:
    return Host(tmp_path, docker, capsys)


def test_from_an_archive_to_an_image_with_ray_and_then_nothing(host: Host, docker: Docker) -> None:
    result = host.whole()
    assert result["changed"]
    assert result["actions"] == ["add ray 2.60.0 and 0 packages it needs", f"write {host.root}/container.json"]
    engine = result["ansible_facts"]["sparkthor_engine"]
    assert (engine["runtime"], engine["image"], engine["image_id"]) == ("container", "own/vllm:1", BASE)
    assert (engine["python"], engine["versions"]) == ("3.11", {"vllm": "0.32.0", "ray": "2.60.0"})
    assert engine["command"][-1] == "python"
    assert result["nccl"] == ["/etc/nccl.conf: NCCL_IB_DISABLE=1"]
    assert "own/vllm:1" in docker.images
    written = json.loads((host.root / "container.json").read_text())
    assert (written["image"], written["user"]) == (DERIVED, "sparkthor")
    assert written["commands"]["ray"] == ["/usr/bin/python3", "-m", "ray.scripts.scripts"]
    again = host()
    assert (again["changed"], again["actions"]) == (False, [])
    assert again["ansible_facts"]["sparkthor_engine"] == engine
    assert docker.verbs() == []


def test_check_mode_says_what_would_be_done_and_does_nothing(host: Host, docker: Docker) -> None:
    result = host(check=True, archive="/srv/a.tar")
    assert result["changed"]
    assert result["actions"][0] == "load own/vllm:1 from /srv/a.tar"
    assert "# load own/vllm:1" in result["diff"]["after"]
    assert docker.verbs() == []
    assert not (host.root / "container.json").exists()
    host.whole()
    changed = host(check=True, gpu="gpus")
    assert changed["actions"] == [f"write {host.root}/container.json"]
    assert '"gpu": "auto"' in changed["diff"]["before"]
    assert '"gpu": "gpus"' in changed["diff"]["after"]
    assert host(check=True)["changed"] is False


def test_other_pins_of_ray_make_another_image(host: Host, docker: Docker) -> None:
    host.whole()
    result = host(check=True, target={"lock": "0" * 64})
    assert result["actions"][0] == "add ray 2.60.0 and 0 packages it needs"
    assert result["ansible_facts"]["sparkthor_engine"]["versions"]["ray"] == "2.60.0"
    assert host(target={"lock": "0" * 64})["wanted"]


def test_an_image_that_has_ray_is_run_as_it_is(host: Host, docker: Docker) -> None:
    docker.packages["ray"] = "2.55.0"
    docker.add(BASE, "own/vllm:1")
    result = host()
    assert json.loads((host.root / "container.json").read_text())["image"] == BASE
    assert result["ansible_facts"]["sparkthor_engine"]["versions"]["ray"] == "2.55.0"
    assert "commit" not in docker.verbs()
    assert "engine_ray_version is '2.60.0'" in host(ray_version="2.60.0")["msg"]


def test_a_new_image_after_one_that_served(host: Host, docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    """What served is an image and a model's folder, and Docker knows no folder."""
    monkeypatch.setattr(kept, "needed", lambda: kept.Needed(["/var/lib/sparkthor/models/tiny@1"], [BASE]))
    docker.packages["ray"] = "2.60.0"
    docker.add(BASE, "own/vllm:1")
    host()
    docker.add(PULLED, "own/vllm:2")
    result = host(target={"image": "own/vllm:2", "archive": {}})
    assert result["actions"] == [f"write {host.root}/container.json"]
    assert json.loads((host.root / "container.json").read_text())["image"] == PULLED


def test_an_image_with_an_old_ray_or_without_vllm_is_refused(host: Host, docker: Docker) -> None:
    docker.add(BASE, "own/vllm:1")
    docker.packages["ray"] = "2.49.0"
    assert "own/vllm:1: ray 2.49.0 is too old" in host()["msg"]
    (host.root / "work" / "engine-images.json").unlink()
    del docker.packages["vllm"]
    assert "there is no vLLM in this image" in host()["msg"]
    assert not (host.root / "container.json").exists()


def test_pulled_by_digest(host: Host, docker: Docker) -> None:
    docker.packages["ray"] = "2.60.0"
    bare = {"archive": {}}
    assert "engine_image_pull is off" in host(pull=False, target=bare)["msg"]
    result = host(digest=PULLED, target=bare)
    assert result["actions"][0] == f"pull own/vllm@{PULLED}"
    assert result["digests"] == result["pulled"] == [PULLED]
    assert "own/vllm:1" in docker.images
    assert host.asked("own/vllm:1") == {"changed": False, "pulled": [PULLED]}
    assert host.asked("own/vllm:2") == {"changed": False, "pulled": []}
    assert host(digest=PULLED, target=bare)["changed"] is False
    other = "sha256:" + "1" * 64
    docker.images[f"own/vllm@{other}"] = docker.images[PULLED]
    assert f"{other} is wanted (engine_image_digest, or in engine_image)" in host(digest=other, target=bare)["msg"]


@pytest.mark.parametrize("there", [False, True])
def test_a_digest_in_the_images_name_pins_it_as_well(host: Host, docker: Docker, there: bool) -> None:
    docker.packages["ray"] = "2.60.0"
    pinned = {"archive": {}, "image": f"own/vllm:1@{PULLED}"}
    if there:
        # another image has the tag, which decides nothing
        docker.add(BASE, "own/vllm:1")
    result = host(target=pinned)
    assert result["actions"][:2] == [f"pull own/vllm@{PULLED}", "name it own/vllm:1"]
    assert json.loads((host.root / "container.json").read_text())["image"] == PULLED
    assert docker.images["own/vllm:1"]["Id"] == PULLED
    assert host(target=pinned)["changed"] is False


def test_an_image_for_another_machine_is_refused(host: Host, docker: Docker) -> None:
    docker.add(BASE, "own/vllm:1")
    docker.images[BASE]["Architecture"] = "riscv64"
    assert "is for riscv64, this host is" in host()["msg"]


def test_a_damaged_archive_is_named(host: Host, docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Docker, "do_load", lambda *_given: (0, "", ""))
    host()
    host.receive("archive.tar")
    assert "it is damaged" in host()["msg"]


CONTAINERD = {"ServerVersion": "29", "DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]]}


def test_containerds_store_knows_an_archives_image_by_its_manifest(
    host: Host, docker: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "docker_info", lambda: CONTAINERD)
    docker.load_gives, docker.packages["ray"] = PULLED, "2.60.0"
    host.archive["others"] = [PULLED]
    assert host()["what"] == "archive"
    host.receive("archive.tar")
    result = host()
    assert json.loads((host.root / "container.json").read_text())["image"] == PULLED
    # the same engine as on hosts whose Docker knows the image by its configuration
    assert result["ansible_facts"]["sparkthor_engine"]["image_id"] == BASE
    for digest in ("", BASE, PULLED):
        assert host(digest=digest)["changed"] is False


@pytest.mark.parametrize("check", [False, True])
def test_an_archive_that_containerds_store_could_not_name_is_not_sent(
    host: Host, docker: Docker, monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    monkeypatch.setattr(container, "docker_info", lambda: CONTAINERD)
    result = host(check=check)
    assert result["failed"]
    assert "Write it with docker save of Docker 25 or newer" in result["msg"]
    assert docker.verbs() == []


def test_no_docker_is_one_sentence(host: Host, docker: Docker) -> None:
    docker.down = "docker: not installed"
    assert "engine_runtime: container needs Docker" in host()["msg"]
    docker.down = "Cannot connect to the Docker daemon"
    assert "Cannot connect" in host()["msg"]


def test_check_mode_where_docker_does_not_run_yet(host: Host, docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    docker.down = "Cannot connect to the Docker daemon"
    monkeypatch.setattr(container, "docker_info", lambda: pytest.fail("Docker was asked"))
    result = host(check=True)
    assert result["actions"][0] == "have own/vllm:1, once Docker runs"
    assert result["ansible_facts"]["sparkthor_engine"]["image_id"] == BASE
    assert not (host.root / "container.json").exists()


def test_a_ray_that_does_not_run_is_found_before_anything_starts(
    host: Host, docker: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Docker.do_run

    def broken(self: Docker, words: list[str], stdin: str | None) -> tuple[int, str, str]:
        status, out, err = honest(self, words, stdin)
        return status, out.replace('"ray_problem": ""', '"ray_problem": "ImportError: protobuf"'), err

    monkeypatch.setattr(Docker, "do_run", broken)
    assert "does not run there: ImportError: protobuf" in host.whole()["msg"]
    assert not (host.root / "container.json").exists()


def test_an_image_without_kernels_for_the_gpu_is_refused(host: Host, docker: Docker) -> None:
    docker.add(BASE, "own/vllm:1")
    docker.packages["ray"] = "2.60.0"
    assert host(target={"kind": "spark"})["changed"], "its PTX is for older GPUs and can be compiled for newer ones"
    honest = Docker.do_run
    (host.root / "work" / "engine-images.json").unlink()
    Docker.do_run = lambda *given: tuple(  # type: ignore[method-assign]
        part.replace("[[80, 90], [90]]", "[[80, 90], []]") if isinstance(part, str) else part for part in honest(*given)
    )
    try:
        said = host(target={"kind": "thor"})["msg"]
    finally:
        Docker.do_run = honest  # type: ignore[method-assign]
    assert "carries kernels for sm_80, sm_90, and a thor needs sm_110: choose an image" in said


def test_an_image_that_another_host_pulled_is_known_by_its_registrys_name(host: Host, docker: Docker) -> None:
    docker.packages["ray"] = "2.60.0"
    waiting = host(digest=PULLED, target={"archive": {}, "wait": True})
    assert (waiting["lacks"], docker.verbs()) == (f"own/vllm@{PULLED}", [])
    shared = {"archive": {**host.archive, "others": [], "shared": True, "documents": [INDEX, MANIFEST]}}
    assert host(digest=PULLED, target=shared)["what"] == "archive"
    host.receive("archive.tar")
    result = host(digest=PULLED, target=shared)
    assert (result["actions"][0], "pull" in docker.verbs()) == ("load own/vllm:1 from the host that pulled it", False)
    assert result["pulled"] == [PULLED]
    assert result["ansible_facts"]["sparkthor_engine"]["image_id"] == PULLED
    assert not (host.root / "work/images/archive").exists()
    # Docker itself knows no registry of it; later runs ask for the recorded digest, and pull nothing
    again = host(digest=PULLED, target={"archive": {}, "wait": True})
    assert (again["changed"], docker.verbs()) == (False, [])
    assert again["ansible_facts"] == result["ansible_facts"]
    assert host.asked("own/vllm:1")["pulled"] == [PULLED]
    other = "sha256:" + "1" * 64
    assert host(digest=other, target={"archive": {}, "wait": True})["lacks"] == f"own/vllm@{other}"


def test_a_host_that_has_the_same_image_from_elsewhere_is_told_its_registrys_name(host: Host, docker: Docker) -> None:
    docker.packages["ray"] = "2.60.0"
    docker.add(BASE, "own/other:1")
    assert host(digest=PULLED, target={"archive": {}, "wait": True})["lacks"] == f"own/vllm@{PULLED}"
    shared = {"archive": {**host.archive, "others": [], "shared": True, "documents": [INDEX, MANIFEST]}}
    assert host(digest=PULLED, target=shared)["pulled"] == [PULLED]
    assert host(digest=PULLED, target={"archive": {}, "wait": True})["changed"] is False
    assert "load" not in docker.verbs()


def test_the_host_that_pulled_it_tidies_up_when_all_have_it(host: Host, docker: Docker) -> None:
    docker.packages["ray"] = "2.60.0"
    docker.do_pull(["pull", f"own/vllm@{PULLED}"], None)
    shared = {"archive": {**host.archive, "others": [], "shared": True, "documents": [INDEX, MANIFEST]}}
    folder = host.root / "work/images/archive"
    folder.mkdir(parents=True)
    assert host(digest=PULLED, target=shared)["ansible_facts"]["sparkthor_engine"]["image_id"] == PULLED
    assert folder.exists()
    host(digest=PULLED, target={**shared, "tidy": True})
    assert (folder.exists(), "load" in docker.verbs()) == (False, False)


def test_a_host_that_could_not_name_what_another_wrote_pulls_for_itself(
    host: Host, docker: Docker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "docker_info", lambda: CONTAINERD)
    docker.packages["ray"] = "2.60.0"
    shared = {"archive": {**host.archive, "others": [], "shared": True, "documents": [INDEX, MANIFEST]}}
    assert host(digest=PULLED, target=shared)["actions"][0] == f"pull own/vllm@{PULLED}"


OTHER = "sha256:" + "b" * 64
LIES = {
    "nothing": [],
    "of another image": [json.dumps({"config": {"digest": OTHER}})],
    "another index": [json.dumps({"manifests": [{"digest": registry.digest_of(MANIFEST.encode())}]}) + " ", MANIFEST],
    "a manifest that is another one's": [INDEX, MANIFEST.replace(BASE, OTHER)],
    "deep": ["[" * 100_000, '{"config":' * 5000],
    "strange": ['{"manifests": 5, "config": []}', '{"config": {"digest": 7}}', "null"],
}


@pytest.mark.parametrize("lie", LIES)
def test_an_image_of_another_host_is_used_when_it_is_that_of_the_digest(host: Host, docker: Docker, lie: str) -> None:
    """Whoever wrote it down may have written another one, with whatever beside it."""
    docker.packages["ray"], docker.load_gives = "2.60.0", OTHER
    shared = {"archive": {**host.archive, "image": OTHER, "others": [], "shared": True, "documents": LIES[lie]}}
    assert host(digest=PULLED, target=shared)["what"] == "archive"
    host.receive("archive.tar")
    # the registry is away
    docker.do_pull = lambda *_given: (1, "", "connection refused")  # type: ignore[method-assign]
    result = host(digest=PULLED, target=shared)
    assert f"what another host wrote down as own/vllm@{PULLED} is {OTHER} here" in result["msg"]
    assert "let this host reach the registry, or give engine_image_archive" in result["msg"]
    assert ["rmi", "--force", OTHER] in docker.calls
    assert "run" not in docker.verbs()
    assert not (host.root / "container.json").exists()
    assert not (host.root / "work/engine-images.json").exists()


def test_a_name_in_an_archive_proves_nothing(host: Host, docker: Docker) -> None:
    """Containerd's store takes names from the archive, with a digest in them as well."""

    def load(*_given: Any) -> tuple[int, str, str]:
        docker.add(OTHER, f"own/vllm@{PULLED}", "own/vllm:1")
        docker.images[OTHER]["RepoDigests"] = [f"own/vllm@{PULLED}"]
        return 0, "", ""

    docker.do_load = load  # type: ignore[method-assign]
    shared = {"archive": {**host.archive, "image": OTHER, "others": [], "shared": True, "documents": [INDEX, MANIFEST]}}
    host(digest=PULLED, target=shared)
    host.receive("archive.tar")
    docker.do_pull = lambda *_given: (1, "", "connection refused")  # type: ignore[method-assign]
    assert "nothing that came with it shows that this is the same" in host(digest=PULLED, target=shared)["msg"]
    assert ["rmi", "--force", OTHER] in docker.calls


def test_where_nothing_proves_it_docker_asks_the_registry(host: Host, docker: Docker) -> None:
    """It fetches manifests alone for layers that are here; and where they are others, the right ones."""
    docker.packages["ray"], docker.load_gives = "2.60.0", OTHER
    docker.pull_gives = BASE
    shared = {"archive": {**host.archive, "image": OTHER, "others": [], "shared": True}}
    host(digest=PULLED, target=shared)
    host.receive("archive.tar")
    result = host(digest=PULLED, target=shared)
    assert ["pull", "--quiet", f"own/vllm@{PULLED}"] in docker.calls
    assert result["pulled"] == [PULLED]
    assert json.loads((host.root / "container.json").read_text())["image"] == BASE


def test_ray_is_added_without_the_powers_of_root(host: Host, docker: Docker) -> None:
    host.whole()
    made = next(words for words in docker.calls if words[0] == "create")
    assert made[made.index("--cap-drop") + 1] == "ALL"
    assert made[made.index("--security-opt") + 1] == "no-new-privileges"
    assert made[made.index("--network") + 1] == "none"


@pytest.mark.parametrize("found", [None, "2.49.0"])
def test_an_image_stays_as_it_is_where_ray_starts_no_rank(host: Host, docker: Docker, found: str | None) -> None:
    docker.add(BASE, "own/vllm:1")
    docker.packages.update({"ray": found} if found else {})
    result = host(ray=False, target={"pins": [], "lock": ""})
    assert json.loads((host.root / "container.json").read_text())["image"] == BASE
    assert result["actions"] == [f"write {host.root}/container.json"]
    assert "commit" not in docker.verbs()
    # an image with an old Ray is none to start it
    assert bool(found) == ("ray 2.49.0 is too old" in str(host().get("msg")))


def test_an_engine_that_no_image_has_is_refused(host: Host, docker: Docker) -> None:
    said = host(engine="llama_cpp")["msg"]
    assert said == "engine='llama_cpp': an image has one of vllm, sglang, tensorrt_llm"
    assert docker.calls == []
