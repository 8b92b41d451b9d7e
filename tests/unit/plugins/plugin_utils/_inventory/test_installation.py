# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import installation


def place(top: Path) -> Path:
    folder = top / "ansible_collections" / "sparkthor" / "cluster"
    (folder / "plugins").mkdir(parents=True)
    return folder


def test_a_second_copy_is_named_after_the_one_in_use(tmp_path: Path) -> None:
    first, second = place(tmp_path / "first"), place(tmp_path / "second")
    paths = [str(tmp_path / "first"), str(tmp_path / "none"), str(tmp_path / "second" / "ansible_collections")]
    assert installation.copies(paths) == [str(first), str(second)]
    assert f"2 times: {first} (used), {second}; remove" in installation.warning([str(first), str(second)])


def test_a_link_to_the_copy_in_use_is_no_second_copy(tmp_path: Path) -> None:
    first = place(tmp_path / "first")
    (tmp_path / "linked" / "ansible_collections" / "sparkthor").mkdir(parents=True)
    (tmp_path / "linked" / "ansible_collections" / "sparkthor" / "cluster").symlink_to(first)
    (tmp_path / "empty" / "ansible_collections" / "sparkthor" / "cluster").mkdir(parents=True)
    found = installation.copies(str(tmp_path / name) for name in ("first", "linked", "empty"))
    assert found == [str(first)]
    assert installation.warning(found) == ""
