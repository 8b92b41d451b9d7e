# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The written inventory says what was proposed, and plans as it is."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery import inventory_text
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery.proposal import Proposal
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_inventory import fabric_problems

from tests.unit.plugins.plugin_utils._discovery.test_proposal import Lan


def read(found: Proposal, user: str = "nvidia", port: int = 22) -> tuple[dict, dict]:
    texts = inventory_text.files(found, user, port)
    return yaml.safe_load(texts["hosts.yml"]), yaml.safe_load(texts["group_vars/cluster.yml"])


@pytest.mark.parametrize("cage", [0, 1])
def test_a_pair(cage: int) -> None:
    hosts, variables = read(Lan("ab").join(("a", 1), ("b", cage)).propose())
    assert hosts["sparks"]["hosts"] == {"a": None, "b": None}
    head = hosts["cluster"]["children"]["ray_head"]["hosts"]
    workers = hosts["cluster"]["children"]["ray_workers"]["hosts"]
    assert variables["ansible_user"] == "nvidia"
    if cage == 1:
        assert variables["fabric_cage"] == 1
        assert (head, workers) == ({"a": {"ansible_host": "192.168.1.10"}}, {"b": {"ansible_host": "192.168.1.11"}})
    else:
        assert "fabric_cage" not in variables
        assert (head["a"]["fabric_cage"], workers["b"]["fabric_cage"]) == (1, 0)
    cages = {"a": 1, "b": cage}
    assert fabric_problems(variables["fabric_topology"], ["a", "b"], variables["fabric_cidr"], cages) == []


def test_a_lan_with_a_thor_on_another_port() -> None:
    hosts, variables = read(Lan("a", thors="t").propose(), user="", port=2222)
    assert hosts["thors"]["hosts"] == {"t": None}
    assert (variables["fabric_topology"], variables["ansible_port"]) == ("lan", 2222)
    assert "fabric_cidr" not in variables
    assert "ansible_user" not in variables


def test_one_machine_alone_has_no_workers() -> None:
    hosts, _variables = read(Lan("a").propose())
    assert hosts["cluster"]["children"]["ray_workers"]["hosts"] == {}


def test_who_is_left_out_stands_in_the_file() -> None:
    text = inventory_text.files(Lan("ab", thors="t").join(("a", 1), ("b", 1)).propose(), "", 22)["hosts.yml"]
    assert "# Left out: t (192.168.1.12): a Thor has no RDMA NIC" in text
