# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which engine goes over the fabric is a question of the hosts that serve together."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.role_state import ROLES

OWN, OTHER = {"model": {"name": "own"}}, {"model": {"name": "other"}}


@pytest.mark.parametrize(
    ("lacks", "expected"),
    [
        # one group alone has a new host, or a new engine
        ({"a": OWN, "b": OWN}, {"a": OWN, "c": {}}),
        # each group builds its own image
        ({"a": OWN, "b": OWN, "c": OTHER, "d": OTHER}, {"a": OWN, "c": OTHER}),
        # two kinds in one group
        ({"a": OWN, "b": OTHER}, {"a": {}, "c": {}}),
    ],
)
def test_each_group_gets_what_it_lacks(lacks: dict[str, Any], expected: dict[str, Any]) -> None:
    for host, wheels in expected.items():
        own = ["a", "b"] if host in ("a", "b") else ["c", "d"]
        assert template(lacks, sparkthor_cluster={"hosts": own}) == wheels


def test_a_host_that_is_away_has_no_say_and_without_a_plan_all_hosts_have() -> None:
    lacks = {"a": OWN, "b": OTHER}
    assert template(lacks, sparkthor_cluster={"hosts": ["a", "b"]}, ansible_play_hosts=["a", "c"]) == OWN
    assert template({"a": OWN, "c": OWN}) == OWN
    assert template({"a": OWN, "c": OTHER}) == {}


def template(lacks: dict[str, Any], **more: Any) -> Any:
    loader = DataLoader()
    known = loader.load(trust_as_template((ROLES / "engine" / "vars" / "main.yml").read_text()))
    hostvars = {host: {"__engine_installed": {"wheels": lacks[host]} if host in lacks else {}} for host in "abcd"}
    variables = {**known, "ansible_play_hosts": list("abcd"), "hostvars": hostvars, **more}
    return Templar(loader=loader, variables=variables).template(trust_as_template("{{ __engine_wheels }}"))
