# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action.cluster_plan import ActionModule
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub, hub_card
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe_catalogue, virtual_address
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import (
    ClusterError,
    cluster_id,
    head_generation,
    plan_cluster,
    stated_gpu_problems,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import fabric_check

from tests.unit.planned_cluster import GIB, node, planned


def test_the_plan_names_head_addresses_and_gpus():
    _first, cluster, fabric, _nodes = planned(["a", "b", "c"])
    assert cluster["head"] == "a"
    assert cluster["workers"] == ["b", "c"]
    assert cluster["world"] == 3
    assert cluster["head_address"] == fabric["a"]["control_address"] == "10.100.0.1"
    assert {fabric[host]["env"]["RAY_ADDRESS"] for host in "abc"} == {"10.100.0.1:6379"}
    assert "RoCE" in cluster["summary"]


def test_gpus_given_by_the_user_win():
    several = {host: {**node(number, "generic"), "gpus": 2} for number, host in enumerate("ab", 1)}
    groups = {"cluster": ["a", "b"], "ray_head": ["a"], "ray_workers": ["b"]}
    for given, booked in (("auto", 2), (2, 2), ("1", 1), (0, 0)):
        hostvars = {key: {"fabric_topology": "lan", "ray_node_num_gpus": given} for key in "ab"}
        cluster, _fabric, _warnings = plan_cluster(groups, ["a", "b"], hostvars, several)
        assert cluster["gpus"] == {"a": booked, "b": booked}


@pytest.mark.parametrize(
    ("kind", "facts", "given", "words"),
    [
        ("spark", {}, 4, "host a: ray_node_num_gpus: 4: a Spark has one GPU; give 1, or remove the line"),
        ("spark", {"gpus": 0}, "2", "ray_node_num_gpus: 2: a Spark has one GPU"),
        ("spark", {"assumed": True}, 4, "a Spark has one GPU"),
        ("thor", {}, 2, "a Thor has one GPU"),
        ("generic", {"gpus": 2}, 3, "the driver shows 2 GPUs; give 2"),
        ("generic", {"gpus": 0}, 1, "the driver shows no GPUs; install the driver"),
        ("spark", {"gpus": 0}, 1, ""),
        ("generic", {"assumed": True}, 8, ""),
    ],
)
def test_more_gpus_than_a_host_has_are_refused(kind, facts, given, words):
    groups = {"cluster": ["a"], "ray_head": ["a"], "ray_workers": []}
    variables = {"a": {"fabric_topology": "lan", "ray_node_num_gpus": given}}
    nodes = {"a": {**node(1, kind), **facts}}
    if words:
        with pytest.raises(ClusterError, match=re.escape(words)):
            plan_cluster(groups, ["a"], variables, nodes)
    else:
        assert plan_cluster(groups, ["a"], variables, nodes)[0]["gpus"]["a"] == given


@pytest.mark.parametrize(
    ("group", "given", "words"),
    [
        ("sparks", 4, "host a: ray_node_num_gpus: 4: a Spark has one GPU; give 1, or remove the line"),
        ("thors", " 2 ", "host a: ray_node_num_gpus: 2: a Thor has one GPU; give 1, or remove the line"),
        ("sparks", 1, ""),
        ("sparks", "auto", ""),
        ("sparks", True, ""),
        ("sparks", "four", ""),  # the check of the arguments has the words
        ("sparks", None, ""),
        ("machines", 4, ""),
    ],
)
def test_more_gpus_than_the_stated_kind_has_are_refused_before_a_host_is_asked(group, given, words):
    groups = {"cluster": ["a", "b"], group: ["a", "elsewhere"]}
    hostvars = {"a": {"ray_node_num_gpus": given}, "b": {"ray_node_num_gpus": 8}}
    assert [str(finding) for finding in stated_gpu_problems(groups, hostvars)] == ([words] if words else [])


def test_a_mixed_lan_says_why_it_speaks_tcp():
    _first, cluster, _fabric, _nodes = planned(["a", "t"], topology="lan", kinds={"t": "thor"})
    assert cluster["profile"] == "tcp"
    assert "one transport for all, because t has no RDMA" in cluster["summary"]


def test_what_carries_the_traffic_of_hosts_of_one_kind():
    _first, cluster, _fabric, _nodes = planned(["a"], topology="lan")
    assert cluster["summary"].endswith("1 host (a spark), head a on 192.168.1.11, 1 GPU, no network between ranks")
    _first, cluster, _fabric, _nodes = planned(["a", "b"], topology="lan")
    assert cluster["summary"].endswith("2 GPUs, TCP on every rank: the topology lan has no fabric")


def test_a_host_of_another_kind_than_its_group_says_is_named():
    groups = {"cluster": ["a", "b"], "ray_head": ["a"], "ray_workers": ["b"], "thors": ["b"]}
    variables = {"fabric_topology": "lan"}
    with pytest.raises(ClusterError, match="host b: group thors says it is a thor, but it is a spark"):
        plan_cluster(groups, ["a", "b"], {"a": variables, "b": variables}, {"a": node(1), "b": node(2)})


# -- who is head, and since when ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "generation"),
    [
        ([None, None], 1),
        ([("a", 0), ("a", 0)], 1),  # set up before generations were counted
        ([("a", 3), None], 3),  # a host is new
        ([("a", 3), ("a", 3)], 3),
        ([("b", 3), ("b", 3)], 4),  # another head than before
        ([("a", 4), ("b", 3)], 5),  # a run that ended half way: once more, and it is settled
        ([("a", 3, 5), ("a", 3)], 6),  # it stays down for what it heard of another head: above that
        ([("a", 6, 5), ("a", 6)], 6),  # and then it is settled
        ([("a", 3), ("a", 3, 5)], 6),
    ],
)
def test_the_generation_grows_when_another_host_is_declared_head(known, generation):
    assert head_generation("a", declared(known)) == generation


