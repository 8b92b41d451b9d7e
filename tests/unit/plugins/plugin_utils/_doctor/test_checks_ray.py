# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks of Ray and of the units that serve."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor import diagnosis
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import Case, Serve
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.checks import CHECKS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.checks_ray import ray_absent

from tests.unit.plugins.plugin_utils._doctor.sound_cluster import RULES, ev, found, process, world


def container_memlock(case: Case) -> None:
    ev(case, "a")["processes"].append(process("worker", "ray::x", contained=True, memlock=65536))


def memlock_by_hand(case: Case) -> None:
    """A session's limit is 8 MiB where nobody raised it."""
    argv = ("vllm", "serve", "tiny", "--api-key", "x" * 32, "--nnodes=2", "--node-rank=1")
    ev(case, "b")["processes"].append(process("vllm", *argv, memlock=8 << 20))


def memlock_of_one_host(case: Case) -> None:
    ev(case, "b")["processes"].append(process("vllm", "vllm", "serve", "tiny", memlock=8 << 20, api_key="set"))


def memlock_of_a_unit(case: Case) -> None:
    """Its unit is judged by its own limit."""
    memlock_by_hand(case)
    ev(case, "b")["units"]["sparkthor-vllm.service"] = {
        **{"LoadState": "loaded", "UnitFileState": "enabled", "ActiveState": "active", "SubState": "running"},
        "LimitMEMLOCK": "infinity",
    }


def unit_in_restart_loop(case: Case) -> None:
    ev(case, "a")["units"]["sparkthor-vllm.service"] = {
        "LoadState": "loaded",
        "UnitFileState": "enabled",
        "ActiveState": "activating",
        "SubState": "auto-restart",
        "NRestarts": "7",
        "Result": "exit-code",
    }


def no_on_demand(case: Case) -> None:
    ev(case, "a")["units"]["sparkthor-on-demand.service"] = {
        "LoadState": "loaded",
        "UnitFileState": "enabled",
        "ActiveState": "failed",
        "SubState": "failed",
        "NRestarts": "0",
        "Result": "signal",
    }


def degraded(case: Case) -> None:
    state = {"state": "degraded", "updated": 1001.0, "line": "no completion for 40 s"}
    ev(case, "a")["files"]["state.json"] = json.dumps(state)


def embed(case: Case, state: str, **unit: str) -> None:
    """A group beside host a's own one."""
    told = {"state": state, "updated": 1001.0, "line": "no completion for 50 s"}
    ev(case, "a")["files"]["beside/embed/state.json"] = json.dumps(told)
    sound = {"LoadState": "loaded", "UnitFileState": "enabled", "ActiveState": "active", "SubState": "running"}
    ev(case, "a")["units"]["sparkthor-vllm-embed.service"] = {**sound, **unit}


def degraded_beside(case: Case) -> None:
    embed(case, "degraded")


def ended_beside(case: Case) -> None:
    embed(case, "loading", ActiveState="activating", SubState="auto-restart", NRestarts="7", Result="exit-code")


def stopped_beside(case: Case) -> None:
    embed(case, "degraded", ActiveState="inactive", SubState="dead")
    ev(case, "a")["files"]["beside/embed/maintenance"] = "stopped by playbooks/stop.yml"


def paused_and_ended_beside(case: Case) -> None:
    ended_beside(case)
    # of the host's own group
    ev(case, "a")["files"]["maintenance"] = "stopped by playbooks/stop.yml"


def a_rank_that_waits(case: Case) -> None:
    unit_in_restart_loop(case)
    units = ev(case, "b")["units"]
    units["sparkthor-vllm.service"] = ev(case, "a")["units"].pop("sparkthor-vllm.service")


def a_rank_of_a_stopped_group(case: Case) -> None:
    a_rank_that_waits(case)
    ev(case, "a")["files"]["maintenance"] = "stopped by playbooks/stop.yml"


def ray_lacks_a_node(case: Case) -> None:
    problem = {"code": "node_missing", "node": "b", "cause": "node b is not a member", "fix": "see b"}
    ev(case, "a")["ray"] = {"problems": [problem]}


def test_what_a_host_says_hides_nothing_of_another() -> None:
    case = world()
    lies = {"state": "degraded", "updated": "yesterday"}
    for host, state in (("a", lies), ("b", {**lies, "updated": 1001.0, "line": "no completion for 40 s"})):
        ev(case, host)["files"]["state.json"] = json.dumps(state)
    findings, notes = diagnosis.diagnose(RULES, CHECKS, case, [], "roce")
    assert [(one.rule.id, one.touches()) for one in findings] == [("serving-down", {"b"})]
    assert notes == [
        "rule serving-down could not be judged on a: ValueError: could not convert string to float: 'yesterday'"
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (container_memlock, [("memlock-limited", ("a",))]),
        (memlock_by_hand, [("memlock-limited", ("b",))]),
        (memlock_of_one_host, []),
        (memlock_of_a_unit, []),
        (unit_in_restart_loop, [("unit-down", ("a",))]),
        (a_rank_that_waits, [("unit-down", ("b",))]),
        (a_rank_of_a_stopped_group, []),
        (no_on_demand, [("unit-down", ("a",))]),
        (degraded, [("serving-down", ("a",))]),
        (degraded_beside, [("serving-down", ("a",))]),
        (ended_beside, [("unit-down", ("a",))]),
        (stopped_beside, []),
        (paused_and_ended_beside, [("unit-down", ("a",))]),
        (ray_lacks_a_node, [("ray-node-lost", ("b",))]),
    ],
)
def test_what_a_lab_cannot_lay(change: Callable[[Case], None], expected: list[Any]) -> None:
    case = world()
    change(case)
    assert found(case) == expected


def test_ray_is_missed_on_hosts_of_a_group_that_serves_by_it() -> None:
    case = world()
    case.serves = [Serve("a", "/etc/sparkthor/vllm.yaml", {"distributed-executor-backend": "ray"})]
    del ev(case, "b")["engine"]["versions"]["ray"]
    assert [hit.host for hit in ray_absent(case)] == ["b"]
    case.parts = [("big", ["a"], {}), ("alone", ["b"], {})]
    assert list(ray_absent(case)) == []
