# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each playbook makes of -e serving_group=NAME: that group alone, or a refusal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.playbooks.test_serve_again import tasks
from tests.unit.plays import plays

PLAYBOOKS = (
    next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists()) / "playbooks"
)
#: every playbook of the collection. "one": it is done for this group alone. "measured": of this group, or of the first.
#: "refused": it is for all groups, and says so.
TABLE = {
    **dict.fromkeys(("drain", "restart", "rollback", "start", "stop", "switch_model", "tune"), "one"),
    **dict.fromkeys(("host_layer", "keys", "models", "monitoring", "reboot", "site", "teardown", "upgrade"), "refused"),
    **dict.fromkeys(("rotate_api_key", "rotate_ray_token"), "refused"),
    **dict.fromkeys(("doctor", "drift", "render", "status"), "refused"),
    **dict.fromkeys(("backup", "capture", "discover", "first_contact", "recipe", "switch", "update"), "refused"),
    **dict.fromkeys(("bench", "report", "verify"), "measured"),
}
GROUPS = {
    **{"cluster": ["a1", "a2", "b1", "b2"], "ray_head": ["a1", "b1"], "ray_workers": ["a2", "b2"]},
    **{"a": ["a1", "a2"], "b": ["b1", "b2"]},
}
VARIABLES: dict[str, Any] = {
    **{"groups": GROUPS, "serving_groups": ["a", "b"], "serving_beside": {"embed": {"host": "b1"}}},
    **{"ansible_play_name": "the play", "ansible_play_hosts": GROUPS["cluster"]},
}
#: what changes a host, and does so for one group
ACTS = ("sparkthor.cluster.host_state", "sparkthor.cluster.vllm_service")


def holds(words: Any, variables: dict[str, Any]) -> bool:
    templar = Templar(loader=DataLoader(), variables=variables)
    conditions = words if isinstance(words, list) else [words]
    return all(templar.evaluate_conditional(trust_as_template(str(one))) for one in conditions)


def refusal(name: str, **given: Any) -> str:
    """What the task that refuses a group says; empty where it lets this pass."""
    [task] = yaml.safe_load((PLAYBOOKS / "tasks/every_group.yml").read_text(encoding="utf-8"))
    [play, *_others] = plays(name)
    first = play["tasks"][0]
    assert first.get("ansible.builtin.import_tasks") == "tasks/every_group.yml", f"{name}.yml looks at something before"
    # a tag that leaves it out would leave the group unsaid
    assert first.get("tags", ["always"]) == ["always"]
    assert ("always" in str(play)) == ("tags" in first)
    variables = {**VARIABLES, **given}
    for condition in (first.get("when"), task["when"]):
        if condition and not holds(condition, variables):
            return ""
    if holds(task["ansible.builtin.assert"]["that"], variables):
        return ""
    templar = Templar(loader=DataLoader(), variables={**variables, **(first.get("vars") or {})})
    return str(templar.template(trust_as_template(task["ansible.builtin.assert"]["fail_msg"])))


def test_the_table_has_every_playbook() -> None:
    assert sorted(TABLE) == sorted(path.stem for path in PLAYBOOKS.glob("*.yml"))


@pytest.mark.parametrize("name", [name for name, what in TABLE.items() if what == "refused"])
def test_a_playbook_for_all_groups_refuses_one_before_anything_else(name: str) -> None:
    said = refusal(name, serving_group="a")
    assert said.startswith('Nothing was changed: serving_group: a: "the play" is for all serving groups. ')
    assert refusal(name) == ""


def test_logs_are_judged_of_all_groups() -> None:
    """An inventory without hosts skips the play that would refuse, so the one that judges logs refuses as well."""
    [_collect, judge] = plays("doctor")
    assert judge["tasks"][0]["ansible.builtin.import_tasks"] == "tasks/every_group.yml"


@pytest.mark.parametrize("name", [name for name, what in TABLE.items() if what == "measured"])
def test_what_one_group_is_measured_by_knows_the_groups(name: str) -> None:
    """Who judges the hosts' status puts it beside the plan by ``results.see``, which reads the variable and refuses."""
    [play] = plays(name)
    judges = {f"sparkthor.cluster.cluster_{one}" for one in ("bench", "report", "verify")}
    called = {module for task in play["tasks"] for module in task} & judges
    assert called
    for module in called:
        source = (PLAYBOOKS.parent / f"plugins/action/{module.rpartition('.')[2]}.py").read_text(encoding="utf-8")
        assert re.search(r"\bsee\(", source), module


