# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host changes an image by declared steps; Docker is a function that answers like it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image as _image
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import (
    image_build,
    image_host,
    image_share,
    trial,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError

INPUTS = "c" * 64
BASE = "sha256:" + "b" * 64
CONFIG = b'{"architecture": "arm64"}'
MADE = "sha256:" + hashlib.sha256(CONFIG).hexdigest()
PATCH = b"a patch\n"
SHA = hashlib.sha256(PATCH).hexdigest()
PROBE = {
    "libraries": {},
    "version": "3.12.3",
    "machine": "aarch64",
    "glibc": "2.39",
    "executable": "/usr/bin/python3",
    "vllm": "/usr/bin/vllm",
    "packages": {"vllm": "0.33.0"},
}


class Docker:
    """Images by name; what runs in the build's container is looked at and succeeds, unless it is told to fail."""

    def __init__(self) -> None:
        self.images: dict[str, dict[str, Any]] = {BASE: {"Id": BASE, "Config": {}}}
        self.calls: list[list[str]] = []
        self.seen: dict[str, str] = {}
        self.build = (0, "", "")
        self.imports = (0, json.dumps({"vllm": "0.33.0"}), "")

    def __call__(self, argv: list[str], _seconds: float, stdin: str | None = None) -> tuple[int, str, str]:
        self.calls.append(argv)
        if argv[:3] == ["docker", "image", "inspect"]:
            if "--format" in argv:
                return 0, "4096\n", ""
            found = self.images.get(argv[3])
            return (0, json.dumps([found]), "") if found else (1, "", f"No such image: {argv[3]}")
        if argv[:2] == ["docker", "create"]:
            place = next(word for word in argv if word.startswith("type=bind")).split(",")[1].removeprefix("source=")
            for folder, _folders, names in os.walk(place):
                for name in names:
                    path = Path(folder, name)
                    self.seen[str(path.relative_to(place))] = path.read_text()
        if argv[:2] == ["docker", "start"]:
            return self.build
        if argv[:2] == ["docker", "commit"]:
            labels = dict(word.split("=") for word in argv[argv.index("--change") + 1].split()[1:])
            self.images[argv[-1]] = self.images[MADE] = {"Id": MADE, "Config": {"Labels": labels}}
            return 0, f"{MADE}\n", ""
        if "choom" in argv:
            return self.imports
        if argv[:2] == ["docker", "run"]:
            return 0, json.dumps(PROBE), ""
        if argv[:2] == ["docker", "rmi"]:
            self.images = {name: image for name, image in self.images.items() if image["Id"] != argv[-1]}
        if argv[:2] == ["docker", "save"]:
            with tarfile.open(argv[3], "w") as archive:
                rows = [{"Config": "config.json", "RepoTags": [argv[4]], "Layers": []}]
                for name, data in (("manifest.json", json.dumps(rows).encode()), ("config.json", CONFIG)):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
        return 0, "", ""

    def words(self, verb: str) -> list[str]:
        return next(argv for argv in self.calls if argv[:2] == ["docker", verb])


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch) -> Docker:
    found = Docker()
    for module in (image_build, image_host, image_share):
        monkeypatch.setattr(module, "run_limited", found)
    monkeypatch.setattr(trial, "run_limited", found)
    monkeypatch.setattr(trial, "available", lambda: 64 << 30)
    monkeypatch.setattr(image_build.container, "docker_info", dict)
    monkeypatch.setattr(image_build.container, "host_gpu_arguments", lambda *_given: ["--gpus", "all"])
    return found


@pytest.fixture
def params(tmp_path: Path) -> dict[str, Any]:
    return {
        **{"work_dir": str(tmp_path / "work"), "timeout": 600, "inputs": INPUTS, "base": BASE, "recipe": "mine"},
        **{"engine": "", "gpu": "auto", "calls": [], "kind": "", "script": "#!/bin/sh\necho steps\n"},
        "files": [["00/heads.patch", len(PATCH), SHA]],
    }


def sent(params: dict[str, Any]) -> None:
    """The file as the controller's side brings it."""
    store = image_host.DockerHost(params["work_dir"], 1).store()
    os.makedirs(store.incoming, exist_ok=True)
    path = Path(store.incoming, SHA)
    path.write_bytes(PATCH)
    path.chmod(0o400)


def left(params: dict[str, Any]) -> list[str]:
    folder = Path(params["work_dir"], "images")
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_files_are_asked_for_before_anything_runs(docker: Docker, params: dict[str, Any]) -> None:
    assert [item["sha256"] for item in image_build.build(params)["need"]] == [SHA]
    assert not [argv for argv in docker.calls if argv[1] in ("create", "run", "commit")]


