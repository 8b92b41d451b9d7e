# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is updated, who is taken back, and who is left alone: the playbook's own tasks, with a line of a log for each
step on a host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.plays import PLAYBOOKS, played

HOSTS = {"ray_head": ["a"], "ray_workers": ["b", "c"]}
STEP, REBOOT = "sparkthor.cluster.os_update", "sparkthor.cluster.host_builtin"


def stand_in(task: dict[str, Any]) -> dict[str, Any]:
    """The task with a line of the log in the place of the module; those of host and step in ``breaks`` fail.

    Those in ``lost`` are not reached.
    """
    if "block" in task:
        return {**task, **{part: [stand_in(one) for one in task[part]] for part in ("block", "rescue")}}
    state = task.pop(STEP)["state"] if STEP in task else "rebooted" if task.pop(REBOOT, None) else ""
    if state:
        task["ansible.builtin.shell"] = (
            f"echo {{{{ inventory_hostname }}}} {state} >> {{{{ log }}}}; "
            f"{{{{ 'false' if inventory_hostname ~ ' {state}' in breaks else 'true' }}}}"
        )
        there = f"{{{{ 'ssh' if inventory_hostname ~ ' {state}' in lost else 'local' }}}}"
        # where nothing listens
        task["vars"] = {"ansible_connection": there, "ansible_host": "127.0.0.1", "ansible_port": 1}
    return {**task, **({"retries": 1, "delay": 0} if "retries" in task else {})}


def served(task: dict[str, Any]) -> dict[str, Any]:
    """The task with a line of the log for what it starts; a host in ``lost`` does not answer."""
    starts = task.pop("sparkthor.cluster.vllm_service")
    said = f"echo serves {starts.get('group', '')} >> {{{{ log }}}}" if starts["state"] == "started" else "true"
    there = "{{ 'ssh' if lost | select('match', inventory_hostname ~ ' ') else 'local' }}"
    away = {"ansible_connection": there, "ansible_host": "127.0.0.1", "ansible_port": 1}
    return {**task, "ansible.builtin.shell": said, "vars": away}


def updated(tmp_path: Path, breaks: str = "", lost: str = "") -> tuple[list[str], subprocess.CompletedProcess[str]]:
    """What was done on the hosts, and what was said."""
    plays = yaml.safe_load((PLAYBOOKS / "update.yml").read_text())
    own = [stand_in(task) for task in yaml.safe_load((PLAYBOOKS / "tasks" / "update.yml").read_text())]
    chosen = []
    for play in plays:
        if play["name"].startswith("Update the"):
            chosen.append({**play, "tasks": own, "become": False})
        if play["name"] == "Serve again":
            serves = [served(task) for task in play["tasks"]]
            chosen.append({**play, "become": False, "tasks": serves})
        if play["name"] == "Say what came of it":
            chosen.append({**play, "become": False})
    (tmp_path / "play.yml").write_text(yaml.safe_dump(chosen))
    (tmp_path / "hosts.yml").write_text(
        yaml.safe_dump({"cluster": {"children": {name: {"hosts": dict.fromkeys(HOSTS[name])} for name in HOSTS}}})
    )
    variables = {"log": str(tmp_path / "log"), "breaks": breaks.split(", "), "lost": lost.split(", ")}
    variables |= {"__update_wanted": True, "__update_stops": True, "__update_together": ["a", "b", "c"]}
    variables |= {"__update_beside": ["small"]}
    variables |= {"__update_plan": {"reboots": True}, "ansible_python_interpreter": sys.executable}
    (tmp_path / "vars.yml").write_text(yaml.safe_dump(variables))
    done = played(tmp_path, "-i", "hosts.yml")
    return (tmp_path / "log").read_text().splitlines(), done


@pytest.mark.parametrize(
    ("breaks", "steps"),
    [
        ("", ["b updated", "b proven", "c updated", "c proven", "a updated", "a proven"]),
        ("b updated", ["b updated", "b taken_back", "b rebooted"]),
        ("c proven", ["b updated", "b proven", "c updated", *["c proven"] * 2, "c taken_back", "c rebooted"]),
        ("a updated", ["b updated", "b proven", "c updated", "c proven", "a updated", "a taken_back", "a rebooted"]),
    ],
)
def test_one_host_that_fails_is_taken_back_and_stops_the_rest(tmp_path: Path, breaks: str, steps: list[str]) -> None:
    did, done = updated(tmp_path, breaks)
    assert did == [*steps, "serves", "serves small"], done.stdout
    # and whoever started it hears of it
    assert (done.returncode == 0) == (not breaks), done.stdout
    if breaks:
        assert f"{breaks[0]}: " in done.stdout
        assert "It has its former packages again" in done.stdout


@pytest.mark.parametrize(
    ("breaks", "lost", "steps", "said"),
    [
        # the kernel may be the former one again although a package is not
        (
            "b updated, b taken_back",
            "",
            ["b updated", "b taken_back", "b rebooted", "serves", "serves small"],
            "could not be put back",
        ),
        # it was silent for a while
        ("", "b updated", ["b taken_back", "b rebooted", "serves", "serves small"], "It has its former packages again"),
        (
            "",
            "b proven",
            ["b updated", "b taken_back", "b rebooted", "serves", "serves small"],
            "It has its former packages again",
        ),
        # gone: the others do not wait for it, and what another host serves alone is served
        ("", "b proven, b taken_back", ["b updated", "serves small"], "bring it back, then run playbooks/start.yml"),
        (
            "c proven",
            "c rebooted",
            [*["b updated", "b proven", "c updated"], *["c proven"] * 2, "c taken_back", "serves small"],
            "start.yml",
        ),
        # and a head that is gone serves nothing
        (
            "",
            "a proven, a taken_back",
            ["b updated", "b proven", "c updated", "c proven", "a updated"],
            "bring it back, then run playbooks/start.yml",
        ),
    ],
)
def test_a_way_back_that_fails_ends_nothing_else(
    tmp_path: Path, breaks: str, lost: str, steps: list[str], said: str
) -> None:
    did, done = updated(tmp_path, breaks, lost)
    assert did == steps, done.stdout
    assert done.returncode != 0
    assert said in " ".join(done.stdout.split())
    assert "update.yml goes on with the others" in done.stdout
