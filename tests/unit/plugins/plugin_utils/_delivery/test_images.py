# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's image on the controller: what the variables name, its archive, the wheels of Ray for it."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import images

from tests.unit.engine_lock import locked, write_wheels

CONFIG = b'{"architecture": "arm64"}'
IMAGE = "sha256:" + hashlib.sha256(CONFIG).hexdigest()
PINNED = "registry.example/vllm:1"
DIGEST = "sha256:" + "d" * 64


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def lock(tmp_path: Path) -> str:
    path = tmp_path / "lock.txt"
    path.write_text(locked("ray==2.60.0", "click==8.5.1", "uv==0.13.8"))
    return str(path)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    rows = [{"Config": "config.json", "RepoTags": ["own/vllm:1"], "Layers": []}]
    with tarfile.open(tmp_path / "image.tar", "w") as made:
        for name, data in (("manifest.json", json.dumps(rows).encode()), ("config.json", CONFIG)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            made.addfile(member, io.BytesIO(data))
    return tmp_path / "image.tar"


def test_an_image_of_a_registry_is_taken_by_its_name(lock: str) -> None:
    wanted = images.read_wanted({"requirements": lock, "image": PINNED, "digest": DIGEST})
    assert (wanted.image, wanted.archive, wanted.archive_path) == (PINNED, None, "")
    target = wanted.target()
    assert (target["image"], target["archive"]) == (PINNED, {})
    assert [pin[:2] for pin in target["pins"]] == [["ray", "2.60.0"], ["click", "8.5.1"], ["uv", "0.13.8"]]


def test_an_archive_says_itself_what_is_in_it(lock: str, archive: Path, tmp_path: Path) -> None:
    (tmp_path / "link.tar").symlink_to(archive)
    wanted = images.read_wanted({"requirements": lock, "archive": str(tmp_path / "link.tar")}, "aarch64")
    data = archive.read_bytes()
    assert (wanted.image, wanted.archive_path) == ("own/vllm:1", str(archive))
    assert wanted.entry == ("image.tar", len(data), hashlib.sha256(data).hexdigest())
    described = wanted.target()["archive"]
    assert (described["image"], described["entry"]) == (IMAGE, list(wanted.entry))


def test_the_lock_counts_and_the_image_s_name_does_not(lock: str) -> None:
    one = images.read_wanted({"requirements": lock, "image": PINNED, "digest": DIGEST}).target()["lock"]
    assert images.read_wanted({"requirements": lock, "image": f"x@{DIGEST}"}).target()["lock"] == one
    Path(lock).write_text(locked("ray==2.60.0", "click==8.5.2", "uv==0.13.8"))
    assert images.read_wanted({"requirements": lock, "image": PINNED, "digest": DIGEST}).target()["lock"] != one


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"requirements": "/absent.txt"}, "^engine_image_requirements: /absent.txt"),
        ({}, "^engine_image is empty"),
        ({"image": PINNED, "ray_version": "2.59.0"}, "engine_ray_version"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_variable(lock: str, args: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineError, match=words):
        images.read_wanted({"requirements": lock, **args})


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"digest": DIGEST}, "engine_image_digest is sha256:ddd"),
        ({"image": f"own/vllm:1@{DIGEST}"}, "engine_image is sha256:ddd"),
    ],
)
def test_a_digest_that_the_archive_does_not_hold(lock: str, archive: Path, args: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineError, match=words):
        images.read_wanted({"requirements": lock, "archive": str(archive), **args})


def test_an_archive_for_another_machine(lock: str, archive: Path) -> None:
    with pytest.raises(EngineError, match="is for aarch64, this host is x86_64"):
        images.read_wanted({"requirements": lock, "archive": str(archive)}, "x86_64")


def test_wheels_are_chosen_for_the_python_in_the_image(lock: str, tmp_path: Path) -> None:
    for python in ("cp312", "cp311"):
        write_wheels(tmp_path, f"ray-2.60.0-{python}-{python}-manylinux2014_aarch64.whl")
    inside = {"version": "3.12.3", "machine": "aarch64", "glibc": "2.39"}
    args = {"requirements": lock, "wheel_dir": str(tmp_path)}
    found = images.wheels_for({"probe": inside, "wanted": [["ray", "2.60.0"]]}, args, download=False)
    assert [entry.path for entry in found.manifest] == ["ray-2.60.0-cp312-cp312-manylinux2014_aarch64.whl"]
    with pytest.raises(EngineError, match=r"lacks wheels of .*click==8\.5\.1"):
        images.wheels_for({"probe": inside, "wanted": [["click", "8.5.1"]]}, args, download=False)


def test_an_image_that_says_nothing_about_its_python(lock: str) -> None:
    with pytest.raises(EngineError, match="says nothing about its Python"):
        images.wheels_for({"probe": {}, "wanted": []}, {"requirements": lock}, download=False)


TOLD = {"image": f"sha256:{'a' * 64}", "others": [], "entry": ["image.tar", 5, "e" * 64], "digest": "", "documents": []}


def test_what_was_written_down_is_told_in_one_shape() -> None:
    assert images.saved({**TOLD, "more": 1}) == TOLD
    whole = {**TOLD, "others": [f"sha256:{'b' * 64}"], "digest": f"sha256:{'c' * 64}"}
    assert images.saved(whole) == whole


@pytest.mark.parametrize(
    "lie",
    [
        None,
        [],
        {},
        {**TOLD, "image": "own/vllm:1"},
        {**TOLD, "image": None},
        {**TOLD, "others": ["x"]},
        {**TOLD, "others": 5},
        {**TOLD, "digest": "sha256:short"},
        {**TOLD, "entry": ["/root/.ssh/id_rsa", 5, "e" * 64]},
        {**TOLD, "entry": ["../image.tar", 5, "e" * 64]},
        {**TOLD, "entry": ["id_rsa", 5, "e" * 64]},
        {**TOLD, "entry": ["image.tar", -1, "e" * 64]},
        {**TOLD, "entry": ["image.tar", 5, "e"]},
        {**TOLD, "entry": 5},
        {**TOLD, "documents": [5]},
        {**TOLD, "documents": 5},
    ],
)
def test_what_is_no_image_is_not_passed_on(lie: Any) -> None:
    with pytest.raises(EngineError, match="what it says about the image that it wrote for the others is no image"):
        images.saved(lie)


def test_an_image_that_needs_no_ray_asks_for_no_lock_of_it(tmp_path: Path) -> None:
    wanted = images.read_wanted({"image": PINNED, "requirements": str(tmp_path / "none.txt"), "ray": False})
    assert (wanted.image, wanted.pins) == (PINNED, [])
    with pytest.raises(EngineError, match="engine_image_requirements"):
        images.read_wanted({"image": PINNED, "requirements": str(tmp_path / "none.txt"), "ray": "yes"})
