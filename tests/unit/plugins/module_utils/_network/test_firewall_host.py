# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import firewall_host
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall import FirewallError
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall_host import Firewall

from tests.unit.clock import Clock
from tests.unit.firewall_machine import Machine, declared, replaced

DEFAULTS = {name: spec["default"] for name, spec in firewall_host.ARGUMENTS.items() if "default" in spec} | declared()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Machine:
    return replaced(tmp_path / "run", monkeypatch, clock)


def firewall(check: bool = False, **arguments: Any) -> Firewall:
    return Firewall({**DEFAULTS, "token": "t", **arguments}, check)


def test_a_listing_is_empty_without_a_table_and_an_error_where_nft_fails(machine: Machine) -> None:
    assert firewall().listing() == ""
    machine.table = "table inet sparkthor {\n}\n"
    assert firewall().listing() == machine.table
    machine.refuse = "list"
    with pytest.raises(FirewallError, match="nft cannot list the table inet sparkthor: Operation not permitted"):
        firewall().listing()


def test_a_started_change_waits_until_it_is_confirmed(machine: Machine) -> None:
    assert not Firewall.unconfirmed()
    assert firewall().start()["started"] is True
    assert Firewall.unconfirmed()
    with pytest.raises(FirewallError, match="no change of this run"):
        firewall(token="other").confirm()
    assert firewall().confirm() == {"changed": True, "confirmed": True}
    assert not Firewall.unconfirmed()
    assert machine.log[-2:] == ["disarm", "files"]


def test_an_unconfirmed_change_is_taken_back(machine: Machine) -> None:
    machine.table = before = "table inet sparkthor {\n}\n"
    firewall().start()
    assert machine.table != before
    firewall().take_back_unconfirmed()
    assert machine.table == before
    assert not machine.folder.exists()
    machine.log.clear()
    firewall().take_back_unconfirmed()
    assert machine.log == []
