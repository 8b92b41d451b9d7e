# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import kept_nodes

HOSTS = {"a": "192.0.2.1", "b": "192.0.2.2"}
NODES = {"a": {"kind": "spark", "clock": 1.0}, "b": {"kind": "thor", "clock": 1.0}}


def place(tmp_path: Path, hosts: dict[str, str] | None = None, inventory: str = "/i") -> str:
    return kept_nodes.path_of(hosts or HOSTS, inventory, {"XDG_CACHE_HOME": str(tmp_path)})


def test_each_cluster_has_a_file_of_its_own(tmp_path: Path) -> None:
    assert place(tmp_path) == place(tmp_path, dict(reversed(HOSTS.items())))
    assert place(tmp_path) != place(tmp_path, inventory="/other")
    assert place(tmp_path) != place(tmp_path, {**HOSTS, "b": "192.0.2.3"})
    assert place(tmp_path) != place(tmp_path, {"a": "192.0.2.1"})


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = place(tmp_path)
    assert kept_nodes.read(path, list(HOSTS)) is None
    kept_nodes.write(path, NODES)
    assert kept_nodes.read(path, ["b", "a"]) == NODES
    assert kept_nodes.read(path, ["a"]) is None
    assert [entry.name for entry in Path(path).parent.iterdir()] == [Path(path).name]


def test_a_clock_alone_writes_nothing(tmp_path: Path) -> None:
    path = place(tmp_path)
    kept_nodes.write(path, NODES)
    before = Path(path).stat().st_ino
    kept_nodes.write(path, {**NODES, "a": {**NODES["a"], "clock": 9.0}})
    assert Path(path).stat().st_ino == before
    kept_nodes.write(path, {**NODES, "a": {**NODES["a"], "kind": "thor"}})
    assert Path(path).stat().st_ino != before


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1, "b": {}}', '{"a": {}}'])
def test_a_spoilt_file_is_none(tmp_path: Path, text: str) -> None:
    path = Path(place(tmp_path))
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert kept_nodes.read(str(path), list(HOSTS)) is None


def test_a_controller_that_cannot_keep_them_goes_on(tmp_path: Path) -> None:
    (tmp_path / "sparkthor").write_text("a file where the folder should be")
    kept_nodes.write(place(tmp_path), NODES)
