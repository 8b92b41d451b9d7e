# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which serving groups stop for a reboot."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.playbooks.test_serve_again import tasks

GROUPS = {"cluster": ["a", "b", "c"], "big": ["a", "b"], "small": ["c"]}


def stopping(asking: set[str], **given: Any) -> list[str]:
    """Of a and c, which serve, those that stop when these hosts ask for a reboot."""
    facts = {
        name: text
        for _hosts, task in tasks("reboot")
        for name, text in task.get("ansible.builtin.set_fact", {}).items()
    }
    found = {}
    hostvars = {host: {"__reboot_wanted": host in asking} for host in GROUPS["cluster"]}
    for head in ("a", "c"):
        variables = {
            **{name: trust_as_template(text) for name, text in facts.items() if name != "__reboot_wanted"},
            "groups": GROUPS,
            "group_names": [name for name, members in GROUPS.items() if head in members],
            "hostvars": hostvars,
            "__nodes": {"status": {"serving": {"model": "m", "maintenance": ""}}},
            **given,
        }
        found[head] = Templar(loader=DataLoader(), variables=variables).template(variables["__reboot_stops"])
    return [head for head, stops in found.items() if stops]


@pytest.mark.parametrize(("asking", "heads"), [(set(), []), ({"b"}, ["a"]), ({"c"}, ["c"]), ({"a", "c"}, ["a", "c"])])
def test_a_group_none_of_whose_hosts_asks_goes_on(asking: set[str], heads: list[str]) -> None:
    assert stopping(asking, serving_groups=["big", "small"]) == heads


def test_without_groups_all_hosts_serve_together() -> None:
    assert stopping({"b"}) == ["a", "c"]
