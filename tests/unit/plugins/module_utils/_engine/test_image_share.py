# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host pulls an image in a unit of its own; Docker and systemd are functions that answer like them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image_host, image_share
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError

CONFIG = b'{"architecture": "arm64"}'
IMAGE = "sha256:" + hashlib.sha256(CONFIG).hexdigest()
DIGEST = "sha256:" + "d" * 64

LOG = """\
26.10-py3: Pulling from nvidia/vllm
0a1b2c3d4e5f: Already exists
1a1b2c3d4e5f: Pulling fs layer
2a1b2c3d4e5f: Pulling fs layer
3a1b2c3d4e5f: Pulling fs layer
1a1b2c3d4e5f: Verifying Checksum
1a1b2c3d4e5f: Download complete
2a1b2c3d4e5f: Download complete
2a1b2c3d4e5f: Pull complete
"""


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", "waiting for the registry"),
        ("26.10-py3: Pulling from nvidia/vllm\n", "waiting for the registry"),
        (LOG, "3 of 4 layers downloaded, 2 unpacked"),
        (LOG + "1a1b2c3d4e5f: Pull complete\n3a1b2c3d4e5f: Pull complete\n", "4 of 4 layers downloaded, 4 unpacked"),
    ],
)
def test_progress_counts_layers(log: str, words: str) -> None:
    assert image_share.progress(log) == words


