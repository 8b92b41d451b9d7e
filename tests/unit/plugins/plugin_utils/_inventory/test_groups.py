# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import groups as serving_groups
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import inventory

GROUPS = {
    "cluster": ["a", "d", "b", "c"],
    "ray_head": ["a", "d"],
    "ray_workers": ["b", "c"],
    "chat": ["a", "b", "c"],
    "embed": ["d"],
}
NAMES = ["chat", "embed"]


def variables(**by_group):
    found = {}
    for host in GROUPS["cluster"]:
        own = {"fabric_topology": "switch", "ansible_host": f"192.0.2.{ord(host)}", "serving_groups": NAMES}
        for group, values in by_group.items():
            own |= values if host in GROUPS[group] else {}
        found[host] = own
    return found


def texts(findings):
    return [str(finding) for finding in findings]


def says(problem, *words):
    assert [word for word in words if word not in problem] == [], problem


def served(group, *names, model="m", head="a"):
    return serving_groups.Served(group, head, names, model)


def test_every_group_has_its_hosts_with_its_head_first():
    assert inventory.parts({**GROUPS, "cluster": ["b", "d", "a", "c"]}, NAMES) == [
        ("chat", ["a", "b", "c"]),
        ("embed", ["d"]),
    ]
    assert serving_groups.problems(GROUPS, NAMES) == []
    assert inventory.group_problems(GROUPS, NAMES) == []


def test_without_groups_the_cluster_is_the_only_one():
    groups = {"cluster": ["b", "a"], "ray_head": ["a"], "ray_workers": ["b"]}
    assert inventory.parts(groups, []) == [("", ["a", "b"])]
    assert serving_groups.problems(groups, []) == []
    # several heads stay a mistake there, and the message says what would allow them
    problem = texts(inventory.group_problems({"cluster": ["a", "b"], "ray_head": ["a", "b"]}))[0]
    says(problem, "2 hosts (a, b)", "serving_groups")


def test_a_second_head_does_not_move_the_addresses_of_the_hosts_between():
    assert inventory.cluster_hosts({**GROUPS, "cluster": ["a", "b", "c", "d"]}) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("change", "names", "words"),
    [
        ({}, ["chat", "chat"], ["serving_groups: 'chat'", "two serving groups have one name"]),
        ({}, ["chat", "embd"], ["'embd'", "no such inventory group", "did you mean 'embed'?"]),
        ({}, ["chat", "ray_head"], ["'ray_head'", "something else"]),
        ({}, ["chat", "Big-One"], ["'Big-One'", "lower-case"]),
        ({}, "chat", ["serving_groups", "not a list"]),
        ({}, {"chat": {}}, ["serving_groups", "not a list"]),
        ({}, [{"chat": {}}], ["serving_groups", "not a list"]),
        ({"embed": []}, NAMES, ["'embed'", "no hosts"]),
        ({"embed": ["c", "d"]}, NAMES, ["host c", "serving groups chat and embed"]),
        ({"chat": ["a", "b"]}, NAMES, ["host c", "none of the groups", "chat, embed"]),
        ({"embed": ["d", "x"]}, NAMES, ["host x", "not in group cluster"]),
        ({"ray_head": ["a"], "ray_workers": ["b", "c", "d"]}, NAMES, ["ray_head", "embed has no head", "(d)"]),
        ({"ray_head": ["a", "b", "d"], "ray_workers": ["c"]}, NAMES, ["chat has 2 heads (a, b)", "ray_workers"]),
    ],
)
def test_groups_that_cannot_be_are_refused_with_the_fix(change, names, words):
    [problem] = texts(serving_groups.problems({**GROUPS, **change}, names))
    says(problem, *words)


def test_groups_may_differ_in_what_they_serve_and_their_hosts_may_not():
    different = variables(chat={"vllm_serve_executor": "ray"}, embed={"vllm_serve_executor": "mp"})
    assert inventory.inventory_problems(GROUPS, different) == []
    different["b"]["vllm_serve_executor"] = "mp"
    [problem] = texts(inventory.inventory_problems(GROUPS, different))
    says(problem, "vllm_serve_executor", "'mp' on b", "group_vars/chat.yml")


