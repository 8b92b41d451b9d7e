# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answers with which Ansible's own reader, or whoever reads after it, would end: each is its own host's failure."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.integration.border.lies import ACTED_ON

MILLION = 1_000_000
#: by host: what is said in place of an answer, as texts and how often each
ODD: dict[str, list[tuple[str, int]]] = {
    "deep_lists": [('{"changed": false, "a": ', 1), ("[", 100_000), ("]", 100_000), ("}", 1)],
    "deep_objects": [('{"a": ', 100_000), ("1", 1), ("}", 100_000)],
    "a_list": [("[1, 2]", 1)],
    "a_number": [("5", 1)],
    "not_a_number": [('{"changed": false, "a": NaN}', 1)],
    "endless": [('{"changed": false, "a": 1e999}', 1)],
    "digits": [('{"changed": false, "a": ', 1), ("9", 10_000), ("}", 1)],
    "half_a_letter": [('{"changed": false, "msg": "\\ud800"}', 1)],
    "no_text": [('{"changed": false, "msg": "\udcff\udcfe"}', 1)],
    "many_values": [('{"changed": false, "a": [0', 1), (",0", 2 * MILLION), ("]}", 1)],
    "much_text": [('{"changed": false, "msg": "', 1), ("x", 101 * MILLION), ('"}', 1)],
    "twice": [('{"changed": false, "failed": true, "failed": {"a": []}, "failed": "\\u009b2J"}', 1)],
    "odd_name": [('{"changed": false, "\\u009b2J\\u0000": 1, "": {"": ""}, "__ansible_type": "\\u009b2J"}', 1)],
    "tagged": [('{"changed": false, "a": {"__ansible_type": "VaultedValue", "ciphertext": "$ANSIBLE"}}', 1)],
    "unsafe": [('{"changed": false, "msg": {"__ansible_unsafe": "{{ lookup(\'pipe\', \'id\') }}"}}', 1)],
    "breaks": [('{"changed": false}\n{"changed": true}', 1)],
}
#: those that Ansible reads, and nobody after it could
READ = ("endless", "many_values", "much_text", "not_a_number", "odd_name", "tagged")


def test_no_answer_ends_a_run_for_others(border: Any) -> None:
    border.inventory({"honest": {}, **{host: {} for host in ODD}})
    for host, said in ODD.items():
        border.answers(host, {"raw": {"instead": said}})
    playbook = border.home / "play.yml"
    tasks = [{"sparkthor.cluster.rdma_info": {}}]
    playbook.write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]), encoding="utf-8")
    output = border.play(playbook, "--forks=2")
    assert not [line for line in output.split("\n") if ACTED_ON.search(line)]
    assert "Traceback" not in output
    recap = output.rpartition("PLAY RECAP")[2]
    failed = {host: count == "1" for host, count in re.findall(r"^(\S+) .* failed=(\d)", recap, re.MULTILINE)}
    assert set(failed) == {"honest", *ODD}, output[-3000:]
    assert not failed["honest"]
    for host in READ:
        assert failed[host], host
        words = f"host {host}: what it answered to rdma_info cannot be used: .*and leave the host out "
        assert re.search(words, output), host
