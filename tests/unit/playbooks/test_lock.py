# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every playbook that changes the cluster locks it before its first change; those that only read do not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.playbooks.test_beside import templated
from tests.unit.plays import PLAYBOOKS, played

#: they change nothing on the hosts of a cluster; verify measures, and installs perftest if asked
READ_ONLY = {
    *("backup", "bench", "capture", "discover", "doctor", "drift", "recipe", "render", "report", "status", "verify"),
    # before there is a cluster
    "first_contact",
    # contacts nobody
    "switch",
    # chooses what upgrade.yml serves, which has the lock
    "switch_model",
}
#: what may come before the lock: it changes nothing, but for the secrets that preflight keeps on the controller
BEFORE = (
    *("sparkthor.cluster.preflight", "ansible.builtin.meta", "ansible.builtin.assert", "tasks/read_status.yml"),
    *("tasks/every_group.yml", "tasks/serving_group.yml"),
)
NAMES = sorted(path.stem for path in PLAYBOOKS.glob("*.yml"))


def plays(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((PLAYBOOKS / f"{name}.yml").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_playbook_that_changes_something_locks_first(name: str) -> None:
    # one that only imports others leaves it to them
    tasks = [task for play in plays(name) for task in play.get("tasks") or ()]
    places = [number for number, task in enumerate(tasks) if "tasks/lock.yml" in str(task)]
    if name in READ_ONLY or not tasks:
        assert places == []
        return
    assert places, f"{name}.yml changes the cluster without its lock"
    for task in tasks[: places[0]]:
        assert any(word in str(task) for word in BEFORE), task["name"]


CLUSTER = ["a1", "a2", "b1", "b2"]
GROUPS = {"cluster": CLUSTER, "ray_head": ["a1", "b1"], "a": ["a1", "a2"], "b": ["b1", "b2"]}


def locked(serving_groups: list[str], play: list[str], named: str = "") -> dict[str, str]:
    """Which host takes which head's lock."""
    [task] = yaml.safe_load((PLAYBOOKS / "tasks/lock.yml").read_text(encoding="utf-8"))
    found = {}
    for host in play:
        variables: dict[str, Any] = {
            **{"groups": GROUPS, "serving_groups": serving_groups, "serving_beside": {"embed": {"host": "b1"}}},
            **{"inventory_hostname": host, "ansible_play_hosts": play},
            "group_names": [name for name, hosts in GROUPS.items() if host in hosts],
        }
        if named:
            [_check, fact] = yaml.safe_load((PLAYBOOKS / "tasks/serving_group.yml").read_text(encoding="utf-8"))
            text = fact["ansible.builtin.set_fact"]["__serving_group_hosts"]
            variables["serving_group"] = named
            variables["__serving_group_hosts"] = templated(text, **variables)
        variables |= {name: templated(text, **variables) for name, text in task["vars"].items()}
        if all(templated("{{ " + condition + " }}", **variables) for condition in task["when"]):
            found[host] = templated(task["delegate_to"], **variables)
    return found


def test_each_serving_group_is_locked_on_its_head() -> None:
    assert locked([], CLUSTER) == {"a1": "a1"}
    assert locked(["a", "b"], CLUSTER) == {"a1": "a1", "b1": "b1"}
    # a head that is not of the play, as with --limit
    assert locked(["a", "b"], ["b2"]) == {"b2": "b1"}
    assert locked(["a", "b"], CLUSTER, "a") == {"a1": "a1"}
    assert locked(["a", "b"], ["a1", "b1"], "embed") == {"b1": "b1"}
    assert locked([], CLUSTER, "embed") == {"a1": "a1"}


def test_a_head_that_is_away_keeps_nobody_from_another_group(tmp_path: Path) -> None:
    away = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    children: dict[str, Any] = {
        "ray_head": {"hosts": {"a1": away, "b1": {}}},
        "ray_workers": {"hosts": {"a2": {}, "b2": {}}},
        "a": {"hosts": {"a1": {}, "a2": {}}},
        "b": {"hosts": {"b1": {}, "b2": {}}},
    }
    given = {"serving_groups": ["a", "b"], "ansible_become": False, "ansible_python_interpreter": sys.executable}
    (tmp_path / "hosts.yml").write_text(json.dumps({"cluster": {"children": children, "vars": given}}))
    tasks = [
        {"ansible.builtin.import_tasks": str(PLAYBOOKS / "tasks/lock.yml")},
        {"ansible.builtin.debug": {"msg": "went on"}},
    ]
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "cluster", "gather_facts": False, "tasks": tasks}]))
    (tmp_path / "vars.yml").write_text("{}")
    # in check mode nothing of this machine is locked
    other = played(tmp_path, "-i", "hosts.yml", "--check", "--limit", "b")
    assert other.returncode == 0, other.stdout + other.stderr
    assert other.stdout.count("went on") == 2
    whole = played(tmp_path, "-i", "hosts.yml", "--check")
    assert whole.returncode != 0
    assert "went on" not in whole.stdout
