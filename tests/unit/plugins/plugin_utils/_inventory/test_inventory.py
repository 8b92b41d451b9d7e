# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import inventory
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_inventory import fabric_problems

GROUPS = {"cluster": ["a", "b", "c"], "ray_head": ["a"], "ray_workers": ["b", "c"]}


def variables(**changes):
    base = {"fabric_topology": "switch", "fabric_cidr": "10.100.0.0/16"}
    return {host: {**base, "ansible_host": f"192.0.2.{index}", **changes} for index, host in enumerate("abc", 1)}


def only(problems):
    assert len(problems) == 1, problems
    return str(problems[0])


def test_a_sound_inventory_has_no_problem():
    assert inventory.inventory_problems(GROUPS, variables()) == []


def test_hosts_are_planned_head_first_and_workers_in_inventory_order():
    groups = {"cluster": ["b", "c", "a"], "ray_head": ["a"], "ray_workers": ["b", "c"]}
    assert inventory.cluster_hosts(groups) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({}, ["group cluster"]),
        ({"cluster": ["b"], "ray_head": [], "ray_workers": ["b"]}, ["ray_head", "no host; put exactly one host"]),
        # hosts without a place are why there is no head, and are not told beside it
        ({"cluster": ["a", "b"], "ray_workers": ["b"]}, ["group ray_head: it has no host; put a into it"]),
        (
            {"cluster": ["a", "b", "c"]},
            ["group ray_head: it has no host; put one of a, b, c into it, and the others into ray_workers"],
        ),
        (
            {"cluster": ["a", "b"], "ray_heads": ["a"], "ray_workers": ["b"]},
            ["group ray_head: it has no host; rename the group ray_heads to ray_head"],
        ),
        ({**GROUPS, "ray_head": ["a", "b"], "ray_workers": ["c"]}, ["ray_head", "2 hosts", "a, b"]),
        ({**GROUPS, "ray_workers": ["a", "b", "c"]}, ["host a", "both ray_head and ray_workers"]),
        ({**GROUPS, "ray_workers": ["b"]}, ["host c", "neither", "put it into one"]),
        (
            {**GROUPS, "ray_workers": [], "workers": ["b", "c"]},
            ["hosts b, c: they are in group cluster but in neither", "rename the group workers to ray_workers"],
        ),
        ({**GROUPS, "ray_workers": ["b", "c", "d"]}, ["host d", "not in group cluster"]),
        ({**GROUPS, "ray_workers": ["b", "c", "d", "e"]}, ["hosts d, e: they are in ray_head or ray_workers but"]),
        ({**GROUPS, "sparks": ["a"], "thors": ["a"]}, ["host a", "sparks and thors"]),
    ],
)
def test_groups(groups, words):
    problem = only(inventory.group_problems(groups))
    for word in words:
        assert word in problem


def test_hosts_that_are_heads_and_workers_at_once():
    groups = {"cluster": ["a", "b"], "ray_head": ["a", "b"], "ray_workers": ["a", "b"]}
    problem = only(inventory.group_problems(groups, ["one", "two"]))
    assert problem == "hosts a, b: they are in both ray_head and ray_workers; remove them from one of the two groups"


def test_unknown_topology_names_value_choices_and_the_likely_one():
    problem = only(inventory.inventory_problems(GROUPS, variables(fabric_topology="swich")))
    assert problem.startswith("fabric_topology: 'swich'")
    assert "direct, ring, line, switch, lan" in problem
    assert "did you mean 'switch'" in problem


def test_missing_topology():
    hostvars = variables()
    for values in hostvars.values():
        del values["fabric_topology"]
    assert "host a: fabric_topology: it is not set" in only(inventory.inventory_problems(GROUPS, hostvars))


def test_a_cluster_wide_variable_that_differs_names_the_hosts():
    hostvars = variables()
    hostvars["c"]["fabric_cidr"] = "10.101.0.0/16"
    problem = only(inventory.inventory_problems(GROUPS, hostvars))
    assert problem.startswith("fabric_cidr")
    assert "'10.101.0.0/16' on c" in problem