def declared(known, cluster="one"):
    return {
        chr(ord("a") + number): {
            "declared": {"head": one[0], "generation": one[1], "seen": one[-1], "cluster": cluster} if one else {},
            "management": {"address": f"192.168.1.{number}"},
        }
        for number, one in enumerate(known)
    }


class Hosts:
    """What site.yml does to the declarations of the hosts in its inventory."""

    def __init__(self):
        self.known = {}

    def play(self, *hosts):
        nodes = {
            host: {"declared": self.known.get(host, {}), "management": {"address": f"192.168.1.{ord(host)}"}}
            for host in hosts
        }
        head = hosts[0]
        generation, cluster = head_generation(head, nodes), cluster_id(head, hosts, nodes)
        for host in hosts:
            self.known[host] = {"head": head, "generation": generation, "seen": generation, "cluster": cluster}
        return generation, cluster

    def hears(self, host, generation):
        self.known[host]["seen"] = max(self.known[host]["seen"], generation)


def test_a_head_is_moved_there_and_back_while_the_former_one_is_away():
    hosts = Hosts()
    assert hosts.play("a", "b", "c")[0] == hosts.play("a", "b", "c")[0] == 1
    assert hosts.play("b", "c")[0] == 2
    hosts.hears("a", 2)
    assert hosts.play("a", "b", "c") == hosts.play("a", "b", "c")
    assert hosts.known["a"]["generation"] == 3


def test_one_cluster_is_split_in_two_and_joined_again():
    hosts = Hosts()
    hosts.play("a", "b", "c", "d")
    second, _cluster = hosts.play("c", "d")
    # its inventory was not run yet: it holds the new head for its successor, and stays down
    hosts.hears("a", second)
    first, cluster = hosts.play("a", "b")
    assert first > second
    assert hosts.play("a", "b") == (first, cluster)
    assert hosts.play("c", "d")[0] == second
    joined, name = hosts.play("a", "b", "c", "d")
    assert (joined, name) == (first + 1, cluster)
    assert hosts.play("a", "b", "c", "d")[0] == joined