def test_an_image_is_built_without_network_and_powers_and_tried(docker: Docker, params: dict[str, Any]) -> None:
    sent(params)
    outcome = image_build.build(params)
    tag = _image.built_tag(INPUTS)
    assert (outcome["changed"], outcome["built"], outcome["warnings"]) == (True, tag, [])
    words = " ".join(docker.words("create"))
    for option in ("--network none", "--cap-drop ALL", "no-new-privileges", "--pull never", ",readonly", "--user 0:0"):
        assert option in words
    assert "--privileged" not in words
    assert words.endswith(f"--entrypoint /bin/sh {BASE} /mnt/build.sh")
    assert docker.seen["00/heads.patch"] == PATCH.decode()
    assert docker.seen["build.sh"] == params["script"]
    assert "def changes" in docker.seen["patching.py"]
    found = docker.images[tag]["Config"]["Labels"]
    assert found == {"sparkthor.base": BASE, "sparkthor.build": INPUTS}
    tried = next(argv for argv in docker.calls if "choom" in argv)
    assert "--gpus" in tried
    assert tried[-2:] == ["-", "imports"]
    assert left(params) == []
    docker.calls.clear()
    assert image_build.build(params) == {"changed": False, "built": tag}
    assert not [argv for argv in docker.calls if argv[1] != "image"]


@pytest.mark.parametrize("what", ["build", "imports"])
def test_a_build_that_fails_leaves_nothing(docker: Docker, params: dict[str, Any], what: str) -> None:
    sent(params)
    setattr(docker, what, (1, "", "heads.patch: it was made for another version"))
    words = {"build": "mine: its image could not be built, and nothing was changed", "imports": "it was removed"}
    with pytest.raises(EngineError, match=words[what]) as caught:
        image_build.build(params)
    assert "it was made for another version" in str(caught.value)
    assert set(docker.images) == {BASE}
    assert left(params) == []
    assert docker.calls.count(["docker", "rm", "--force", "--volumes", image_host.BUILDER]) == 2


def test_a_base_that_went_is_told(docker: Docker, params: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match="the image that is to be changed is gone"):
        image_build.build({**params, "base": "sha256:" + "d" * 64})


def test_what_was_built_is_written_down_for_the_others(docker: Docker, params: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match="is not here after it was built"):
        image_build.share(params)
    sent(params)
    image_build.build(params)
    told = image_build.share(params)["saved"]
    assert (told["image"], told["entry"][0]) == (MADE, image_share.TAR)
    assert left(params) == ["archive"]


def test_a_host_loads_what_was_built_or_says_that_it_is_not(docker: Docker, params: dict[str, Any]) -> None:
    host = image_host.DockerHost(params["work_dir"], 60)
    base = host.image(BASE)
    assert base is not None
    assert image_host.with_steps(host, {}, False, base, []) == (base, {})
    actions: list[str] = []
    target = {"inputs": INPUTS, "built": {}, "built_everywhere": True}
    assert image_host.with_steps(host, target, False, base, actions) == (None, {"unbuilt": BASE})
    assert image_host.with_steps(host, target, True, base, []) == (None, {})
    assert actions == [f"build {_image.built_tag(INPUTS)}"]
    built = {"image": MADE, "others": [], "entry": ["image.tar", len(PATCH), SHA]}
    asked = image_host.with_steps(host, {**target, "built": built}, False, base, [])
    assert asked[1]["what"] == "archive"
    sent(params)
    with pytest.raises(EngineError, match="after it was loaded there is no image"):
        image_host.with_steps(host, {**target, "built": built}, False, base, [])
    docker.images[_image.built_tag(INPUTS)] = {"Id": MADE, "Config": {"Labels": {"sparkthor.build": "another"}}}
    sent(params)
    with pytest.raises(EngineError, match="was not built from these steps"):
        image_host.with_steps(host, {**target, "built": built}, False, base, [])
    docker.images[_image.built_tag(INPUTS)]["Config"]["Labels"]["sparkthor.build"] = INPUTS
    found, request = image_host.with_steps(host, {**target, "built": built}, False, base, [])
    assert found is not None
    assert (found.image, request) == (MADE, {})


def test_the_bases_of_an_image_that_is_needed_stay(docker: Docker, params: dict[str, Any]) -> None:
    def labelled(name: str, base: str) -> None:
        docker.images[name] = {"Id": name, "Config": {"Labels": {"sparkthor.base": base} if base else {}}}

    labelled("ray", "built")
    labelled("built", BASE)
    labelled("old", BASE)
    host = image_host.DockerHost(params["work_dir"], 60)
    for name in (BASE, "built", "ray", "old"):
        host.note(name, brought=True)
    host.prune({"ray"}, 0)
    assert [argv[-1] for argv in docker.calls if argv[:2] == ["docker", "rmi"]] == ["old"]
