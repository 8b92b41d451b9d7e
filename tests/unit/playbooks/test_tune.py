# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is refused before a split is changed, and which one serves when the run ends."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.plays import IMPORT, PLAYBOOKS, plays

TRIED: list[dict[str, Any]] = yaml.safe_load((PLAYBOOKS / "tasks/tune_split.yml").read_text(encoding="utf-8"))
[FIRST, *_OTHERS] = plays("tune")


def task(name: str, among: list[dict[str, Any]]) -> dict[str, Any]:
    [found] = [one for one in among if one["name"] == name]
    return found


def holds(words: Any, **variables: Any) -> bool:
    templar = Templar(loader=DataLoader(), variables=variables)
    conditions = words if isinstance(words, list) else [words]
    return all(templar.evaluate_conditional(trust_as_template(str(one))) for one in conditions)


def said(text: str, **variables: Any) -> Any:
    return Templar(loader=DataLoader(), variables=variables).template(trust_as_template(text))


@pytest.mark.parametrize(
    ("given", "goal", "words"),
    [
        ({}, "throughput", ""),
        ({"vllm_serve_goal": ""}, "throughput", ""),
        ({"vllm_serve_goal": "latency"}, "latency", ""),
        ({"vllm_serve_goal": "latency", "tune_goal": "throughput"}, "throughput", ""),
        ({"vllm_serve_goal": "context"}, "context", "vllm_serve_goal: context: splits are compared by latency or"),
        ({"tune_goal": "context"}, "context", "tune_goal: context: "),
        (
            {"tune_goal": "speed"},
            "speed",
            "tune_goal: speed: splits are compared by latency or throughput. Add -e tune",
        ),
    ],
)
def test_the_goal_is_one_that_is_measured(given: dict[str, str], goal: str, words: str) -> None:
    # the first host of the play may be of another group, which wants something else
    told = {"vllm_serve_goal": "context", **given, "hostvars": {"b": given}, "__tune_hosts": ["b"]}
    assert said(FIRST["vars"]["__tune_goal"], **told) == goal
    refuse = task("Fail if measuring cannot tell which split is the best", FIRST["tasks"])["ansible.builtin.assert"]
    assert holds(refuse["that"], __tune_goal=goal, **given) is not bool(words)
    if words:
        text = said(refuse["fail_msg"], __tune_goal=goal, **given)
        assert text.startswith(f"Nothing was changed: {words}")
        assert ("run site.yml" in text) is (goal == "context")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ""),
        ({"serving_groups": ["a", "b"], "serving_group": "a"}, ""),
        ({"serving_groups": ["a", "b"]}, "serving_group: not set: "),
        ({"serving_groups": ["a", "b"], "serving_group": "embed"}, "serving_group: embed: the split of one serving "),
        ({"serving_group": "a"}, "serving_group: a: the inventory has no serving groups. Leave it out"),
    ],
)
def test_the_split_of_one_group_is_measured(given: dict[str, Any], words: str) -> None:
    refuse = FIRST["tasks"][0]["ansible.builtin.assert"]
    assert holds(refuse["that"], **given) is not bool(words)
    if words:
        assert said(refuse["fail_msg"], **given).startswith(f"Nothing was changed: {words}")