def test_a_cluster_keeps_its_name_while_hosts_come_and_go():
    nodes = declared([None, None])
    name = cluster_id("a", ["a", "b"], nodes)
    assert len(name) == 16
    assert cluster_id("a", ["a", "b"], nodes) == name
    # a head that was set up anew gets it back from the others
    nodes = {**declared([None, ("a", 1), ("a", 1)], name)}
    assert cluster_id("a", ["a", "b", "c"], nodes) == name
    # whoever joins takes that of its new head
    joined = {**declared([("a", 1), None], "one"), "c": declared([("x", 1)], "two")["a"]}
    assert cluster_id("a", ["a", "b", "c"], joined) == "one"


def run_stage(hostvars, **args):
    task = SimpleNamespace(args=args, check_mode=False, diff=False, async_val=0, action="cluster_plan")
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    groups = {"cluster": ["a", "b"], "ray_head": ["a"], "ray_workers": ["b"]}
    task_vars = {"groups": groups, "hostvars": hostvars, "ansible_play_hosts": ["a", "b"]}
    task_vars["ansible_play_hosts_all"] = task_vars["ansible_play_hosts"]
    return ActionModule(task, connection, SimpleNamespace(), None, None, None).run(task_vars=task_vars)


def test_hosts_that_were_not_read_are_named_with_what_their_task_said():
    variables = {"fabric_topology": "switch", "fabric_cidr": "10.100.0.0/24"}
    answered = {"ansible_facts": {"sparkthor_node": node(1)}}
    away = {"unreachable": True, "msg": "ssh: connect to host b port 22: Connection refused"}
    hostvars = {"a": {**variables, "read": answered}, "b": {**variables, "ansible_host": "192.168.1.12", "read": away}}
    with pytest.raises(AnsibleActionFail, match=r"one problem to fix first\.\n  - host b: .*runs no ssh server"):
        run_stage(hostvars, stage="facts", nodes="read")
    with pytest.raises(AnsibleActionFail, match="nodes: name the variable"):
        run_stage(hostvars, stage="facts")


def test_each_problem_of_the_facts_is_told_once():
    variables = {"fabric_topology": "switch", "fabric_cidr": "10.100.0.0/24", "ray_node_num_gpus": 4}
    read = {host: {"ansible_facts": {"sparkthor_node": node(number)}} for number, host in enumerate("ab", 1)}
    with pytest.raises(AnsibleActionFail) as caught:
        run_stage({host: {**variables, **answer, "read": answer} for host, answer in read.items()}, nodes="read")
    # with the causes that Ansible shows
    assert str(caught.value).startswith("Nothing was changed: one problem to fix first.")
    assert str(caught.value).endswith(
        "hosts a, b: ray_node_num_gpus: 4: a Spark has one GPU; give 1, or remove the line"
    )


def test_what_each_group_serves_is_told(monkeypatch):
    monkeypatch.setattr(
        recipe_catalogue, "chosen_lines", lambda serving, hosts, *_more: [f"{serving['model']} {hosts}"]
    )

    def served(head, hosts, model):
        serving = {"model": model, "memory": None}
        return {"sparkthor_cluster": {"head": head, "hosts": hosts, "topology": "lan", "kinds": {}, "serving": serving}}

    both = run_stage({"a": served("a", ["a"], "m"), "b": served("b", ["b"], "n")}, stage="chosen")
    assert both["lines"] == ["m ['a']", "n ['b']"]
    # whichever host the inventory names first
    together = served("b", ["b", "a"], "m")
    assert run_stage({"a": together, "b": together}, stage="chosen")["lines"] == ["m ['b', 'a']"]


# -- the NIC that peers use, the port of Ray -------------------------------------------------------------------------


