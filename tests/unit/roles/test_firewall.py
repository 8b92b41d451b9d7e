# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role asks of the firewall, and what it does before the firewall changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import virtual_address
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.host_state import switched_off

ROLE = (
    next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists()) / "roles/firewall"
)


@pytest.mark.parametrize(
    ("given", "open_"),
    [
        ({}, False),
        ({"ansible_host": "192.168.1.11"}, False),
        ({"ansible_host": "spark-1a2b.local"}, True),
        ({"ansible_host": "spark-1a2b.Local."}, True),
        ({"ansible_host": "spark.local.example.org"}, False),
        ({"ansible_host": "local"}, False),
        ({"inventory_hostname": "spark-1a2b.local"}, True),
        ({"inventory_hostname": "spark-1a2b.local", "ansible_host": "192.168.1.11"}, False),
        ({"ansible_host": "spark-1a2b.local", "firewall_mdns": False}, False),
    ],
)
def test_multicast_dns_is_let_in_where_it_is_the_way_in(given: dict[str, Any], open_: bool) -> None:
    loader = DataLoader()
    values: dict[str, Any] = {"inventory_hostname": "spark-01"}
    values.update(loader.load(trust_as_template((ROLE / "defaults/main.yml").read_text())))
    templar = Templar(loader=loader, variables={**values, **given})
    assert templar.template(trust_as_template("{{ firewall_mdns }}")) is open_


def gives_up(host: str, declared: dict[str, Any], heads: list[str]) -> Any:
    """Whether a host gives the virtual address up that these heads are to have."""
    cluster = {"virtual": {"holders": [{"host": head, "address": head} for head in heads]}} if heads else {}
    values = trust_as_template((ROLE / "vars/main.yml").read_text())
    facts = {"sparkthor_node": {"declared": declared}}
    given = {"inventory_hostname": host, "sparkthor_cluster": cluster, "ansible_facts": facts}
    templar = Templar(loader=DataLoader(), variables={**DataLoader().load(values), **given})
    return templar.template(trust_as_template("{{ __firewall_gives_address_up }}"))


@pytest.mark.parametrize(
    ("host", "declared", "heads", "wanted"),
    [
        # nobody ever had one, or a head is about to get it
        ("a", {}, [], False),
        ("a", {"virtual": ""}, ["a", "b"], False),
        ("a", {"virtual": "192.168.1.100"}, ["a", "b"], False),
        # the variable was removed, or the host is no longer a head
        ("a", {"virtual": "192.168.1.100"}, [], True),
        ("c", {"virtual": "192.168.1.100"}, ["a", "b"], True),
    ],
)
def test_who_gives_the_virtual_address_up(host: str, declared: dict[str, Any], heads: list[str], wanted: bool) -> None:
    assert gives_up(host, declared, heads) is wanted


def test_keepalived_stops_before_the_firewall_closes() -> None:
    tasks = yaml.safe_load((ROLE / "tasks/main.yml").read_text(encoding="utf-8"))
    modules = [next(key for key in task if "." in key) for task in tasks]
    stop = tasks[modules.index("sparkthor.cluster.host_state")]
    assert modules.index("sparkthor.cluster.host_state") < modules.index("sparkthor.cluster.firewall_apply")
    assert "__firewall_gives_address_up" in stop["when"]
    assert stop["sparkthor.cluster.host_state"]["units"] == [switched_off(virtual_address.UNIT)]