def test_all_that_may_refuse_comes_before_the_first_split_is_changed() -> None:
    names = [one.get("name") for one in FIRST["tasks"]]
    wanted = ["Lock the cluster", "Validate and plan", "Choose the splits", "Fail if there would be no way back"]
    assert [name for name in names if name in (*wanted, "Run the benchmark")] == [*wanted, "Run the benchmark"]
    upgrades = [number for number, play in enumerate(plays("tune")) if play.get(IMPORT) == "upgrade.yml"]
    assert upgrades == [1, 3]
    for number in upgrades:
        trial = plays("tune")[number]
        assert trial["vars"] == {"upgrade_speed": 0, "__upgrade_of_group": True, "__upgrade_tries": True}
        for found in (1, 2, 3):
            many = {"__tune_splits": [[1, 3]] * found}
            assert holds(trial["when"], **many) is (found > (1 if number == 1 else 2))
        # of localhost, which the first play of an upgrade is for too
        assert not holds(trial["when"])
    # nothing is changed in check mode
    keep = task("Keep what was measured", FIRST["tasks"])["ansible.builtin.set_fact"]
    chosen = {"splits": [[1, 2], [2, 1]]}
    for check, splits in ((True, []), (False, chosen["splits"])):
        assert said(keep["__tune_splits"], ansible_check_mode=check, __tune_chosen=chosen) == splits


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"a": {}, "b": {}}, ""),
        # what the one before it left
        ({"a": {"__upgrade_failed": None}, "b": {"__upgrade_failed": None}}, ""),
        ({"a": {"__upgrade_failed": "it does not start"}, "b": {"__upgrade_failed": ""}}, "it does not start"),
        ({"a": {"__upgrade_failed": ""}, "b": {}}, "a host does not answer any more"),
    ],
)
def test_a_split_that_does_not_serve_is_known_by_what_the_upgrade_says(facts: dict[str, Any], why: str) -> None:
    [_first, _second, measure, *_others] = plays("tune")
    found = said(measure["vars"]["__tune_failed"], groups={"cluster": list(facts)}, hostvars=facts)
    assert found.strip() == why
    # and the upgrade goes on from there with the next one
    [change] = [one for play in plays("upgrade") for one in play["tasks"] if one["name"] == "Change over and prove"]
    [inner] = change["block"]
    assert holds(inner["when"], groups={"cluster": list(facts)}, hostvars=facts) is not bool(why)


def test_an_upgrade_that_is_tried_does_not_end_the_run() -> None:
    *_others, back = plays("upgrade")
    fail = task("Fail because the new engine is not used", back["tasks"])
    assert holds(fail["when"])
    assert not holds(fail["when"], __upgrade_tries=True)


@pytest.mark.parametrize(
    ("best", "serves", "host", "back"),
    [
        (1, "new", "a", False),
        # of another group, on which nothing ever served
        (1, "", "c", False),
        (0, "new", "a", True),
        # of another group
        (0, "new", "c", False),
        # it did not serve, so the former one serves already
        (0, "old", "a", False),
    ],
)
def test_a_worse_split_is_left_again(best: int, serves: str, host: str, back: bool) -> None:
    known: dict[str, Any] = {
        **{"__tune_best": {"best": best}, "__tune_tried": [{}, {}], "__tune_hosts": ["a", "b"]},
        **{"__tune_kept": {"configurations": [{"name": serves}] if serves else []}, "__tune_name": "old"},
        "inventory_hostname": host,
    }
    leave = task("Go back to the better one", TRIED)
    assert holds(leave["when"], **known) is back
    assert holds(task("Keep the better one", TRIED)["when"], **known) is (best == 1 and host != "c")
    assert leave["vars"]["roll_back_to"] == "{{ __tune_name }}"


def test_what_cannot_be_measured_is_noted_and_the_next_one_starts_anew() -> None:
    measure, note = task("Measure it", TRIED), task("Add it to what was tried", TRIED)
    remember = measure["rescue"][0]["ansible.builtin.set_fact"]["__tune_unmeasured"]
    why = said(remember, ansible_failed_result={"msg": "llama-benchy ended with 1"})
    facts = note["ansible.builtin.set_fact"]
    known = {"__tune_tried": [], "__tune_split": [2, 1]}
    told = said(note["vars"]["__tune_why"], __tune_failed="", __tune_unmeasured=why)
    assert said(facts["__tune_tried"], __tune_why=told, **known) == [{"split": [2, 1], "failed": why}]
    result = {"bench": {"rows": [{"streams": 1}]}}
    told = said(note["vars"]["__tune_why"], __tune_failed="", __tune_unmeasured="")
    assert said(facts["__tune_tried"], __tune_why=told, __bench_result=result, **known) == [
        {"split": [2, 1], "rows": [{"streams": 1}]}
    ]
    assert said(facts["__upgrade_failed"]) is None
    assert facts["__tune_unmeasured"] == ""


def test_a_trial_that_is_not_made_shares_no_plan() -> None:
    """Ansible wants a delegated loop's items before it looks at the conditions of the playbook that imports it."""
    tasks = yaml.safe_load((PLAYBOOKS.parent / "roles/preflight/tasks/main.yml").read_text(encoding="utf-8"))
    [share] = [task for task in tasks if task.get("delegate_to") == "{{ item }}"]
    plan = {"clusters": {"a": {}, "b": {}}}
    assert said(share["loop"], __preflight_plan=plan) == ["a", "b"]
    assert said(share["loop"], __preflight_plan={"changed": False, "skipped": True}) == []