def two_nics(number, second=True):
    """A host that ssh reaches over enP7s7 and that has its LAN on another NIC."""
    entry = node(number, "generic")
    link = {"family": "inet6", "scope": "link", "address": f"fe80::{number}/64"}
    lan = {"family": "inet", "scope": "global", "address": f"10.20.0.{number}/16"}
    ssh = {"family": "inet", "scope": "global", "address": entry["management"]["cidr"]}
    entry["interfaces"] = [
        {"name": "enP7s7", "carrier": True, "mtu": 1500, "addresses": [ssh]},
        {"name": "enp1s0f0np0", "carrier": True, "mtu": 1500, "addresses": [link, *([lan] if second else [])]},
    ]
    return entry


def plan_of(nodes, **variables):
    hosts = list(nodes)
    groups = {"cluster": hosts, "ray_head": hosts[:1], "ray_workers": hosts[1:]}
    hostvars = {host: {"fabric_topology": "lan", **variables} for host in hosts}
    return plan_cluster(groups, hosts, hostvars, nodes)[1]


def test_the_lans_nic_brings_its_own_address():
    nodes = {"a": two_nics(1), "b": two_nics(2)}
    fabric = plan_of(nodes, fabric_lan_nic="enp1s0f0np0")
    entry = fabric["b"]
    assert (entry["control_netdev"], entry["control_address"]) == ("enp1s0f0np0", "10.20.0.2")
    assert [(link["netdev"], link["address"]) for link in entry["links"]] == [("enp1s0f0np0", "10.20.0.2/16")]
    assert entry["env"]["RAY_ADDRESS"] == "10.20.0.1:6379"
    assert entry["env"]["NCCL_SOCKET_IFNAME"] == "=enp1s0f0np0"
    # what a change of the network has to leave alone is the way in all the same
    assert (entry["management_netdev"], entry["management_address"]) == ("enP7s7", "192.168.1.12")
    assert fabric_check.check_facts(fabric, nodes) == []


def test_a_ring_speaks_over_the_lans_nic_too():
    nodes = {host: {**two_nics(number), "kind": "spark"} for number, host in enumerate("abc", 1)}
    fabric = plan_of(nodes, fabric_topology="ring", fabric_cidr="10.100.0.0/24", fabric_lan_nic="enp1s0f0np0")
    assert (fabric["c"]["control_netdev"], fabric["c"]["control_address"]) == ("enp1s0f0np0", "10.20.0.3")


def test_without_a_lan_nic_the_way_in_is_the_lan():
    fabric = plan_of({"a": two_nics(1), "b": two_nics(2)})
    assert (fabric["a"]["control_netdev"], fabric["a"]["control_address"]) == ("enP7s7", "192.168.1.11")


def test_a_lan_nic_without_an_address_is_named():
    with pytest.raises(ClusterError, match="fabric_lan_nic of host b is enp1s0f0np0, which has no IPv4 address there"):
        plan_of({"a": two_nics(1), "b": two_nics(2, second=False)}, fabric_lan_nic="enp1s0f0np0")


def test_a_host_that_nobody_could_ask_keeps_the_address_of_the_inventory():
    fabric = plan_of({"a": node(1, "generic"), "b": node(2, "generic")}, fabric_lan_nic="eth9")
    assert (fabric["b"]["control_netdev"], fabric["b"]["control_address"]) == ("eth9", "192.168.1.12")


def test_the_engine_is_told_where_rays_gcs_listens():
    _first, _cluster, fabric, _nodes = planned(["a", "b"], ray_node_ports={"gcs": 7379})
    assert {fabric[host]["env"]["RAY_ADDRESS"] for host in "ab"} == {"10.100.0.1:7379"}


@pytest.mark.parametrize("port", ["7379", 80, True, None])
def test_a_port_that_is_none_is_refused_before_anything_is_written(port):
    with pytest.raises(ClusterError, match=r"^ray_node_ports\.gcs is .*: not a port from 1024"):
        planned(["a", "b"], ray_node_ports={"gcs": port})


