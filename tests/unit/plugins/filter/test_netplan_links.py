# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.filter.fabric_plan import FilterModule as Plan
from ansible_collections.sparkthor.cluster.plugins.filter.netplan_links import FilterModule

links = FilterModule().filters()["netplan_links"]


def test_ring_host_has_one_peer_on_each_of_its_four_links() -> None:
    management = {"a": "192.0.2.1/24", "b": "192.0.2.2/24", "c": "192.0.2.3/24"}
    plan = Plan().filters()["fabric_plan"](list(management), "ring", cidr="10.100.0.0/16", management=management)
    found = links(plan, "b")
    assert len(found) == 4
    assert sorted(peer["host"] for link in found for peer in link["peers"]) == ["a", "a", "c", "c"]
    assert all(len(link["peers"]) == 1 for link in found)


def test_switch_host_has_everybody_on_both_halves() -> None:
    plan = Plan().filters()["fabric_plan"](["a", "b", "c", "d"], "switch", cidr="10.100.0.0/16")
    assert [[peer["host"] for peer in link["peers"]] for link in links(plan, "c")] == [["a", "b", "d"]] * 2


@pytest.mark.parametrize("plan", [{}, None, {"b": {"links": []}}])
def test_no_plan_is_an_error(plan: object) -> None:
    with pytest.raises(AnsibleFilterError, match="no plan for host a"):
        links(plan, "a")
