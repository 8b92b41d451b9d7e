# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a head keeps what doctor.yml and drift.yml found, and how."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import console_service, last_checks

from tests.unit.playbooks.test_tune import holds, said
from tests.unit.plays import PLAYBOOKS, plays

WHOLE: dict[str, Any] = {
    **{"groups": {"cluster": ["a", "b"]}, "inventory_hostname": "a", "ansible_play_hosts": ["a", "b"]},
    **{"ansible_play_hosts_all": ["localhost", "a", "b"], "ansible_run_tags": ("all",), "ansible_skip_tags": ()},
    "__doctor_said": {"hosts": {"a": {"state": "read"}, "b": {"state": "away"}}},
}


def keeping(name: str) -> dict[str, Any]:
    """The task that keeps what this playbook found."""
    tasks = [task for play in plays(name) for task in play.get("tasks", ())]
    tasks += [inner for task in tasks for inner in task.get("always", ())]
    [found] = [task for task in tasks if task.get("ansible.builtin.import_tasks") == "tasks/keep_check.yml"]
    return found


@pytest.mark.parametrize(
    ("name", "given", "keeps"),
    [
        ("doctor", {}, True),
        ("doctor", {"inventory_hostname": "b"}, False),
        ("doctor", {"inventory_hostname": "localhost"}, False),
        # with --limit
        ("doctor", {"ansible_play_hosts_all": ["localhost", "a"]}, False),
        ("drift", {}, True),
        ("drift", {"ansible_play_hosts": ["a"]}, False),
        ("drift", {"ansible_run_tags": ("firewall",)}, False),
        ("drift", {"ansible_skip_tags": ["engine"]}, False),
    ],
)
def test_what_a_part_of_the_cluster_told_is_not_kept_as_of_all(name: str, given: dict[str, Any], keeps: bool) -> None:
    assert holds(keeping(name)["when"], **{**WHOLE, **given}) is keeps


def test_the_file_is_whole_and_roots_alone(tmp_path: Path) -> None:
    [task] = yaml.safe_load((PLAYBOOKS / "tasks/keep_check.yml").read_text(encoding="utf-8"))
    arguments = task["sparkthor.cluster.host_builtin"]["arguments"]
    # where there is no page, the role removes such a file
    assert arguments["removes"] == console_service.CONFIG
    told = {"taken": "2026-11-21T08:00:00Z", "lines": ["a: firewall: closed"]}
    text = said(arguments["stdin"], keep_check_found=told)
    path = tmp_path / last_checks.FOLDER.lstrip("/") / "drift.json"
    path.parent.mkdir(parents=True)
    path.write_text("of the last run")
    subprocess.run([*arguments["argv"][:-1], str(path)], input=text, text=True, check=True, timeout=60)
    assert path.stat().st_mode & 0o777 == 0o600
    assert last_checks.read(str(tmp_path))["drift"] == {**told, "count": 1}
    assert list(path.parent.iterdir()) == [path]
