# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What came with an installation is known, and goes when apt says that nothing else needs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Host
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.originals import Originals
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.packages import Packages
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import HostStateError

from tests.unit.apt import Apt


@pytest.fixture
def apt() -> Apt:
    return Apt()


@pytest.fixture
def packages(apt: Apt, tmp_path: Path) -> Packages:
    return Packages(apt.run, Originals(Host(run=apt.run, root=str(tmp_path))))


def installed(packages: Packages, apt: Apt, name: str, *depends: str) -> list[str]:
    packages.note()
    apt.install(name, *depends)
    return packages.record([name])


def test_what_came_goes_again(packages: Packages, apt: Apt) -> None:
    before = packages.installed()
    assert "former" not in before
    assert installed(packages, apt, "nginx", "nginx-common", "zlib") == ["nginx", "nginx-common"]
    assert packages.removable() == ["nginx", "nginx-common"]
    packages.remove(packages.removable())
    # zlib was there before, and what was unneeded already is not ours to clean up
    assert packages.installed() == before
    assert packages.removable() == []


def test_what_was_there_is_not_recorded(packages: Packages, apt: Apt) -> None:
    apt.install("nginx", "nginx-common")
    assert installed(packages, apt, "nginx", "nginx-common") == []
    assert packages.removable() == []


def test_what_somebody_else_needs_now_stays(packages: Packages, apt: Apt) -> None:
    installed(packages, apt, "nginx", "nginx-common")
    installed(packages, apt, "ninja")
    apt.install("theirs", "nginx")
    assert packages.removable() == ["ninja"]
    packages.remove(["ninja"])
    assert {"nginx", "nginx-common", "theirs"} <= packages.installed()
    # and goes when they are gone
    del apt.needs["theirs"]
    assert packages.removable() == ["nginx", "nginx-common"]


def test_a_run_that_died_between_note_and_record(packages: Packages, apt: Apt) -> None:
    packages.note()
    apt.install("nginx")
    packages.note()
    assert packages.record(["nginx"]) == ["nginx"]
    assert packages.record(["nginx"]) == [], "nothing is noted"


def test_apt_that_fails_is_said(packages: Packages, apt: Apt) -> None:
    installed(packages, apt, "nginx")
    apt.broken = True
    with pytest.raises(HostStateError, match="Could not get lock"):
        packages.removable()