def test_the_cluster_has_one_fabric_and_one_port_whatever_the_groups():
    different = variables(embed={"vllm_serve_api_port": 9000})
    [problem] = texts(inventory.inventory_problems(GROUPS, different))
    says(problem, "vllm_serve_api_port", "group_vars/cluster.yml")


def test_a_split_is_held_against_the_hosts_of_its_own_group():
    [problem] = texts(inventory.inventory_problems(GROUPS, variables(embed={"vllm_serve_tensor_parallel_size": 2})))
    assert "the 1 host(s) of group embed have 1" in problem


def test_replicas_are_groups_with_the_same_model_and_names():
    assert serving_groups.offer_problems([served("one", "chat"), served("two", "chat")], {}) == []
    offers = [served("one", "chat"), served("two", "chat", model="other")]
    [problem] = texts(serving_groups.offer_problems(offers, {}))
    says(problem, "vllm_serve_served_model_name: 'chat'", "one (m)", "two (other)", "group_vars/two.yml")
    # a name that only one of two replicas has would be balanced over both
    assert serving_groups.offer_problems([served("one", "chat", "x"), served("two", "chat")], {})


@pytest.mark.parametrize("name", ['a"b', "a b", "a$b", "a\\b", "a\nb", "a" * 257])
def test_a_name_that_would_break_the_front_proxys_configuration_is_refused(name):
    [problem] = texts(serving_groups.offer_problems([served("one", name), served("two", "Qwen/Qwen3-8B:fp8")], {}))
    says(problem, "vllm_serve_served_model_name", "of group one", "256")


@pytest.mark.parametrize(
    ("fallbacks", "words"),
    [
        ({"one": "too"}, ["of group one", "no such serving group", "did you mean 'two'?"]),
        ({"one": "two", "two": "one"}, ["circle", "one -> two -> one"]),
        ({"one": "one"}, ["one -> one"]),
        ({"one": "two", "two": "three", "three": "two"}, ["two -> three -> two"]),
    ],
)
def test_fallbacks_that_lead_nowhere_are_refused_once(fallbacks, words):
    offers = [served("one", "a"), served("two", "b"), served("three", "c")]
    [problem] = texts(serving_groups.offer_problems(offers, fallbacks))
    says(problem, "vllm_serve_fallback", *words)


def test_fallbacks_may_share_a_group_that_has_none():
    offers = [served("one", "a"), served("two", "b"), served("three", "c")]
    assert serving_groups.offer_problems(offers, {"one": "three", "two": "three", "three": ""}) == []


def test_a_key_for_a_model_that_nobody_serves_is_refused_without_the_key():
    keys = [{"name": "alice", "key": "s" * 20, "models": ["chat", "embedd"]}, {"name": "bob", "key": "t" * 20}]
    [problem] = texts(serving_groups.key_problems(keys, [served("one", "chat"), served("two", "embed")]))
    says(problem, "key alice", "'embedd'", "did you mean 'embed'?")
    assert "ssss" not in problem


def test_what_a_group_offers_is_read_from_its_plan():
    cluster = {"group": "chat", "head": "a", "hosts": ["a", "b"], "serving": {"model": "/m/x", "served_model_name": ""}}
    assert serving_groups.offer(cluster, None) == serving_groups.Served("chat", "a", ("x",), "/m/x")
    cluster["serving"]["served_model_name"] = ["x", "y"]
    assert serving_groups.offer(cluster, "embed").names == ("x", "y")
    # as vLLM lists them, and takes them as the model of a request
    adapters = ["sql=/srv/sql", '{"name": "mine", "path": "/srv/a"}', {"name": "own", "path": "/srv/o"}]
    for given, names in ((adapters, ("sql", "mine", "own")), ("sql=/srv/sql", ("sql",)), (None, ())):
        cluster["serving"]["args"] = {"enable_lora": True, "--lora_modules": given}
        assert serving_groups.offer(cluster, None).names == ("x", "y", *names)
