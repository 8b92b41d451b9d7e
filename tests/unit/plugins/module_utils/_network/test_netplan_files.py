# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files and links as they are recorded and made again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_files


@pytest.fixture
def link(tmp_path: Path) -> Path:
    """A link beside other netplan files to a file elsewhere."""
    (tmp_path / "site").mkdir()
    target = tmp_path / "site" / "fabric.yaml"
    target.write_text("network: {}\n")
    target.chmod(0o640)
    (tmp_path / "netplan").mkdir()
    link = tmp_path / "netplan" / "50-fabric.yaml"
    link.symlink_to("../site/fabric.yaml")
    return link


def test_a_link_is_recorded_with_what_it_leads_to(link: Path) -> None:
    state = netplan_files.read_state(str(link))
    assert state == {
        "content": "network: {}\n",
        "mode": 0o640,
        "uid": os.geteuid(),
        "gid": os.getegid(),
        "link": "../site/fabric.yaml",
    }
    assert json.loads(json.dumps(state)) == state, "it goes through plan.json"


def test_a_link_is_taken_away_set_aside_and_put_back_as_a_link(link: Path) -> None:
    state = netplan_files.read_state(str(link))
    aside = link.with_name(f"{link.name}.sparkthor-aside")
    assert netplan_files.write_state(str(aside), state)
    assert netplan_files.write_state(str(link), None)
    assert not os.path.lexists(link)
    assert os.readlink(aside) == "../site/fabric.yaml"
    assert aside.read_text() == "network: {}\n"
    assert netplan_files.write_state(str(link), state)
    assert os.readlink(link) == "../site/fabric.yaml"
    assert netplan_files.write_state(str(link), state) is False
    assert (link.parent.parent / "site" / "fabric.yaml").stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(link.parent)) == [link.name, aside.name]


def test_a_link_comes_back_in_place_of_a_file_and_the_other_way_round(link: Path) -> None:
    state = netplan_files.read_state(str(link))
    assert state
    assert netplan_files.write_state(str(link), netplan_files.plain(state, content="ours\n"))
    assert not link.is_symlink()
    assert link.read_text() == "ours\n"
    assert (link.parent.parent / "site" / "fabric.yaml").read_text() == "network: {}\n", "theirs is not written through"
    assert netplan_files.write_state(str(link), state)
    assert os.readlink(link) == "../site/fabric.yaml"


@pytest.mark.parametrize("gone", [False, True])
def test_what_it_leads_to_comes_back_too(link: Path, gone: bool) -> None:
    """Somebody edited or removed it while a change was armed that cut the host off."""
    state = netplan_files.read_state(str(link))
    target = link.parent.parent / "site" / "fabric.yaml"
    if gone:
        target.unlink()
    else:
        target.write_text("edited\n")
    assert netplan_files.read_state(str(link)) != state
    assert netplan_files.write_state(str(link), state)
    assert netplan_files.read_state(str(link)) == state
    assert not target.is_symlink()


@pytest.mark.parametrize("target", ["/dev/null", "nowhere"])
def test_a_link_to_no_file_is_a_link_all_the_same(tmp_path: Path, target: str) -> None:
    link = tmp_path / "50-masked.yaml"
    link.symlink_to(target)
    state = netplan_files.read_state(str(link))
    assert state
    assert (state["content"], state["link"]) == ("", target)
    assert netplan_files.write_state(str(link), None)
    assert os.listdir(tmp_path) == []
    assert netplan_files.write_state(str(link), state)
    assert os.readlink(link) == target


def test_a_folder_is_neither(tmp_path: Path) -> None:
    assert netplan_files.read_state(str(tmp_path)) is None
    assert netplan_files.read_state(str(tmp_path / "missing")) is None
