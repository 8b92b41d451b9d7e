# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a new kind of address or serving group has to visit.

Older code does not know a later feature: so every kind is listed here with each visitor and its answer. Whoever adds a
kind adds a row, and whoever adds a visitor adds a column; a cell that is missing fails.
"""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import evidence
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import node as node_facts
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    netplan_generator,
    netplan_inspect,
    netplan_live,
    netplan_others,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.places import BESIDE, ETC, Places
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery.proposal import Machine, once
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import shared_nic
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.teardown import TeardownSettings, plan_teardown

from tests.unit.netplan import GLOBAL, LINK, files, live_link

MANAGEMENT, VIRTUAL, FABRIC, STRANGER = "10.83.0.11/24", "10.83.0.100/24", LINK["address"], "10.83.0.77/24"
#: kinds of address on a host: whether it is the host's own, so that it has to be there and stay
ADDRESSES = {"management": MANAGEMENT, "fabric": FABRIC, "virtual": VIRTUAL, "stranger": STRANGER}
NIC = {"management": "enP7s7", "fabric": LINK["netdev"], "virtual": "enP7s7", "stranger": "enP7s7"}


def a_change_stops_at_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Preflight's probe, the role's change, its comparison, drift and teardown all ask ``inspect``."""
    generated = files("1.1.2", "networkd", "planned")
    monkeypatch.setattr(netplan_generator, "source_files", dict)
    monkeypatch.setattr(netplan_generator, "generate", lambda given, generator="": generated if given else {})
    monkeypatch.setattr(netplan_others, "static_settings", lambda: {"/etc/systemd/network/1.network": MANAGED})
    monkeypatch.setattr(job, "generated_files", lambda root="": generated)
    live = {"enP7s7": live_link({MANAGEMENT: GLOBAL}), LINK["netdev"]: live_link({FABRIC: GLOBAL})}
    live[NIC[kind]]["addresses"][ADDRESSES[kind]] = GLOBAL
    monkeypatch.setattr(job, "live_links", lambda: live)
    found = netplan_inspect.inspect("/etc/netplan/40-cx7.yaml", [LINK], floating=[VIRTUAL])["findings"]
    return "runtime_address" in {item.id for item in found}


MANAGED = f"[Match]\nName=enP7s7\n[Network]\nAddress={MANAGEMENT}\n"


def a_rollback_misses_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Also what a confirmation takes for the loss of the way in."""
    from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_change

    address, nic = ADDRESSES[kind], NIC[kind]
    recorded = netplan_change._lasting({nic: live_link({address: GLOBAL})}, ["10.83.0.100"])
    return bool(netplan_live.missing_addresses(recorded, {nic: live_link()}, nic))


def a_rollback_removes_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Where it came to a NIC of ours while the change was armed."""
    plan = {"live": {"fab0": live_link()}, "floating": ["10.83.0.100"]}
    return bool(netplan_live.strange_addresses(plan, "fab0", {"fab0": live_link({ADDRESSES[kind]: GLOBAL})}))


def discovery_proposes_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    bare = ADDRESSES[kind].partition("/")[0]
    facts = {
        "boot_id": "b",
        "kind": "spark",
        "declared": {"virtual": "10.83.0.100"},
        "management": {"netdev": "enP7s7"},
    }
    found, _notes = once([Machine(bare, copy.deepcopy(facts)), Machine("10.83.0.12", copy.deepcopy(facts))])
    return found[0].address == bare


def a_lan_takes_it_for_the_hosts(kind: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    addresses = [{"address": one, "family": "inet", "scope": "global"} for one in (ADDRESSES[kind], "10.83.0.12/24")]
    node = {
        "management": {"netdev": "eth0", "cidr": "10.0.0.1/24"},
        "interfaces": [{"name": "eth9", "addresses": addresses}],
        "declared": {"virtual": "10.83.0.100"},
    }
    return shared_nic("a", "lan", {"fabric_lan_nic": "eth9"}, node)[1] == ADDRESSES[kind]


def facts_take_it_for_the_way_in(kind: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    addresses = [{"address": one, "family": "inet"} for one in (ADDRESSES[kind], "10.83.0.12/24")]
    routes = [{"dst": "default", "dev": "eth0"}]
    found = node_facts.management_of("", [{"name": "eth0", "addresses": addresses}], routes, "10.83.0.100")
    return found["cidr"] == ADDRESSES[kind]


#: visitor → its answer by kind of address
ADDRESS_VISITORS: dict[Callable[[str, pytest.MonkeyPatch], bool], dict[str, bool]] = {
    a_change_stops_at_it: {"management": False, "fabric": False, "virtual": False, "stranger": True},
    a_rollback_misses_it: {"management": True, "fabric": True, "virtual": False, "stranger": True},
    a_rollback_removes_it: {"management": True, "fabric": True, "virtual": False, "stranger": True},
    discovery_proposes_it: {"management": True, "fabric": True, "virtual": False, "stranger": True},
    a_lan_takes_it_for_the_hosts: {"management": True, "fabric": True, "virtual": False, "stranger": True},
    facts_take_it_for_the_way_in: {"management": True, "fabric": True, "virtual": False, "stranger": True},
}


@pytest.mark.parametrize("kind", ADDRESSES)
@pytest.mark.parametrize("visitor", ADDRESS_VISITORS, ids=lambda visitor: visitor.__name__)
def test_every_visitor_has_an_answer_to_every_kind_of_address(
    visitor: Callable[[str, pytest.MonkeyPatch], bool], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert visitor(kind, monkeypatch) is ADDRESS_VISITORS[visitor][kind]


#: kinds of serving group on a host
GROUPS = {"own": Places(), "beside": Places("small")}


def a_teardown_takes_its_units(group: Places, _root: Path) -> bool:
    settings = TeardownSettings(teardown_parts="serving", serving_beside={"small": {}})
    state = plan_teardown(settings, True)["state"]
    taken = {unit["name"] for unit in state["units"]}
    files = {f"/etc/systemd/system/{unit}" for unit in (group.unit, group.watchdog)}
    return {group.unit, group.watchdog} <= taken and files <= set(state["restore"])


def a_teardown_takes_its_settings(group: Places, _root: Path) -> bool:
    state = plan_teardown(TeardownSettings(teardown_parts="serving"), True)["state"]
    absent = {str(item) for item in state["absent"]}
    paths = (group.config, group.vllm_config, group.environment)
    return all(
        path in absent or (f"{ETC}/{BESIDE}" in absent and path.startswith(f"{ETC}/{BESIDE}/")) for path in paths
    )


def evidence_asks_for_its_units(group: Places, root: Path) -> bool:
    asked = {*evidence.UNITS, *node_facts.units_beside(str(root))}
    return {group.unit, group.watchdog} <= asked


def a_rollback_brings_its_command_back(group: Places, _root: Path) -> bool:
    return group == Places() or fnmatch.fnmatchcase(group.vllm_config, kept.BESIDE)


GROUP_VISITORS = (
    a_teardown_takes_its_units,
    a_teardown_takes_its_settings,
    evidence_asks_for_its_units,
    a_rollback_brings_its_command_back,
)


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize("visitor", GROUP_VISITORS, ids=lambda visitor: visitor.__name__)
def test_every_visitor_knows_every_kind_of_group(
    visitor: Callable[[Places, Path], bool], kind: str, tmp_path: Path
) -> None:
    (tmp_path / ETC.lstrip("/") / BESIDE / "small").mkdir(parents=True)
    assert visitor(GROUPS[kind], tmp_path)
