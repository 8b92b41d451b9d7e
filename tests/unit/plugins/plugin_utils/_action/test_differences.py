# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``drift.yml`` is told by the results of the roles' own tasks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import base, differences

ROLE = "sparkthor.cluster.os_hardening"


def shell(line: str) -> dict[str, Any]:
    return {"stdout": subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True).stdout}


def noted(result: dict[str, Any], **variables: Any) -> list[dict[str, str]]:
    given = {"__drift_report": True, "ansible_role_name": ROLE, **variables}
    facts = differences.noted(result, given, "Do it", shell).get("ansible_facts") or {}
    assert all(name.startswith("sparkthor_drift_") for name in facts)
    return list(facts.values())


def told(result: dict[str, Any], **variables: Any) -> list[str]:
    return [found["what"] for found in noted(result, **variables)]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"changed": False}, []),
        ({"changed": True}, ["Do it"]),
        # a run that fails says itself why
        ({"changed": True, "failed": True}, []),
        ({"changed": True, "diff": [{"after_header": "/no/a"}, {"before_header": "unit b"}]}, ["/no/a, unit b"]),
        ({"changed": True, "diff": {"after_header": "/no/a"}, "problems": ["ray: absent"]}, ["/no/a, ray: absent"]),
        ({"changed": False, "needs_change": True, "diff": [{"after_header": "live links"}]}, ["live links"]),
        ({"changed": False, "verified": False, "links": [{"problems": ["p0: no answer"]}]}, ["p0: no answer"]),
        ({"changed": False, "ready": False, "line": "no answer yet"}, ["no answer yet"]),
        ({"changed": False, "ready": True, "verified": True}, []),
        ({"changed": True, "deferred_units": {"sparkthor-ray.service": "restart"}}, ["sparkthor-ray.service"]),
    ],
)
def test_what_a_result_says(result: dict[str, Any], expected: list[str]) -> None:
    assert told(result) == expected
    assert told(result, __drift_report=False) == []


def test_the_newest_file_tells_since_when(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    os.utime(tmp_path / "a", (86400, 86400))
    paths = [f"{tmp_path}/a (attributes)", f"{tmp_path}/absent", "unit x", "/tmp/$(false)"]
    result = {"changed": True, "diff": [{"after_header": path} for path in paths]}
    [found] = noted(result)
    assert (found["role"], found["since"]) == ("os_hardening", "1970-01-02 00:00:00Z")


def test_a_host_cannot_make_a_shell_of_a_path() -> None:
    lines: list[str] = []

    def run(line: str) -> dict[str, Any]:
        lines.append(line)
        return {"stdout": "99999999999999999999 x -1"}

    result = {"changed": True, "diff": [{"after_header": "/etc/x;reboot"}, {"after_header": "/etc/y"}]}
    facts = differences.noted(result, {"__drift_report": True}, "Do it", run)["ansible_facts"]
    assert lines == ["stat -c %Y -- /etc/y 2>/dev/null; true"]
    assert [found["since"] for found in facts.values()] == [""]


def test_facts_of_an_action_stay_and_those_of_a_loops_items_are_apart() -> None:
    given = {"__drift_report": True}
    one = differences.noted({"changed": True, "ansible_facts": {"x": 1}}, given, "One", shell)["ansible_facts"]
    two = differences.noted({"changed": True}, given, "Two", shell)["ansible_facts"]
    assert one["x"] == 1
    assert len({**one, **two}) == 3


class Changing(base.Action):
    def act(self, _arguments: dict[str, Any]) -> dict[str, Any]:
        return {"changed": True}


@pytest.mark.parametrize(
    ("check", "once", "expected"), [(True, False, True), (False, False, False), (True, True, False)]
)
def test_every_action_tells_it_of_its_host_in_check_mode_alone(check: bool, once: bool, expected: bool) -> None:
    task = MagicMock(async_val=0, check_mode=check, diff=False, run_once=once, args={})
    task.name = "Do it"
    action = Changing(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    result = action.run(task_vars={"inventory_hostname": "a", "__drift_report": True})
    assert ("ansible_facts" in result) is expected