@pytest.mark.parametrize(
    ("there", "selected", "planned"),
    [
        (["firewall", "vllm_serve"], ["firewall"], False),
        (["firewall", "vllm_serve"], ["firewall", "vllm_serve"], True),
        # a play that has no such role may read the plan all the same, as monitoring does
        (["firewall"], ["firewall"], True),
    ],
)
def test_serving_is_planned_for_a_run_that_may_read_it(there, selected, planned):
    action = object.__new__(ActionModule)
    action.vars = {
        "ansible_play_role_names": [f"sparkthor.cluster.{role}" for role in there],
        "ansible_run_tags": selected,
        "ansible_skip_tags": [],
    }
    head = {"vllm_serve_recipe": "no-such-recipe"}
    refused = r"Nothing was changed: vllm_serve_recipe='no-such-recipe' is unknown"
    cluster = {"hosts": ["a"], "topology": "lan", "gpus": {"a": 1}, "kinds": {"a": "spark"}}
    if planned:
        with pytest.raises(AnsibleActionFail, match=refused):
            action._serving(head, cluster, {"a": {"mem_total_bytes": GIB}})
    else:
        assert action._serving(head, cluster, {"a": {"mem_total_bytes": GIB}}) == {}


# -- models of the hub -------------------------------------------------------------------------------------------------