def test_what_may_hold_a_secret_is_not_shown_where_it_differs():
    hostvars = variables()
    hostvars["a"]["serving_beside"] = {"embed": {"vllm_serve_env": {"HF_TOKEN": "hf_SECRET"}}}
    [problem] = inventory.wide_problems(hostvars, list(hostvars))
    assert "(a mapping (not shown) on a; undefined on b, c)" in str(problem)
    assert "hf_SECRET" not in str(problem)


@pytest.mark.parametrize("names", [True, 7, "big,small", {"big": 1}])
def test_what_is_no_list_of_groups_makes_none(names):
    assert inventory.parts(GROUPS, names) == inventory.parts(GROUPS, [])


@pytest.mark.parametrize(("value", "what"), [("", "is empty"), (None, "is empty"), ("short", "has 5 characters")])
@pytest.mark.parametrize("name", ["vllm_serve_api_key", "ray_node_token"])
def test_a_given_secret_must_be_long_enough_and_is_never_shown(name, value, what):
    problem = only(inventory.inventory_problems(GROUPS, variables(**{name: value})))
    assert problem.startswith(f"hosts a, b, c: {name}: the value given {what}; give at least 16 characters")
    assert not value or value not in problem.replace("shorter", "")


def test_a_split_that_the_hosts_cannot_carry():
    groups = {"cluster": ["a"], "ray_head": ["a"], "ray_workers": []}
    hostvars = {"a": {**variables()["a"], "vllm_serve_pipeline_parallel_size": 3}}
    problem = only(inventory.inventory_problems(groups, hostvars))
    assert "vllm_serve_pipeline_parallel_size" in problem
    assert "needs 3 GPUs" in problem
    assert "have 1" in problem


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        (
            {"tensor": 4},
            "vllm_serve_tensor_parallel_size: 4: it needs 4 GPUs, and the 3 host(s) of group cluster have 3; "
            "lower it, remove the line and the split is planned, or add hosts to ray_workers",
        ),
        (
            {"tensor": 2, "pipeline": 2},
            "vllm_serve_tensor_parallel_size and vllm_serve_pipeline_parallel_size: tensor "
            "parallel 2 × pipeline parallel 2 needs 4 GPUs, and the 3 host(s) of group cluster have 3; lower them, "
            "remove the lines and the split is planned, or add hosts to ray_workers",
        ),
    ],
)
def test_a_split_names_what_is_set(sizes, said):
    given = {f"vllm_serve_{name}_parallel_size": size for name, size in sizes.items()}
    assert only(inventory.inventory_problems(GROUPS, variables(**given))) == said


@pytest.mark.parametrize(
    ("gpus", "refused"),
    [
        ({}, True),
        ({"a": 1}, True),
        ({"b": 2}, False),  # a worker's count as much as the head's
        ({"a": 2, "b": 2, "c": 1}, False),
        ({"a": 2, "b": 1, "c": 0}, True),
        ({"a": "2"}, False),
        ({"a": "auto", "b": "auto", "c": "auto"}, False),  # the default: only the hosts know
        ({"c": "auto"}, False),
        ({"c": "two"}, False),  # the role's own check says what is wrong with it
        ({"c": ""}, True),
    ],
)
def test_a_split_is_held_against_every_hosts_gpus(gpus, refused):
    hostvars = variables(vllm_serve_pipeline_parallel_size=4)
    for host, count in gpus.items():
        hostvars[host]["ray_node_num_gpus"] = count
    found = inventory.inventory_problems(GROUPS, hostvars)
    assert [problem for problem in found if "needs 4 GPUs" in str(problem)] == found
    assert bool(found) is refused


@pytest.mark.parametrize("value", ["three", "auto", 0, -1])
def test_a_split_that_is_no_number(value):
    problem = only(inventory.inventory_problems(GROUPS, variables(vllm_serve_tensor_parallel_size=value)))
    assert repr(value) in problem
    assert "auto" not in problem.partition("; ")[2]


