# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom rollback.yml tells by which names a group is served again: also heads that it does not take back."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.integration.border.conftest import Border, node

NAMES = '# of one\n"~^old$" "big old";\n"~^first of big$" "old";\n# end of one\n'
FRONT = "sparkthor-front.service"
#: nobody listens there
AWAY = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_ssh_retries": 0}


@pytest.mark.parametrize("chosen", [("-e", "serving_group=big"), ("--limit", "big")])
def test_heads_of_other_groups_are_told_and_one_that_is_away_is_named(border: Border, chosen: tuple[str, str]) -> None:
    groups = {"big": ["one", "worker"], "small": ["two"], "lost": ["three"]}
    border.inventory(
        {"one": {}, "worker": {}, "two": {}, "three": AWAY}, fabric_topology="lan", serving_groups=list(groups)
    )
    path = border.home / "inventory/hosts.yml"
    inventory = yaml.safe_load(path.read_text(encoding="utf-8"))
    children = inventory["cluster"]["children"]
    workers = children["ray_workers"]["hosts"]
    for head in ("two", "three"):
        children["ray_head"]["hosts"][head] = workers.pop(head)
    children |= {name: {"hosts": {host: {} for host in hosts}} for name, hosts in groups.items()}
    path.write_text(yaml.safe_dump(inventory), encoding="utf-8")
    kept = {"configurations": [{"name": "a", "digest": "b", "about": {}}], "machine": "", "ready": True}
    kept |= {"beside": [], "beside_since": [], "executor": "mp"}
    for number, host in enumerate(("one", "worker", "two")):
        told: dict[str, Any] = {"node_info": {"ansible_facts": {"sparkthor_node": node(number)}}}
        own = {**kept, "names": NAMES if host == "one" else ""}
        border.answers(host, {**told, "controller_lock": {"since": "now"}, "vllm_service": own})
    output = border.play("sparkthor.cluster.rollback", *chosen)
    [said] = [call for call in border.asked("two", "vllm_service") if call["state"] == "told"]
    assert said["names"] == NAMES, output
    # nothing else is asked of it, and the group's own hosts are told nothing
    assert {call["state"] for call in border.asked("two", "vllm_service")} == {"told"}
    assert "told" not in {call["state"] for host in ("one", "worker") for call in border.asked(host, "vllm_service")}
    reloads = {
        host: [unit for call in border.asked(host, "host_state") for unit in call["units"] if unit["name"] == FRONT]
        for host in ("one", "worker", "two")
    }
    assert {host: len(found) for host, found in reloads.items()} == {"one": 1, "worker": 0, "two": 1}
    assert "three is away, and its door does not know what is served again" in " ".join(output.split())
    # the way back has ended as without it
    assert border.asked("one", "vllm_service")[-1]["state"] == "kept", output
    assert "failed=1" not in output, output