class Said:
    """What an action displays."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def display(self, line: str) -> None:
        self.lines.append(line)

    warning = display


def hub_action(roles=("model_store",)):
    action = object.__new__(ActionModule)
    action.vars = {
        "ansible_play_role_names": [f"sparkthor.cluster.{role}" for role in roles],
        "ansible_run_tags": ["all"],
        "ansible_skip_tags": [],
    }
    action._display = Said()
    return action


def test_a_model_of_the_hub_is_planned_by_what_the_hub_tells(monkeypatch):
    action = hub_action()
    monkeypatch.setattr(hub_card, "card", lambda *model, token=None: hub_card.Card("c", {"a": 1}, 7, 8))
    assert action._of_hub({}, False, "owner/model", "") == ({"a": 1}, 7)


def test_without_the_hub_what_it_told_before_will_do(monkeypatch):
    def away(*_model, token=None):
        raise hub.Unreachable("the hub does not answer")

    action = hub_action()
    monkeypatch.setattr(hub_card, "card", away)
    monkeypatch.setattr(hub_card, "kept", lambda *_model: hub_card.Card("c", {"a": 1}, 7, 8))
    assert action._of_hub({}, False, "owner/model", "") == ({"a": 1}, 7)
    monkeypatch.setattr(hub_card, "kept", lambda *_model: None)
    with pytest.raises(AnsibleActionFail, match="Nothing was changed: vllm_serve_model: the hub does not answer"):
        action._of_hub({}, False, "owner/model", "")
    # a rendered plan, or hosts that fetch the model themselves, may do without
    for head, assumed in (({}, True), ({"vllm_serve_from_hub": True}, False)):
        assert action._of_hub(head, assumed, "owner/model", "") is None
        assert action._display.lines.pop() == "the hub does not answer"


def test_only_a_run_that_copies_models_asks_for_them(monkeypatch):
    download = hub_card.Download("m", "owner/model", 2**30, 2**29, "/cache")
    told = []
    monkeypatch.setattr(
        hub_card, "models_of", lambda *_given, caches, how: told.append(caches) or hub_card.Models({"m": 5}, [download])
    )
    nodes = {"a": {"hub_models": {"owner/model": 9}}, "b": {}}
    assert hub_action(["firewall"])._models({}, {}, nodes) == {}
    action = hub_action()
    assert action._models({}, {"models": [{"name": "m", "source": "owner/model"}]}, nodes) == {"store_bytes": {"m": 5}}
    assert told == [{"a": {"owner/model": 9}, "b": {}}]
    assert action._display.lines == [
        "sparkthor: owner/model: 1.0 GiB, 512.0 MiB of it are in /cache; to fetch 512.0 MiB, 0 min at 100 MB/s"
    ]


def test_one_revision_is_planned_for_all_hosts(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "tiny"
    source.mkdir()
    (source / "config.json").write_text("{}")
    serving = {"model": "tiny", "models": [{"name": "tiny", "source": str(source)}]}
    old, other = "tiny@" + "0" * 16, "tiny@" + "1" * 16
    agreed = {host: {"models": {"tiny": old}} for host in ("a", "b")}
    # a run that brings the models plans what it brings, one that does not what the hosts have
    brought = hub_action(["model_store", "vllm_serve"])._revisions({}, serving, agreed)
    assert brought["tiny"] not in (old, "tiny")
    assert hub_action(["vllm_serve"])._revisions({}, serving, agreed) == {"tiny": old}
    torn = {"a": {"models": {"tiny": old}}, "b": {"models": {"tiny": other}}}
    assert hub_action(["model_store", "vllm_serve"])._revisions({}, serving, torn) == brought
    with pytest.raises(AnsibleActionFail, match=f"Nothing was changed: .*\n.*a {old}, b {other}"):
        hub_action(["vllm_serve"])._revisions({}, serving, torn)
    smaller = {"model": "large", "degraded": {"model": "tiny"}}
    with pytest.raises(AnsibleActionFail, match="different revisions"):
        hub_action(["vllm_serve"])._revisions({}, smaller, torn)
    # who brings the models says what is wrong with them
    absent = {"model_store_models": [{"name": "tiny", "source": "/no/such/folder"}]}
    assert hub_action()._revisions(absent, {}, agreed) == {"tiny": old}


def test_what_cannot_be_downloaded_is_reported_with_the_rest(monkeypatch):
    def gated(*_given, caches, how):
        assert how == "auto"
        raise hub.HubError("m: owner/model is gated")

    monkeypatch.setattr(hub_card, "models_of", gated)
    assert hub_action()._models({}, {}, {}) == {"store_problems": ["model_store_models: m: owner/model is gated"]}


def test_the_run_ends_with_a_command_to_use():
    action = hub_action()
    action._task = SimpleNamespace(check_mode=False)
    action._templar = SimpleNamespace(template=lambda value: value)
    serving = {"served_model_name": "tiny", "args": {}}
    action.vars |= {
        "sparkthor_cluster": {"head": "a", "topology": "switch", "serving": serving},
        "sparkthor_fabric": {"a": {"management_address": "192.168.1.11"}},
        "sparkthor_secrets_dir": "/inv/.secrets",
        "vllm_serve_tls": "auto",
        "vllm_serve_api_port": "8000",
        "vllm_serve_tls_names": [],
        "vllm_serve_listen": ["0.0.0.0"],
    }
    lines = action._usage_stage()["lines"]
    assert lines[0] == "The API is at http://192.168.1.11:8000/v1, and the model is called tiny."
    assert lines[1] == "Its key is in /inv/.secrets/api_key."
    assert action._display.lines == [f"sparkthor: {line}" for line in lines]
    del action.vars["sparkthor_cluster"]["serving"]
    assert action._usage_stage() == {"changed": False, "lines": []}


# -- the virtual address of several front proxies ----------------------------------------------------------------------


def test_one_front_proxy_alone_has_no_address_to_share():
    variables = {
        **{"fabric_topology": "switch", "fabric_cidr": "10.100.0.0/24"},
        "vllm_serve_virtual_address": "192.168.1.100/24",
    }
    with pytest.raises(
        AnsibleActionFail, match=r"one problem to fix first\.\n.*'192.168.1.100/24': only a has a front"
    ):
        run_stage({"a": variables, "b": variables}, stage="inventory")
    variables["vllm_serve_virtual_router_id"] = 300
    with pytest.raises(AnsibleActionFail, match=r"vllm_serve_virtual_router_id: '300': .* from 1 to 255"):
        run_stage({"a": variables, "b": variables}, stage="inventory")


def shared_by(monkeypatch, somebody, assumed=False, declared="", **more):
    """The plans of two groups after the address was given to them."""
    nodes = {host: {**node(number), "declared": {"virtual": declared}} for number, host in enumerate("ab", 1)}
    network = nodes["a"]["management"]["cidr"].rpartition(".")[0]
    variables = {"fabric_topology": "switch", "vllm_serve_virtual_address": f"{network}.100"}
    action = hub_action()
    action.vars["hostvars"] = {"a": {**variables, **more}, "b": variables}
    fabric = {
        host: {"management_netdev": own["management"]["netdev"], "management_address": own["management"]["address"]}
        for host, own in nodes.items()
    }
    plans = [{"head": host, "topology": "switch"} for host in "aab"]
    asked = []
    monkeypatch.setattr(virtual_address, "answered", lambda *given: asked.append(given) or somebody)
    action._share_address(plans, {"a": variables, "b": variables}, nodes, fabric, assumed)
    assert all(plan["virtual"] == plans[0]["virtual"] for plan in plans)
    return plans[0]["virtual"], asked


def test_all_plans_get_the_address_unless_a_stranger_has_it(monkeypatch):
    virtual, asked = shared_by(monkeypatch, somebody=False)
    address = virtual["address"].partition("/")[0]
    assert [holder["host"] for holder in virtual["holders"]] == ["a", "b"]
    assert asked == [(address, 8000)]
    with pytest.raises(AnsibleActionFail, match="somebody in the LAN answers there"):
        shared_by(monkeypatch, somebody=True)
    # a head of ours has it, or nobody is asked at all
    assert shared_by(monkeypatch, somebody=True, declared=address)[1] == []
    assert shared_by(monkeypatch, somebody=True, assumed=True)[1] == []
    with pytest.raises(AnsibleActionFail, match=r"host a: .*does not listen on it: 127.0.0.1"):
        shared_by(monkeypatch, somebody=False, vllm_serve_listen=["127.0.0.1"])


def test_the_run_ends_with_the_address_that_all_heads_share():
    action = hub_action()
    action._task = SimpleNamespace(check_mode=False)
    action._templar = SimpleNamespace(template=lambda value: value)
    holders = [
        {"host": host, "interface": "eth0", "address": f"192.168.1.{end}"} for host, end in (("a", 11), ("b", 12))
    ]
    virtual = {"address": "192.168.1.100/24", "router_id": 51, "holders": holders}
    serving = {"served_model_name": "tiny", "args": {}}
    action.vars |= {
        "sparkthor_cluster": {"head": "a", "topology": "switch", "serving": serving, "virtual": virtual},
        "sparkthor_fabric": {"a": {"management_address": "192.168.1.11"}},
        "vllm_serve_api_key": "given",
        "vllm_serve_tls": "self_signed",
        "vllm_serve_api_port": 8000,
        "vllm_serve_tls_names": ["api.lan"],
        "vllm_serve_listen": ["0.0.0.0"],
        "console_enabled": True,
    }
    lines = action._usage_stage()["lines"]
    assert lines[0] == "The API is at https://192.168.1.100:8000/v1, and the model is called tiny."
    assert lines[2].startswith("In a browser, with that key: https://192.168.1.100:8000/")
    assert "for head in 192.168.1.11 192.168.1.12;" in lines[4]


def beside_action(nodes, args=None, **embed):
    """An action whose inventory has a group beside the one of three Sparks, and that group's plan."""
    hosts = ["a", "b", "c"]
    given = {"host": "a", "vllm_serve_recipe": "qwen3-embedding-0.6b", "vllm_serve_max_model_len": 8192, **embed}
    recipe = {"vllm_serve_recipe": "qwen3.5-397b-a17b-nvfp4", "serving_beside": {"embed": given}}
    recipe["vllm_serve_args"] = args or {}
    first, cluster, fabric, _nodes = planned(hosts, **recipe)
    action = hub_action(["vllm_serve"])
    action.vars["hostvars"] = dict.fromkeys(hosts, first)
    own = {**cluster, "group": "big"}
    action._plan_served(own, nodes, assumed=False)
    warnings = action._plan_beside(own, action.vars["hostvars"], nodes, fabric, assumed=False)
    return action, own, warnings


