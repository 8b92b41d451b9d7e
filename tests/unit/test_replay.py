# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An archive that an owner attached to an issue becomes hosts again: facts, plan and the doctor's diagnosis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible_collections.sparkthor.cluster.plugins.action import capture as capture_action
from ansible_collections.sparkthor.cluster.plugins.action import doctor
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import capture
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.anonymous import Anonymous
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import plan_cluster

from tests.unit import replay
from tests.unit.plugins.module_utils._facts.test_capture import SYSTEM, run, spark

GROUPS = {"cluster": ["a", "b"], "ray_head": ["a"], "ray_workers": ["b"]}


def asked_of(number: int) -> Any:
    """What commands print on the two machines: each has an address of its own."""

    def answer(argv: list[str]) -> tuple[int, str, str]:
        rc, out, err = run(argv)
        return rc, out.replace("192.168.1.11", f"192.168.1.1{number}"), err

    return answer


@pytest.fixture
def hosts(tmp_path: Path) -> dict[str, replay.Replay]:
    """Two Sparks, captured and packed by the playbook's own steps, and unpacked elsewhere."""
    registered: dict[str, Any] = {}
    for number, name in enumerate(GROUPS["cluster"], 1):
        root = tmp_path / "real" / name
        spark(root)
        if name == "b":
            sick = Path(__file__).parents[1] / "fixtures/captured/meminfo-gb10-kernel7-cma-signature.txt"
            (root / "proc/meminfo").write_text(sick.read_text())
        bundle = capture.capture(asked_of(number), Anonymous("key"), str(root))
        bundle["platform"] = {**SYSTEM, "node": name}
        kernel = "7.0.0-1019-nvidia" if name == "b" else "6.17.0-1032-nvidia"
        log = {"name": "kernel", "text": f"[    0.000000] Linux version {kernel} (buildd) #1-Ubuntu SMP\n"}
        evidence = {"started": 10.0, "ended": 12.0, "seconds": 2.0, "logs": [log]}
        registered[name] = {"__capture": {"capture": json.loads(json.dumps({"bundle": bundle, "evidence": evidence}))}}
    path = tmp_path / "capture.tar.gz"
    task = MagicMock(async_val=0, check_mode=False, diff=False, args={"read": "__capture", "path": str(path)})
    action = capture_action.ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    action.run(task_vars={"hostvars": registered, "ansible_play_hosts_all": GROUPS["cluster"]})
    return replay.archive(path, tmp_path / "replayed")


def inventory(number: int) -> dict[str, Any]:
    return {"ansible_host": f"192.168.1.1{number}", "fabric_topology": "direct", "fabric_cidr": "10.100.0.0/16"}


def test_the_hosts_of_an_archive_are_planned_like_the_hosts_themselves(hosts: dict[str, replay.Replay]) -> None:
    assert list(hosts) == GROUPS["cluster"]
    nodes = {name: host.node() for name, host in hosts.items()}
    assert [(node["kind"], node["hostname"]) for node in nodes.values()] == [("spark", "a"), ("spark", "b")]
    hostvars = {name: inventory(number) for number, name in enumerate(hosts, 1)}
    cluster, fabric, _warnings = plan_cluster(GROUPS, list(hosts), hostvars, nodes)
    assert (cluster["topology"], cluster["head"], cluster["profile"]) == ("direct", "a", "roce")
    assert [fabric[name]["management_address"] for name in hosts] == ["192.168.1.11", "192.168.1.12"]


def test_the_doctor_judges_an_archive(hosts: dict[str, replay.Replay]) -> None:
    hostvars = {
        name: {**inventory(number), "__doctor_evidence": host.registered()}
        for number, (name, host) in enumerate(hosts.items(), 1)
    }
    task = MagicMock(async_val=0, check_mode=False, diff=False, args={"evidence": "__doctor_evidence"})
    action = doctor.ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    told = action.run(task_vars={"hostvars": hostvars, "groups": GROUPS, "ansible_play_hosts_all": GROUPS["cluster"]})[
        "doctor"
    ]
    assert {name: state["state"] for name, state in told["hosts"].items()} == {"a": "read", "b": "read"}
    by_rule = {item["rule"]: item["hosts"] for item in told["findings"]}
    assert by_rule["kernel-keeps-memory"] == ["b"]
