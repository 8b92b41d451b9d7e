# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which serving groups stop for a reboot."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.playbooks.test_serve_again import tasks

GROUPS = {"cluster": ["a", "b", "c"], "big": ["a", "b"], "small": ["c"]}


def found(
    asking: set[str], beside: dict[str, Any] | None = None, playbook: str = "reboot", **given: Any
) -> dict[str, dict[str, Any]]:
    """Of a and c, which serve, what stops when these hosts ask for a reboot; groups ``beside`` are on a."""
    facts = {
        name: text
        for _hosts, task in tasks(playbook)
        for name, text in task.get("ansible.builtin.set_fact", {}).items()
    }
    told: dict[str, dict[str, Any]] = {}
    wanted, stops, away = (f"__{playbook}_{name}" for name in ("wanted", "stops", "beside"))
    hostvars = {host: {wanted: host in asking} for host in GROUPS["cluster"]}
    for head in ("a", "c"):
        more = {"beside": beside} if beside and head == "a" else {}
        variables = {
            **{name: trust_as_template(text) for name, text in facts.items() if name != wanted},
            "groups": GROUPS,
            "group_names": [name for name, members in GROUPS.items() if head in members],
            "hostvars": hostvars,
            wanted: head in asking,
            "__nodes": {"status": {"serving": {"model": "m", "maintenance": "", **more}}},
            **given,
        }
        templar = Templar(loader=DataLoader(), variables=variables)
        told[head] = {name: templar.template(variables[name]) for name in (stops, away)}
    return told


def test_an_update_stops_the_groups_of_its_hosts_alone() -> None:
    told = found({"c"}, BESIDE, "update", serving_groups=["big", "small"])
    assert told["a"] == {"__update_stops": False, "__update_beside": []}
    assert told["c"] == {"__update_stops": True, "__update_beside": []}
    told = found({"b"}, BESIDE, "update", serving_groups=["big", "small"])
    assert told["a"] == {"__update_stops": True, "__update_beside": []}
    assert found({"a"}, BESIDE, "update")["a"]["__update_beside"] == ["embed"]


def stopping(asking: set[str], **given: Any) -> list[str]:
    return [head for head, told in found(asking, **given).items() if told["__reboot_stops"]]


@pytest.mark.parametrize(("asking", "heads"), [(set(), []), ({"b"}, ["a"]), ({"c"}, ["c"]), ({"a", "c"}, ["a", "c"])])
def test_a_group_none_of_whose_hosts_asks_goes_on(asking: set[str], heads: list[str]) -> None:
    assert stopping(asking, serving_groups=["big", "small"]) == heads


def test_without_groups_all_hosts_serve_together() -> None:
    assert stopping({"b"}) == ["a", "c"]


BESIDE = {"embed": {"maintenance": ""}, "rerank": {"maintenance": "stopped by playbooks/stop.yml"}}


@pytest.mark.parametrize(("asking", "groups"), [({"a"}, ["embed"]), ({"b"}, []), ({"c"}, []), ({"a", "b"}, ["embed"])])
def test_a_group_beside_another_stops_with_its_host_alone(asking: set[str], groups: list[str]) -> None:
    """Nothing starts again that somebody had stopped before."""
    told = found(asking, BESIDE, serving_groups=["big", "small"])
    assert [told[head]["__reboot_beside"] for head in ("a", "c")] == [groups, []]


def test_groups_beside_are_drained_before_their_host_reboots_and_serve_after_its_own_one() -> None:
    names = [task["name"] for _hosts, task in tasks("reboot")]
    order = [
        *("Stop vLLM and pause the watchdog", "Stop the groups beside", "Reboot"),
        *("Wait for the first completion", "Start the groups beside"),
        "Wait for the first completion of the groups beside",
    ]
    assert sorted(order, key=names.index) == order
    beside = [task for _hosts, task in tasks("reboot") if task.get("loop") == "{{ __reboot_beside }}"]
    given = [task["sparkthor.cluster.vllm_service"] for task in beside]
    assert [one["state"] for one in given] == ["stopped", "started", "serving"]
    assert {one["group"] for one in given} == {"{{ item }}"}
    assert "default(300)" in given[0]["drain_timeout"]