def three(available):
    return {
        host: {**node(number), "mem_available_bytes": int(available * GIB), "models": {}}
        for number, host in enumerate("abc", 1)
    }


def test_a_group_beside_another_is_part_of_that_ones_plan():
    action, entry, warnings = beside_action(three(118))
    embed = entry["beside"]["embed"]
    assert (embed["head"], embed["hosts"], embed["group"]) == ("a", ["a"], "embed")
    assert embed["serving"]["served_model_name"] == "qwen3-embedding-0.6b"
    assert (
        entry["serving"]["args"]["gpu-memory-utilization"] + embed["serving"]["args"]["gpu-memory-utilization"] < 0.86
    )
    assert [model["name"] for model in entry["serving"]["models"]][-1] == "Qwen3-Embedding-0.6B"
    assert any(line.startswith("sparkthor: memory of a: 103.") for line in action._display.lines)
    # all doors know it, by a port of its own
    action._know_each_other({"big": entry})
    assert [(group["group"], group["head"], group["port"]) for group in entry["groups"]] == [
        ("big", "a", 0),
        ("embed", "a", 8002),
    ]
    # one revision is planned for all hosts of the group that it is beside
    action._plan_models(entry, three(118))
    assert entry["revisions"] == {}
    assert warnings == embed["serving"]["warnings"]


