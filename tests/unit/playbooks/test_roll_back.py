# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""To which configuration the hosts go back, and which hosts go together."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.playbooks.test_serve_again import tasks

GROUPS = {"cluster": ["a", "b", "c"], "big": ["a", "b"], "small": ["c"]}
#: a run that was broken off left the second host with another order, and with one more
KEPT = {"a": ["new", "old"], "b": ["old", "odd", "new"], "c": ["other"]}


def task(name: str) -> dict[str, Any]:
    (found,) = [task for _hosts, task in tasks("rollback") if task["name"] == name]
    return found


def chosen(host: str, hosts: list[str] | None = None, **given: Any) -> dict[str, Any]:
    """The facts that a host gets, and whether --limit left hosts out."""
    choose, away = task("Choose the configuration"), task("Fail if hosts of the cluster are left out")
    templates = {**choose["vars"], **away["vars"], **choose["ansible.builtin.set_fact"]}
    variables = {
        **{name: trust_as_template(text) for name, text in templates.items()},
        "groups": GROUPS,
        "group_names": [name for name, members in GROUPS.items() if host in members],
        "ansible_play_hosts": GROUPS["cluster"] if hosts is None else hosts,
        "hostvars": {
            one: {"__roll_back_kept": {"configurations": [{"name": name} for name in names]}}
            for one, names in KEPT.items()
        },
        **given,
    }
    templar = Templar(loader=DataLoader(), variables=variables)
    names = ("__roll_back_hosts", "__roll_back_name", "__roll_back_away")
    return {name.rpartition("_")[2]: templar.template(variables[name]) for name in names}


def test_hosts_that_serve_together_choose_the_same() -> None:
    together = {"serving_groups": ["big", "small"]}
    assert chosen("a", **together) == {"hosts": ["a", "b"], "name": "new", "away": []}
    assert chosen("b", **together) == chosen("a", **together)
    assert chosen("c", **together) == {"hosts": ["c"], "name": "other", "away": []}
    # nothing served on all of them
    assert chosen("a") == {"hosts": ["a", "b", "c"], "name": "", "away": []}


@pytest.mark.parametrize(("wanted", "name"), [("", "new"), ("previous", "old"), ("odd", "odd")])
def test_what_is_asked_for(wanted: str, name: str) -> None:
    assert chosen("b", serving_groups=["big", "small"], roll_back_to=wanted)["name"] == name


def test_there_is_no_former_one_where_one_alone_was_kept() -> None:
    assert chosen("c", serving_groups=["big", "small"], roll_back_to="previous")["name"] == ""


def test_a_limit_must_not_part_them() -> None:
    assert chosen("b", ["b"], serving_groups=["big", "small"])["away"] == ["a"]
    assert chosen("a", ["a", "b"], serving_groups=["big", "small"])["away"] == []