def test_a_cage_that_the_list_of_cages_does_not_have():
    found = inventory.cage_problems({"a": {"fabric_cage": "0", "fabric_cages": [1]}}, ["a"])
    assert str(only(found)).startswith("host a: fabric_cage: '0': fabric_cages of this host is [1], without that cage;")
    for sound in ({"fabric_cage": 0}, {"fabric_cages": [1]}, {"fabric_cage": "1", "fabric_cages": [0, 1]}):
        assert inventory.cage_problems({"a": sound}, ["a"]) == []
    problems = inventory.inventory_problems(GROUPS, variables(fabric_cage=0, fabric_cages=[1]))
    assert [one.host for one in problems if "without that cage" in one.what] == ["a", "b", "c"]


def test_what_only_follows_from_a_name_written_wrong_is_not_told():
    unset = Finding("unset", "none is named", "set vllm_serve_recipe or vllm_serve_model", where="vllm_serve_recipe")
    topology = Finding("unset", "it is not set", "say how", "a", "fabric_topology")
    other = Finding("unknown", f"no role has a variable of this name{inventory.closest('zzz', ['abc'])}", "correct it")
    assert inventory.without_consequences([unset, topology, other, "a line"]) == [unset, topology, other, "a line"]
    for written, gone in (("vllm_serve_modell", unset), ("vllm_serve_recip", unset), ("fabric_topolgy", topology)):
        known = ["vllm_serve_model", "vllm_serve_recipe", "fabric_topology"]
        cause = Finding("unknown", f"no role has it{inventory.closest(written, known)}", "correct it", where=written)
        assert inventory.without_consequences([unset, topology, cause]) == [
            one for one in (unset, topology, cause) if one is not gone
        ]


def test_secrets_of_hosts_that_differ_are_told_by_what_is_wrong():
    hostvars = variables(vllm_serve_api_key="short")
    hostvars["b"]["vllm_serve_api_key"] = ""
    hostvars["c"]["vllm_serve_api_key"] = "long enough for anybody"
    assert [(one.host, one.what) for one in inventory.secret_problems(hostvars, list("abc"))] == [
        ("a", "the value given has 5 characters"),
        ("b", "the value given is empty"),
    ]


@pytest.mark.parametrize(("value", "meant"), [("docker", "container"), ("Podman", "container"), ("vnev", "venv")])
def test_a_runtime_that_is_none_is_told_once(value, meant):
    found = inventory.inventory_problems(GROUPS, variables(engine_runtime=value))
    assert f"it is not one of venv, container (did you mean '{meant}'?)" in only(found)
    argument = Finding("argument", f"value of engine_runtime must be one of: venv, got: {value}", "correct it")
    other = Finding("argument", "value of engine_runtime_x must be one of: a", "correct it")
    engine = Finding("engine", f"vLLM cannot do a {value}", "set serving_engine to x, or change engine_runtime")
    count = Finding("engine", "vLLM cannot do two", "change vllm_serve_executor: no engine here can")
    assert inventory.without_consequences([*found, argument, other, engine, count]) == [*found, other, count]
    assert inventory.without_consequences([argument, engine]) == [argument, engine]


def test_one_address_for_two_hosts():
    hostvars = variables()
    hostvars["b"]["ansible_host"] = "192.0.2.1"
    found = inventory.inventory_problems(GROUPS, hostvars)
    assert "hosts a and b have the same address 192.0.2.1" in only(found)
    again = fabric_problems("switch", list("abc"), "10.100.0.0/16", management=dict.fromkeys("ab", "192.0.2.1"))
    assert "management address of host b is 192.0.2.1: host a has the same address" in only(again)
    assert inventory.without_consequences([*found, *again]) == found
    assert inventory.without_consequences(again) == again