def test_groups_of_a_host_that_need_more_than_is_free_are_refused():
    with pytest.raises(AnsibleActionFail) as refused:
        beside_action(three(98), {"gpu-memory-utilization": 0.8}, vllm_serve_args={"kv-cache-memory-bytes": 4 * GIB})
    for words in (
        "Nothing was changed",
        "host a: its serving groups need 105",
        "98.0 GiB are available now",
        "cache 4.0",
    ):
        assert words in str(refused.value)
    with pytest.raises(AnsibleActionFail, match="Nothing was changed: serving_beside: group embed on a"):
        beside_action(three(118), vllm_serve_recipe="no-such-recipe")


def test_programs_of_a_group_on_demand_are_those_of_its_host() -> None:
    given = {"gguf": {"host": "a", "serving_engine": "llama_cpp", "vllm_serve_model": "owner/quants:Q4_K_M"}}
    action = hub_action(["vllm_serve"])
    for programs, expected in (("/srv/llama", []), ("", ["engine_programs"])):
        action.vars["hostvars"] = {"a": {"engine_programs": programs}}
        assert [one.where for one in action._names_problems([], given, assumed=True)] == expected
    # a host that is none was told of before
    [lacking] = action._names_problems([], {"gguf": {**given["gguf"], "host": "x"}}, assumed=True)
    assert "no folder has them" in str(lacking)


@pytest.mark.parametrize("lie", [2**40, 10**30, "9", None, True, -1, [1]])
def test_no_host_alone_decides_how_new_a_head_is(lie: Any) -> None:
    """Its facts say what they like: the others would be told a number that no head ever gets above."""
    honest = {"head": "a", "generation": 3, "seen": 3}
    for field in ("generation", "seen"):
        nodes = {"a": {"declared": honest}, "b": {"declared": honest}, "c": {"declared": {**honest, field: lie}}}
        assert head_generation("a", nodes) == 3
        assert head_generation("b", nodes) == 4
