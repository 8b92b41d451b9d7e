# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Host
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.originals import (
    LEDGER,
    Originals,
    keep_original,
)


@pytest.fixture
def on_disk(tmp_path: Path) -> Host:
    return Host(run=lambda argv, timeout: (0, "", ""), root=str(tmp_path))


def test_only_the_first_original_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("theirs")
    path.chmod(0o640)
    keep_original(str(path))
    path.write_text("edited later")
    keep_original(str(path))
    kept = tmp_path / "x.sparkthor-orig"
    assert kept.read_text() == "theirs"
    assert kept.stat().st_mode & 0o777 == 0o640


def test_a_link_is_kept_as_a_link(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("nowhere")
    keep_original(str(tmp_path / "x"))
    assert (tmp_path / "x.sparkthor-orig").readlink() == Path("nowhere")


def test_what_is_remembered_outlives_the_call_and_is_not_replaced(on_disk: Host) -> None:
    Originals(on_disk).remember("sysctls", "net.core.rmem_max", "212992")
    later = Originals(on_disk)
    later.remember("sysctls", "net.core.rmem_max", "67108864")
    later.remember("links", "/etc/x", None)
    assert later.recorded("sysctls", "net.core.rmem_max") == "212992"
    assert Originals(on_disk).entries("links") == {"/etc/x": None}
    assert Originals(on_disk).entries("units") == {}


def test_what_is_forgotten_is_gone(on_disk: Host) -> None:
    originals = Originals(on_disk)
    originals.forget("links", "/etc/x")
    assert not Path(on_disk.at(LEDGER)).exists(), "nothing to write"
    originals.remember("links", "/etc/x", None)
    originals.remember("links", "/etc/y", "elsewhere")
    originals.forget("links", "/etc/x")
    assert Originals(on_disk).entries("links") == {"/etc/y": "elsewhere"}
