# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""drift.yml on two hosts: what the roles' own tasks say in check mode is what is shown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.border.conftest import Border, node

EDITED = "/etc/sysctl.d/60-sparkthor.conf"


def play(border: Border, *arguments: str, two: dict[str, Any] | None = None, **answers: Any) -> str:
    border.inventory(
        {name: {"ansible_host": f"192.0.2.{10 + number}"} for number, name in enumerate(("one", "two"))},
        fabric_topology="lan",
    )
    for number, host in enumerate(border.hosts):
        told = {"node_info": {"ansible_facts": {"sparkthor_node": node(number, **answers.get("facts", {}))}}}
        told |= {"host_state": {"changed": False, "diff": []}, "host_compare": {"converged": [], "drift": ""}}
        told["controller_lock"] = {"since": ""}
        border.answers(host, {**told, **((two or {}) if host == "two" else {})})
    return border.play("sparkthor.cluster.drift", "--tags=os_hardening", *arguments)


def shown(output: str) -> list[str]:
    """The lines of the table."""
    table = output.partition("TASK [Show what differs]")[2].partition("\n\n")[0]
    return [line.strip(' ",') for line in table.splitlines() if line.startswith("        ")]


@pytest.mark.parametrize("fails", [True, False])
def test_what_a_task_would_change_is_shown_with_its_host_and_role(border: Border, fails: bool) -> None:
    differs = {"changed": True, "diff": [{"before_header": EDITED, "after_header": EDITED, "before": "", "after": ""}]}
    output = play(border, "--check", "-e", f"drift_fail={fails}", two={"host_state": differs})
    assert shown(output) == [f"two: os_hardening: {EDITED}"], output
    assert ("1 differences from the plan" in output) is fails


def test_hosts_that_are_as_wanted_are_said_to_be(border: Border) -> None:
    output = play(border, "--check", "-e", "drift_fail=true")
    assert "nothing differs from the plan" in output, output
    assert "failed=0" in output


def test_what_only_the_comparison_saw_is_shown_as_well(border: Border) -> None:
    seen = {"converged": [], "drift": "ray_node: 1 of 2 nodes"}
    output = play(border, "--check", two={"host_compare": seen})
    assert shown(output) == ["two: ray_node: 1 of 2 nodes"], output


def test_a_host_that_was_renamed_is_shown(border: Border) -> None:
    declared = {"head": "one", "generation": 0, "seen": 0, "cluster": "", "hosts": ["one", "two"], "host": "one"}
    declared |= {"machines": {}, "topology": "lan", "executor": "ray", "virtual": "", "hostname": "spark-02"}
    output = play(border, "--check", facts={"hostname": "kitchen", "declared": declared})
    told = "its host name is kitchen; it was spark-02 when site.yml last set the host up"
    assert shown(output) == [f"one: {told}", f"two: {told}"], output


def test_without_check_mode_it_refuses_before_any_host_is_asked(border: Border) -> None:
    output = play(border)
    assert "Nothing was changed: drift.yml only reports; run it again with --check" in " ".join(output.split()), output
    assert all(not (folder / "asked.jsonl").read_text() for folder in border.hosts.values())