@pytest.mark.parametrize("address", ["192.168.1.300", "192.168.1", "10.0.0.1.2"])
def test_an_address_that_is_none(address):
    hostvars = variables()
    hostvars["b"]["ansible_host"] = address
    problem = only(inventory.inventory_problems(GROUPS, hostvars))
    assert f"host b: ansible_host: '{address}': it is no IPv4 address; give four numbers from 0 to 255" in problem


@pytest.mark.parametrize("empty", [None, ""])
@pytest.mark.parametrize("name", ["ansible_host", "ansible_port", "ansible_user"])
def test_an_empty_line_of_the_way_in(name, empty):
    """Ansible logs in as somebody, or nowhere: a host without the line has the default."""
    hostvars = variables()
    hostvars["b"][name] = empty
    problem = only(inventory.inventory_problems(GROUPS, hostvars))
    assert problem.startswith(f"host b: {name}: it is empty; give the ")
    assert problem.endswith(", or remove the line")


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        (
            "Failed to connect to the host via ssh: Host key verification failed.",
            "connect once with `ssh nvidia@192.0.2.7`",
        ),
        (
            "@@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @@ Host key verification failed.",
            "ssh-keygen -R 192.0.2.7",
        ),
        (
            "Failed to connect to the host via ssh: nvidia@192.0.2.7: Permission denied (publickey,password).",
            "ssh-copy-id nvidia@192.0.2.7",
        ),
        ("Missing sudo password", "--ask-become-pass"),
        ("Incorrect sudo password", "ansible_become_password per host"),
        (
            "Duplicate become password prompt encountered waiting for become success. [sudo via ansible] password:",
            "ansible_become_password per host",
        ),
        ("[sudo via ansible] password: Sorry, try again.", "ansible_become_password per host"),
        ("nvidia is not in the sudoers file.", "usermod -aG sudo nvidia"),
        ("Premature end of stream waiting for become success. /bin/sh: 1: sudo: not found", "install sudo on it"),
        ("The module interpreter '/usr/bin/python9' was not found.", "install python3 on it"),
        ("/bin/sh: /usr/bin/python3: No such file or directory", "install python3 on it"),
        ("sudo: a password is required", "--ask-become-pass"),
        ("ssh: connect to host 192.0.2.7 port 22: Connection refused", "install openssh-server"),
        ("ssh: Could not resolve hostname x: Name or service not known", "set ansible_host"),
        (
            "ssh: connect to host 192.0.2.7 port 22: Connection timed out",
            "check power, cable, ansible_host and ansible_port. Frozen",
        ),
        ("Connection timed out during banner exchange", "hold the power button"),
        ("ssh: connect to host 192.0.2.7 port 22: No route to host", "hold the power button"),
        ("Connection reset by peer", "check power, cable, ansible_host and ansible_port, then `ssh nvidia@192.0.2.7`"),
        ("Timed out after 45 second(s).", "`ssh nvidia@192.0.2.7 uptime`"),
    ],
)
def test_first_contact_names_the_fix(message, fix):
    # nobody is sent to the power button of a machine that answers
    assert ("power button" in str(inventory.explain_contact("x", "192.0.2.7", "", message))) is (
        "No route" in message or "Connection timed out" in message
    )
    text = str(inventory.explain_contact("x", "192.0.2.7", "nvidia", message))
    assert text.startswith("host x: ")
    assert fix in text


@pytest.mark.parametrize(
    ("topology", "forks", "refused"),
    [("ring", 1, True), ("ring", 2, True), ("ring", 3, False), ("direct", 3, False), ("switch", 1, False)],
)
def test_cabled_neighbours_need_to_run_at_the_same_time(topology, forks, refused):
    hosts = ["a", "b", "c"]
    found = inventory.forks_problems(hosts, {"a": {"fabric_topology": topology}}, forks)
    assert bool(found) is refused
    assert all("--forks=3 or more" in str(finding) for finding in found)
    assert inventory.forks_problems([], {}, 1) == []
