# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import beside

GROUPS = {
    "cluster": ["a", "b", "d"],
    "ray_head": ["a", "d"],
    "ray_workers": ["b"],
    "big": ["a", "b"],
    "single": ["d"],
}
NAMES = ("big", "single")
EMBED = {"host": "a", "vllm_serve_recipe": "tiny-qwen3"}


def texts(given: Any, names: Any = NAMES, **variables: Any) -> list[str]:
    return [str(finding) for finding in beside.problems(GROUPS, names, given, variables)]


def says(problem: str, *words: str) -> None:
    assert [word for word in words if word not in problem] == [], problem


class Tagged(int):
    """As values from an inventory are: ansible-core keeps with each where it stands."""


def test_each_group_has_its_host_and_ports_of_its_own() -> None:
    given = {"embed": {**EMBED, "vllm_serve_max_model_len": "256"}, "rerank": {**EMBED, "vllm_serve_door_port": 8100}}
    assert texts(given) == []
    embed, rerank = beside.groups_beside(given, {"vllm_serve_group_port": 30000})
    assert (embed.name, embed.host) == ("embed", "a")
    # by the declared type, whichever way it was written
    assert embed.settings == {
        **{"vllm_serve_recipe": "tiny-qwen3", "vllm_serve_max_model_len": 256},
        **{"vllm_serve_door_port": 8002, "vllm_serve_group_port": 30001},
    }
    assert (rerank.settings["vllm_serve_door_port"], rerank.settings["vllm_serve_group_port"]) == (8100, 30002)


def test_a_port_that_is_no_number_is_told_by_the_check_of_the_values() -> None:
    assert texts({"embed": EMBED}, vllm_serve_door_port="80x1") == texts({"embed": EMBED})


def test_a_group_on_demand_has_a_policy() -> None:
    for given, minutes in (
        (None, 30),
        ({}, 30),
        ({"idle_minutes": 5, "not_between": "22:00-06:00"}, 5),
        ({"idle_minutes": Tagged(7)}, 7),
    ):
        described = {"embed": {**EMBED, "on_demand": given}}
        assert texts(described) == []
        [one] = beside.groups_beside(described, {})
        assert one.settings["on_demand"] == {
            **{"idle_minutes": minutes, "every_minutes": 10, "not_between": (given or {}).get("not_between", "")}
        }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("yes", ["not a mapping", "{idle_minutes: 30}"]),
        ({"idle": 3}, ["cannot have idle", "idle_minutes, every_minutes, not_between"]),
        ({"idle_minutes": 0}, ["idle_minutes is no number of minutes from 1", "0"]),
        ({"idle_minutes": True}, ["idle_minutes is no number"]),
        ({"every_minutes": "5"}, ["every_minutes is no number", "whole number"]),
        ({"not_between": "8-18"}, ["not_between", "'8-18' is no range of hours", "quote it"]),
        ({"not_between": "08:00-08:00"}, ["begins when it ends"]),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(given: Any, words: list[str]) -> None:
    [problem] = texts({"embed": {**EMBED, "on_demand": given}})
    says(problem, "group embed", *words)


def test_none_are_named() -> None:
    assert texts({}) == texts(None) == []
    assert beside.named({"a": {}}, ["a"]) == beside.named({}, []) == {}
    assert beside.groups_beside({}, {}) == []


@pytest.mark.parametrize(
    ("given", "names", "words"),
    [
        (["embed"], NAMES, ["serving_beside", "not a mapping", "host: HOST"]),
        ({"embed": "a"}, NAMES, ["serving_beside", "not a mapping"]),
        ({"embed": EMBED}, [], ["has no name", "serving_groups"]),
        ({"Embed-1": EMBED}, NAMES, ["group Embed-1", "cannot be the name", "lower-case"]),
        ({"big": EMBED}, NAMES, ["group big", "an inventory group has this name"]),
        ({"embed": {"vllm_serve_recipe": "x"}}, NAMES, ["group embed", "names no host", "a, d"]),
        ({"embed": {**EMBED, "host": "b"}}, NAMES, ["'b'", "b is not the head", "a, d", "front proxy"]),
        ({"embed": {**EMBED, "vllm_serve_modl": "x"}}, NAMES, ["vllm_serve_modl", "did you mean 'vllm_serve_model'"]),
        (
            {"embed": {**EMBED, "engine_runtime": "venv"}},
            NAMES,
            ["cannot have engine_runtime", "all else"],
        ),
        ({"embed": {**EMBED, "vllm_serve_executor": "ray"}}, NAMES, ["'ray'", "one Ray", "hosts of its own"]),
        ({"embed": {"host": "a"}}, NAMES, ["does not say what is served", "vllm_serve_recipe"]),
        ({"embed": {"host": "a", "vllm_serve_model": "/srv/m"}}, NAMES, ["'/srv/m'", "model store", "path"]),
        ({"embed": {**EMBED, "vllm_serve_max_model_len": "long"}}, NAMES, ["group embed", "vllm_serve_max_model_len"]),
    ],
)
def test_what_cannot_be_is_named_with_its_fix(given: Any, names: list[str], words: list[str]) -> None:
    [problem] = texts(given, names)
    says(problem, *words)


def test_mp_may_be_said() -> None:
    assert texts({"embed": {**EMBED, "vllm_serve_executor": "mp"}}) == []


def test_no_two_groups_listen_on_one_port() -> None:
    [problem] = texts({"embed": {**EMBED, "vllm_serve_door_port": 8000}})
    says(problem, "group embed", "vllm_serve_door_port 8000", "vllm_serve_api_port", "free")
    # 29502 + 1, where another group listens already
    given = {"embed": EMBED, "rerank": {**EMBED, "vllm_serve_door_port": 29503}}
    [problem] = texts(given)
    says(problem, "group rerank", "vllm_serve_group_port of group embed")
    [problem] = texts({"embed": EMBED}, vllm_serve_door_port=65535)
    says(problem, "65536", "not a port")
