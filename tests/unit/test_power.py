# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power goes, or a call fails, at any moment of our writers: what is found is the old or the new, and whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.action import cluster_secrets
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import former_head, rank_link, serving
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept

from tests.unit import power

OLD, NEW = "o" * 43, "n" * 43
MODULES = (files, serving, kept, cluster_secrets)


def successor(text: str) -> former_head.Successor:
    return former_head.Successor("b", 1 if text == OLD else 2, "x")


def good(folder: Path, text: str) -> None:
    one, two = folder.parent / "vllm.yaml", folder.parent / "vllm.env"
    one.write_text(text)
    two.write_text("A=1\n")
    kept.keep(text[:12], [str(one), str(two), str(folder.parent / "absent")], str(folder))


WRITERS: dict[str, tuple[Callable[[Path, str], Any], Callable[[Path], Any]]] = {
    "a file": (
        lambda folder, text: files.write_atomic(str(folder / "a"), text),
        lambda folder: (folder / "a").read_text(),
    ),
    "generation of the ranks": (
        lambda folder, text: rank_link.remember(str(folder / "generation.json"), 1 if text == OLD else 2),
        lambda folder: rank_link.remembered(str(folder / "generation.json")),
    ),
    "marker of a former head": (
        lambda folder, text: former_head.note(successor(text), str(folder / "superseded.json")),
        lambda folder: files.read_json(str(folder / "superseded.json")),
    ),
    "what served last": (good, lambda folder: [(one.name, one.items) for one in kept.read(str(folder))][:1]),
    "a secret": (
        lambda folder, text: cluster_secrets.keep(str(folder / "ray_token"), text),
        lambda folder: cluster_secrets.read_kept(str(folder / "ray_token")),
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kept").mkdir(mode=0o700)
    return tmp_path / "kept"


def both(folder: Path, name: str) -> tuple[Callable[[], Any], Callable[[], Any], set[str]]:
    """The writer of the new, the reader, and what it finds with the old and the new."""
    write, read = WRITERS[name]
    wanted = set()
    for text in (NEW, OLD):
        write(folder, text)
        wanted.add(repr(read(folder)))
    assert len(wanted) == 2
    return lambda: write(folder, NEW), lambda: read(folder), wanted


@pytest.mark.parametrize("name", WRITERS)
def test_power_loss_leaves_old_or_new(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    write, read, wanted = both(folder, name)
    if name == "a secret":
        # its reader refuses other modes than the writer's, which the states do not carry
        read = (folder / "ray_token").read_text
        wanted = {repr(f"{OLD}\n"), repr(f"{NEW}\n")}
    found = power.survives(folder, monkeypatch, MODULES, write, read)
    assert found == wanted


@pytest.mark.parametrize("name", WRITERS)
def test_a_call_that_fails_leaves_old_or_new(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    write, read, wanted = both(folder, name)
    if name == "a secret":
        read = (folder / "ray_token").read_text
        wanted = {repr(f"{OLD}\n"), repr(f"{NEW}\n")}

    def tries() -> None:
        try:
            write()
        except rank_link.GroupError as error:
            raise OSError(str(error)) from error

    calls, found = power.fails_at_every_call(folder, monkeypatch, MODULES, tries, read)
    assert calls >= 8
    assert found == wanted


@pytest.mark.parametrize("sync", [(), ("file",), ("folder",), ("file", "folder")])
def test_the_disk_tells_a_writer_that_forgets_to_sync(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sync: tuple[str, ...]
) -> None:
    """What power loss may leave of it is not only old or new, unless both are there."""
    path = folder / "a"
    path.write_text(json.dumps({"n": OLD}))

    def write() -> None:
        with files._inside(str(path)) as (place, name):
            handle = files.os.open(".a.new", files.os.O_WRONLY | files.os.O_CREAT, 0o600, dir_fd=place)
            with files.os.fdopen(handle, "w") as stream:
                stream.write(json.dumps({"n": NEW}))
                stream.flush()
                if "file" in sync:
                    files.os.fsync(handle)
            files.os.rename(".a.new", name, src_dir_fd=place, dst_dir_fd=place)
            if "folder" in sync:
                files.os.fsync(place)

    found = power.survives(folder, monkeypatch, (files,), write, lambda: files.read_json(str(path)).get("n"))
    assert ("None" in found) is ("file" not in sync)
    assert repr(OLD) in found
    assert repr(NEW) in found