def test_a_group_of_a_cluster_without_groups_is_refused() -> None:
    [check, _fact] = yaml.safe_load((PLAYBOOKS / "tasks/serving_group.yml").read_text(encoding="utf-8"))
    given = {"serving_group": "a", "groups": {"cluster": ["x"]}}
    assert not holds(check["ansible.builtin.assert"]["that"], {**given, "__serving_group_names": []})
    words = trust_as_template(check["ansible.builtin.assert"]["fail_msg"])
    said = [
        Templar(loader=DataLoader(), variables={**given, "__serving_group_names": names}).template(words)
        for names in ([], ["b", "c"])
    ]
    start = "Nothing was changed: serving_group: a: there is no such serving group. "
    assert said == [f"{start}Leave serving_group out.", f"{start}Name one of b, c."]


@pytest.mark.parametrize(("given", "passes"), [("", False), (" ", False), (None, False), ("new", True)])
def test_a_switch_to_a_recipe_without_a_name_is_refused(given: Any, passes: bool) -> None:
    """It would serve none of the inventory's either."""
    [check] = [task for task in plays("switch_model")[0]["tasks"] if task["name"] == "Fail if the recipe has no name"]
    assert holds(check["when"], {"recipe": given})
    assert holds(check["ansible.builtin.assert"]["that"], {"recipe": given}) is passes
    assert "recipe: it is empty" in check["ansible.builtin.assert"]["fail_msg"]


def test_a_recipe_is_switched_for_one_group_by_the_steps_of_an_upgrade() -> None:
    assert "recipe=NAME" in refusal("switch_model", serving_group="a")
    assert refusal("switch_model", serving_group="a", recipe="new") == ""
    [_choose, upgrade] = plays("switch_model")
    assert refusal("upgrade", serving_group="a", recipe="new", **upgrade["vars"]) == ""


@pytest.mark.parametrize("name", ["drain", "restart", "rollback", "start", "stop"])
@pytest.mark.parametrize(
    ("group", "hosts"), [("a", ["a1", "a2"]), ("b", ["b1", "b2"]), ("embed", []), (None, GROUPS["cluster"])]
)
def test_no_host_of_another_group_is_touched(name: str, group: str | None, hosts: list[str]) -> None:
    given = {**VARIABLES, "sparkthor_stop_ray": True, **({"serving_group": group} if group else {})}
    [_check, fact] = yaml.safe_load((PLAYBOOKS / "tasks/serving_group.yml").read_text(encoding="utf-8"))
    touched = set()
    for host in GROUPS["cluster"]:
        variables = {**given, "inventory_hostname": host, "group_names": [one for one in GROUPS if host in GROUPS[one]]}
        kept = {"executor": "ray"}
        known: dict[str, Any] = {"__kept": kept, "__roll_back_kept": kept}
        for where, task in tasks(name):
            if host not in GROUPS[where]:
                continue
            if task.get("ansible.builtin.meta") == "end_host" and holds(task["when"], {**variables, **known}):
                break
            if task["name"] == fact["name"]:
                text = fact["ansible.builtin.set_fact"]["__serving_group_own"]
                templar = Templar(loader=DataLoader(), variables=variables)
                known["__serving_group_own"] = templar.template(trust_as_template(text))
            if any(module in task for module in ACTS) and "loop" not in task:
                # a fact that no task has set would be an error on a host
                if holds(task.get("when", True), {**variables, "ansible_check_mode": False, **known}):
                    touched.add(host)
    # nothing of a worker takes part in a drain
    assert sorted(touched) == [host for host in hosts if name != "drain" or host in GROUPS["ray_head"]]


def test_a_group_beside_another_goes_back_with_that_one() -> None:
    [task] = [task for _hosts, task in tasks("rollback") if task["name"] == "Fail if the group has no hosts of its own"]
    # an inventory without such groups has no serving_beside, which the message names
    assert not holds(task["when"], {**VARIABLES, "serving_group": "a"})
    given = {**VARIABLES, "serving_group": "embed"}
    assert holds(task["when"], given)
    said = Templar(loader=DataLoader(), variables=given).template(
        trust_as_template(task["ansible.builtin.fail"]["msg"])
    )
    assert said.endswith("Name that one: serving_group=b.")