class Machine:
    """Docker with its images by name, and systemd with one unit."""

    def __init__(self) -> None:
        self.images: dict[str, dict[str, Any]] = {}
        self.active = False
        self.documents: list[bytes] = []
        self.calls: list[list[str]] = []

    def pulled(self) -> None:
        entry = {"Id": IMAGE, "RepoDigests": [f"own/vllm@{DIGEST}"], "Architecture": "arm64", "Config": {}}
        self.images |= dict.fromkeys((IMAGE, "own/vllm:1", f"own/vllm@{DIGEST}"), entry)

    def __call__(self, argv: list[str], _timeout: float, _stdin: str | None = None) -> tuple[int, str, str]:
        self.calls.append(argv)
        if argv[:3] == ["docker", "image", "inspect"]:
            if "--format" in argv:
                return 0, "4096\n", ""
            entry = self.images.get(argv[3])
            return (0, json.dumps([entry]), "") if entry else (1, "", f"Error: No such image: {argv[3]}")
        if argv[:2] == ["docker", "save"]:
            with tarfile.open(argv[3], "w") as archive:
                rows = [{"Config": "config.json", "RepoTags": [argv[4]], "Layers": []}]
                for name, data in (("manifest.json", json.dumps(rows).encode()), ("config.json", CONFIG)):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
        if argv[:2] == ["systemctl", "is-active"]:
            return 0 if self.active else 3, "", ""
        if argv[0] == "systemd-run":
            self.active = True
        return 0, "", ""

    def verbs(self) -> list[str]:
        return [" ".join(argv[:2]) for argv in self.calls if argv[1] != "image"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine()
    for module in (image_host, image_share):
        monkeypatch.setattr(module, "run_limited", found)
    monkeypatch.setattr(image_share.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(image_share, "FOLDER", str(tmp_path / "run"))
    monkeypatch.setattr(image_share.registry, "documents_of", lambda *_given: list(found.documents))
    return found


def params(tmp_path: Path, **values: Any) -> dict[str, Any]:
    given = {"work_dir": str(tmp_path / "work"), "timeout": 600, "digest": "", "share": True}
    return {**given, "image": "own/vllm:1", **values}


def test_a_pull_is_begun_once_and_goes_on_without_the_controller(tmp_path: Path, machine: Machine) -> None:
    assert image_share.pull(params(tmp_path)) == {"changed": True, "pulling": True}
    command = next(argv for argv in machine.calls if argv[0] == "systemd-run")
    assert command[-2:] == ["own/vllm:1", str(tmp_path / "run")]
    machine.calls.clear()
    assert image_share.pull(params(tmp_path))["pulling"] is True
    assert "systemd-run --quiet" not in machine.verbs()
    # one of another image gives way
    image_share.pull(params(tmp_path, digest=DIGEST))
    assert machine.verbs()[-2:] == ["systemctl stop", "systemd-run --quiet"]
    assert (tmp_path / "run/image").read_text() == f"own/vllm@{DIGEST}"
    machine.pulled()
    machine.calls.clear()
    assert image_share.pull(params(tmp_path, digest=DIGEST)) == {"changed": False, "pulling": False}
    assert machine.verbs() == []


def test_a_pull_that_failed_says_dockers_last_word(tmp_path: Path, machine: Machine) -> None:
    image_share.pull(params(tmp_path))
    (tmp_path / "run/log").write_text("1: Pulling from own/vllm\nmanifest unknown\n")
    with pytest.raises(
        EngineError, match=r"own/vllm:1 could not be pulled: manifest unknown. .*docker login.*engine_image_archive"
    ):
        image_share.save(params(tmp_path))
    (tmp_path / "run/log").write_text("")
    with pytest.raises(EngineError, match="its unit ended without a word"):
        image_share.save(params(tmp_path))


def test_what_was_pulled_is_written_where_the_fan_out_takes_it_from(tmp_path: Path, machine: Machine) -> None:
    machine.pulled()
    assert image_share.save(params(tmp_path, share=False)) == {"changed": False, "pulled": [DIGEST]}
    assert not (tmp_path / "work").exists()
    for _run in range(2):  # the second one finds what a broken run left
        told = image_share.save(params(tmp_path))
        saved = told["saved"]
        assert (told["pulled"], saved["image"], saved["others"], saved["digest"]) == ([DIGEST], IMAGE, [], DIGEST)
        archive = tmp_path / "work/images/archive/image.tar"
        name, size, sha256 = saved["entry"]
        assert (name, size) == ("image.tar", archive.stat().st_size)
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == sha256
    assert not [name for name in os.listdir(tmp_path / "work/images/.incoming") if name.startswith("save-")]


def test_only_what_we_pulled_is_ours_to_remove(tmp_path: Path, machine: Machine) -> None:
    machine.pulled()
    image_share.save(params(tmp_path, share=False))
    records = tmp_path / "work/engine-images.json"
    assert not records.exists()
    machine.images.clear()
    image_share.pull(params(tmp_path))
    (tmp_path / "run/status").write_text("0\n")
    machine.pulled()
    image_share.save(params(tmp_path, share=False))
    assert json.loads(records.read_text()) == {IMAGE: {"brought": True}}


def test_an_image_for_another_machine_goes_no_further(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.pulled()
    monkeypatch.setattr(image_share.platform, "machine", lambda: "x86_64")
    with pytest.raises(EngineError, match="engine_image: own/vllm:1 is for aarch64, this host is x86_64: choose"):
        image_share.save(params(tmp_path))
    assert "docker save" not in machine.verbs()


def test_a_disk_without_room_is_told_before_it_is_written(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.pulled()
    monkeypatch.setattr(image_host.DockerHost, "size", lambda self, image: 1 << 60)
    with pytest.raises(StoreError, match=r"own/vllm:1 for the other hosts needs .* more under"):
        image_share.save(params(tmp_path))
    assert "docker save" not in machine.verbs()


def test_what_proves_the_image_goes_with_it(tmp_path: Path, machine: Machine) -> None:
    machine.pulled()
    machine.documents = [json.dumps({"config": {"digest": IMAGE}}).encode(), b'{"of": "no use"}']
    assert image_share.save(params(tmp_path))["saved"]["documents"] == [json.dumps({"config": {"digest": IMAGE}})]
    machine.images[IMAGE]["RepoDigests"] = []
    # one that came from no registry has nothing there
    assert image_share.save(params(tmp_path))["saved"]["documents"] == []
