# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's container image: an archive that Docker and the collection read, the same bytes from the same inputs."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
for folder in (TOP / "lab" / "engine", TOP / "plugins" / "module_utils"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

# after the path was set: these are programs in a folder, not a package, so the import cannot stand at the top
import image  # noqa: E402
import prepare  # noqa: E402
from _engine import pins as engine_pins  # noqa: E402


def tree(folder: Path, when: int) -> Path:
    for path, text in (
        ("usr/bin/tool", "run"),
        ("etc/conf", "x=1"),
        ("tmp/scratch", "no"),
        ("usr/__pycache__/a", "no"),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        os.utime(folder / path, (when, when))
    return folder


def test_a_layer_depends_on_its_files_alone(tmp_path: Path) -> None:
    first = image.write_layer(str(tree(tmp_path / "a", 1_000)), str(tmp_path / "1"), ["tmp"])
    second = image.write_layer(str(tree(tmp_path / "b", 2_000)), str(tmp_path / "2"), ["tmp"])
    assert first == second
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    plain = subprocess.run(["zstd", "-dc", str(tmp_path / "1")], capture_output=True, check=True).stdout
    assert first[1] == f"sha256:{hashlib.sha256(plain).hexdigest()}"
    (tmp_path / "plain").write_bytes(plain)
    with tarfile.open(tmp_path / "plain") as archive:
        names = archive.getnames()
    assert "./usr/bin/tool" in names
    assert "./etc/conf" in names
    assert not [name for name in names if "scratch" in name or "__pycache__" in name]


def test_the_archive_says_first_what_it_holds(tmp_path: Path) -> None:
    layer = (str(tmp_path / "layer"), *image.write_layer(str(tree(tmp_path / "a", 1)), str(tmp_path / "layer")))
    digest = image.write_archive(str(tmp_path / "image.tar"), [layer])
    with tarfile.open(tmp_path / "image.tar") as archive:
        members = archive.getmembers()
        manifest = json.loads(archive.extractfile(members[0]).read())
        config = archive.extractfile(members[1]).read()
    assert manifest == [{"Config": members[1].name, "RepoTags": [image.NAME], "Layers": [members[2].name]}]
    assert digest == f"sha256:{hashlib.sha256(config).hexdigest()}"
    assert json.loads(config)["rootfs"]["diff_ids"] == [layer[2]]
    assert image.write_archive(str(tmp_path / "again.tar"), [layer]) == digest


def test_a_layer_that_cannot_be_packed(tmp_path: Path) -> None:
    with pytest.raises(prepare.PrepareError, match="failed while the image's layer was made"):
        image.write_layer(str(tmp_path / "absent"), str(tmp_path / "layer"))


def test_what_ray_alone_wants_is_left_out_and_can_be_added_again() -> None:
    """The image lacks Ray; the lock that adds it has everything the image does not."""
    locks = {}
    for name in ("lab-cp311-x86_64.txt", "lab-ray-cp311-x86_64.txt"):
        path = TOP / "requirements" / "engine" / name
        locks[name] = {pin.name: pin.version for pin in engine_pins.parse_lock(path.read_text(), str(path))}
    whole, ray = locks["lab-cp311-x86_64.txt"], locks["lab-ray-cp311-x86_64.txt"]
    assert set(ray) >= image.RAYS_ALONE
    assert all(whole.get(name) == version for name, version in ray.items()), "one version of everything"
    image_has = set(whole) - image.RAYS_ALONE
    assert "ray" not in image_has
    assert set(ray) <= image_has | image.RAYS_ALONE


def test_the_locks_of_ray_are_those_of_the_engine() -> None:
    """A package that comes with Ray has the version that the same engine has in a virtual environment."""
    folder = TOP / "requirements" / "engine"
    engine, ray = (
        {pin.name: pin.version for pin in engine_pins.parse_lock((folder / name).read_text(), name)}
        for name in ("cuda13-cp312-aarch64.txt", "ray-cp312-aarch64.txt")
    )
    assert {name: version for name, version in ray.items() if engine.get(name) != version} == {}


def test_the_image_has_its_place_in_the_cache(tmp_path: Path) -> None:
    assert image.paths(str(tmp_path)) == str(tmp_path / "images" / f"vllm-{image.digest()}.tar")
