# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What playbooks/render.yml writes for a host of an inventory, made in this process: no Ansible run, no file."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.sparkthor.cluster.plugins.action.cluster_plan import ActionModule
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import module_files, role_tasks

from tests.unit.plays import PLAYBOOKS

HOSTS = ("a", "b")


def roles() -> list[str]:
    """Those whose files the playbook renders."""
    tasks = yaml.safe_load((PLAYBOOKS / "render.yml").read_text(encoding="utf-8"))[-1]["tasks"]
    [given] = [task["sparkthor.cluster.render_files"] for task in tasks if "sparkthor.cluster.render_files" in task]
    return list(given["roles"])


def files(
    given: dict[str, Any], of: Sequence[str] = (), hosts: Sequence[str] = HOSTS, kind: str = "spark"
) -> dict[str, str]:
    """By path the text of each file of the head, for hosts of a kind with these variables; ``of`` these roles, or all.

    Raises AnsibleError with what the inventory's checks, the plan or a template say against a value.
    """
    head, *workers = hosts
    groups = {"cluster": [*hosts], "ray_head": [head], "ray_workers": workers, f"{kind}s": [*hosts]}
    hostvars: dict[str, dict[str, Any]] = {
        host: {**given, "inventory_hostname": host, "ansible_host": f"192.168.1.{number}"}
        for number, host in enumerate(hosts, 11)
    }
    played = {"ansible_play_hosts_all": [*hosts], "ansible_play_hosts": [*hosts], "ansible_forks": 5}
    run = {"groups": groups, "hostvars": hostvars, "inventory_dir": "/nonexistent", **played}
    _stage(run, stage="inventory")
    planned = _stage(run, stage="facts", assumed=True)
    for host in hosts:
        hostvars[host] |= {
            "sparkthor_cluster": planned["cluster"],
            "sparkthor_fabric": planned["fabric"],
            "ansible_facts": {"sparkthor_node": planned["nodes"][host]},
        }
    return {
        str(file["path"]): str(file["content"])
        for role in of or roles()
        for file in _of_role(role, {**run, **hostvars[head]})
    }


def _stage(run: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    task = SimpleNamespace(
        args=arguments, check_mode=True, diff=False, async_val=0, run_once=True, action="cluster_plan"
    )
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    loader = DataLoader()
    action = ActionModule(task, connection, SimpleNamespace(), loader, Templar(loader=loader, variables=run), None)
    action.tell = lambda _line: None  # type: ignore[method-assign]
    return dict(action.run(task_vars={**run, **run["hostvars"][run["groups"]["ray_head"][0]]}))


def _of_role(role: str, variables: dict[str, Any]) -> list[dict[str, Any]]:
    loader = DataLoader()
    templar = Templar(loader=loader, variables={})
    state = role_tasks.state(role, loader, templar, variables, secrets=False) or {"files": []}
    calls = role_tasks.calls_that_make_files(role, templar, variables)
    return [*state["files"], *(file for call in calls for file in module_files.of_call(call))]
