# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which serving groups of a host a playbook means that stops, starts or drains them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.playbooks.test_serve_again import TOP
from tests.unit.plays import plays

VARIABLES: dict[str, Any] = {
    "groups": {"cluster": ["a", "b", "d"], "ray_head": ["a", "d"], "big": ["a", "b"], "single": ["d"]},
    "serving_groups": ["big", "single"],
    "serving_beside": {"embed": {"host": "a"}, "rerank": {"host": "a"}},
}


def tasks(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((TOP / "playbooks/tasks" / name).read_text(encoding="utf-8"))
    return found


def templated(text: str, **variables: Any) -> Any:
    return Templar(loader=DataLoader(), variables=variables).template(trust_as_template(text))


@pytest.mark.parametrize(
    ("host", "chosen", "own", "beside"),
    [
        ("a", None, True, ["embed", "rerank"]),
        ("d", None, True, []),
        ("a", "big", True, []),
        ("d", "big", False, []),
        ("a", "embed", False, ["embed"]),
        ("d", "embed", False, []),
    ],
)
def test_one_group_is_moved_and_no_other(host: str, chosen: str | None, own: bool, beside: list[str]) -> None:
    given = {**VARIABLES, "inventory_hostname": host, **({"serving_group": chosen} if chosen else {})}
    [_check, fact] = tasks("serving_group.yml")
    assert templated(fact["ansible.builtin.set_fact"]["__serving_group_own"], **given) is own
    [each] = tasks("beside.yml")
    assert templated(each["loop"], **given) == beside


def test_without_such_groups_nothing_is_done_besides() -> None:
    [each] = tasks("beside.yml")
    assert templated(each["loop"], inventory_hostname="a") == []
    [_check, fact] = tasks("serving_group.yml")
    assert templated(fact["ansible.builtin.set_fact"]["__serving_group_own"], inventory_hostname="a", groups={}) is True


def test_a_name_that_no_group_has_stops_the_playbook() -> None:
    [check, _fact] = tasks("serving_group.yml")
    names = templated(check["vars"]["__serving_group_names"], **VARIABLES)
    assert names == ["big", "single", "embed", "rerank"]
    assert templated(check["vars"]["__serving_group_names"]) == []


@pytest.mark.parametrize("playbook", ["drain", "stop", "start", "restart"])
def test_what_is_done_with_a_heads_own_group_is_done_with_those_beside(playbook: str) -> None:
    found = plays(playbook)
    every = [task for play in found for task in play["tasks"]]
    acts = [task for task in every if "sparkthor.cluster.vllm_service" in task]
    # what starts the ranks is asked and changes nothing
    own = [asked for task in acts if (asked := task["sparkthor.cluster.vllm_service"])["state"] != "kept"]
    beside = [
        task["vars"]["__beside"] for task in every if "beside.yml" in task.get("ansible.builtin.import_tasks", "")
    ]
    assert own == beside != []
    conditions = {str(task["when"]).removesuffix(" | default(true)") for task in acts}
    assert conditions == {"__serving_group_own"}


def switched(host: str, group: str, **more: Any) -> dict[str, Any]:
    """What switch_model.yml finds and sets on a host for a recipe and this group, by the names of its tasks."""
    [play, _upgrade] = plays("switch_model")
    given = {**VARIABLES, "inventory_hostname": host, "recipe": "new", "serving_group": group, **more}
    found = {}
    for task in play["tasks"]:
        values = {name: trust_as_template(text) for name, text in task.get("vars", {}).items()}
        conditions = [task["when"]] if isinstance(task["when"], str) else task["when"]
        if all(templated("{{ " + words + " }}", **given, **values) for words in conditions):
            facts = task.get("ansible.builtin.set_fact")
            text = facts or "{{ " + task["ansible.builtin.assert"]["that"] + " }}"
            found[task["name"]] = (
                {key: templated(value, **given, **values) for key, value in text.items()}
                if facts
                else templated(text, **given, **values)
            )
            if found[task["name"]] is False:
                break
    return found


USED, USED_BESIDE = "Use the recipe", "Use the recipe for the group beside another"
MODEL = "Fail if the inventory names another model"


def test_a_recipe_for_a_group_beside_another_changes_that_one_alone() -> None:
    for host in ("a", "b", "d"):
        found = switched(host, "embed")
        assert found[USED_BESIDE] == {
            "serving_beside": {"embed": {"host": "a", "vllm_serve_recipe": "new"}, "rerank": {"host": "a"}}
        }
        assert USED not in found
    assert switched("b", "big")[USED] == {"vllm_serve_recipe": "new"}
    assert USED not in switched("d", "big")
    assert USED_BESIDE not in switched("a", "big")


def test_a_recipe_is_for_a_group_that_there_is_and_that_names_no_other_model() -> None:
    check = "Fail if it is not said which serving group the recipe is for"
    assert [switched("a", group)[check] for group in ("embed", "big", "")] == [True, True, False]
    beside = {"embed": {"host": "a", "vllm_serve_model": "org/model"}}
    assert switched("a", "embed", serving_beside=beside)[MODEL] is False
    # that of the host's own group is no matter of the one beside it
    assert switched("a", "embed", vllm_serve_model="org/model")[MODEL] is True
    assert switched("a", "big", vllm_serve_model="org/model")[MODEL] is False
