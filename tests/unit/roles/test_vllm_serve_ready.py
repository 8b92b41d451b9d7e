# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the role waits for ranks of other hosts, also where a comparison asks before any host was configured."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.unit.playbooks.test_tune import said
from tests.unit.plays import PLAYBOOKS

CHANGED, SAME = {"__vllm_serve_outcome": {"changed": True}}, {"__vllm_serve_outcome": {"changed": False}}


@pytest.mark.parametrize(
    ("executor", "hosts", "seconds"),
    [
        ("mp", {"a": {}, "b": {}}, 0),
        ("mp", {"a": SAME, "b": {}}, 0),
        ("mp", {"a": SAME, "b": CHANGED}, 4),
        ("ray", {"a": SAME, "b": CHANGED}, 0),
    ],
)
def test_ranks_are_waited_for_where_a_host_was_changed(executor: str, hosts: dict[str, Any], seconds: int) -> None:
    tasks = yaml.safe_load((PLAYBOOKS.parent / "roles/vllm_serve/tasks/main.yml").read_text(encoding="utf-8"))
    [ready] = [task for task in tasks if task.get("register") == "vllm_serve_ready"]
    given = {"sparkthor_cluster": {"executor": executor}, "hostvars": hosts, "ansible_play_hosts": list(hosts)}
    assert said(ready["sparkthor.cluster.vllm_service"]["settle"], **given) == seconds
