# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a benchmark does where a host does not answer: the playbook's own tasks, with a line of a log for each."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from tests.unit.plays import PLAYBOOKS, played

MODULES = ("sparkthor.cluster.host_builtin", "sparkthor.cluster.cluster_bench")


def stand_in(task: dict[str, Any]) -> dict[str, Any]:
    """The task with a line of the log in the place of its module; one that asks host b does not reach it."""
    kept = {name: value for name, value in task.items() if name not in (*MODULES, "delegate_to")}
    words = f'echo "{{{{ inventory_hostname }}}} {task["name"]}" >> {{{{ log }}}}'
    local = "cluster_bench" in " ".join(task)
    there = "local" if local else "{{ 'ssh' if inventory_hostname == 'b' else 'local' }}"
    # where nothing listens
    where = {"ansible_connection": there, "ansible_host": "127.0.0.1", "ansible_port": 1}
    return {**kept, "ansible.builtin.shell": words, "vars": where}


def test_a_host_that_is_away_ends_no_measurement(tmp_path: Path) -> None:
    """With any_errors_fatal, as tune.yml has it: the split that is tried would stay, whatever came of it."""
    [whole] = yaml.safe_load((PLAYBOOKS / "tasks/bench.yml").read_text(encoding="utf-8"))
    whole |= {part: [stand_in(one) for one in whole[part]] for part in ("block", "always")}
    after = {"name": "Go on", "ansible.builtin.shell": "echo go on >> {{ log }}", "run_once": True}
    play = {"hosts": "all", "gather_facts": False, "any_errors_fatal": True, "tasks": [whole, after]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    variables = {"log": str(tmp_path / "log"), "ansible_python_interpreter": sys.executable}
    (tmp_path / "vars.yml").write_text(yaml.safe_dump({**variables, "__bench": {"plan": {"head": "a"}}}))
    done = played(tmp_path, "-i", "a,b,")
    assert (tmp_path / "log").exists(), done.stdout + done.stderr
    names = [one["name"] for part in ("block", "always") for one in whole[part]]
    assert (tmp_path / "log").read_text().splitlines() == [*(f"a {name}" for name in names), "go on"], done.stdout
