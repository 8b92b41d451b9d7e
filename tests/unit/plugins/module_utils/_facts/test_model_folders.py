# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which models lie on a host; users' own caches are among them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import model_folders


def hub(root: Path) -> Path:
    """A model as the hub's own client keeps it."""
    folder = root / "home/eve/.cache/huggingface/hub/models--a--b"
    for name in ("blobs", "refs", "snapshots/0a", ".no_exist/0a"):
        (folder / name).mkdir(parents=True)
    (folder / "refs/main").write_text("0a1b2c\n")
    (folder / "blobs/e3").write_text("{}")
    (folder / ".no_exist/0a/x").write_text("")
    (folder / "snapshots/0a/config.json").symlink_to("../../blobs/e3")
    (folder / "snapshots/0a/model.safetensors").symlink_to("../../blobs/gone")
    return folder


def read(root: Path) -> tuple[list[dict], bool]:
    return model_folders.read([f"{root}/home/*/.cache/huggingface/hub"], str(root))


def test_a_cache_of_the_hub(tmp_path: Path) -> None:
    hub(tmp_path)
    assert read(tmp_path) == (
        [
            {
                "name": "models--a--b",
                "path": "/home/eve/.cache/huggingface/hub/models--a--b",
                "folders": [],
                "files": 3,
                "broken": ["snapshots/0a/model.safetensors"],
                "broken_count": 1,
                "revision": "0a1b2c",
            }
        ],
        True,
    )


def test_a_link_that_leads_out_of_the_model_tells_nothing(tmp_path: Path) -> None:
    folder = hub(tmp_path)
    (tmp_path / "secret").write_text("x")
    for name, target in (("there", tmp_path / "secret"), ("not", tmp_path / "nothing"), ("up", "../../../../../x")):
        (folder / "snapshots/0a" / name).symlink_to(target)
    (found,), _whole = read(tmp_path)
    assert (found["files"], found["broken_count"]) == (6, 1)


def test_what_is_no_revision_is_none(tmp_path: Path) -> None:
    folder = hub(tmp_path)
    for text in ("a\x1b[2Jb", "two\nlines", "x" * 200, ""):
        (folder / "refs/main").write_text(text)
        assert read(tmp_path)[0][0]["revision"] == ""


@pytest.mark.parametrize("wide", [True, False])
def test_as_many_files_or_folders_as_anybody_likes_end_it_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wide: bool
) -> None:
    folder = hub(tmp_path)
    monkeypatch.setattr(model_folders, "FILES", 50)
    place = folder
    for number in range(100):
        place = folder if wide else place / "d"
        (place / f"d{number}" if wide else place).mkdir()
    found, whole = read(tmp_path)
    assert ([model["name"] for model in found], whole) == (["models--a--b"], False)


def test_a_path_longer_than_the_kernel_takes_ends_nothing(tmp_path: Path) -> None:
    folder = hub(tmp_path)
    here = os.getcwd()
    try:
        os.chdir(folder)
        for _number in range(30):
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
    finally:
        os.chdir(here)
    assert read(tmp_path)[0][0]["revision"] == "0a1b2c"
