# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
import socket
from dataclasses import asdict

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import virtual_address
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.virtual_address import (
    AddressHolder,
    Front,
    Virtual,
)

from tests.unit.plugins.plugin_utils._plan.test_door import GROUPS
from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan, units

ADDRESS, ROUTER = "vllm_serve_virtual_address", "vllm_serve_virtual_router_id"
TWO = Virtual(
    "192.168.1.100/24", 51, (AddressHolder("a", "eth0", "192.168.1.1"), AddressHolder("b", "lan0", "192.168.1.2"))
)
BOTH = (Front("a"), Front("b"))
NAME = "sparkthor-address.service"
UNIT = f"/etc/systemd/system/{NAME}"
CONFIG, PROGRAM = "/etc/sparkthor/address.conf", "/usr/local/lib/sparkthor/front-answers"


def told(address="192.168.1.100/24", heads=("a", "b"), cidr="10.100.0.0/16", **more):
    hostvars = {host: {ADDRESS: address, **more} for host in ("a", "b", "c")}
    hostvars["c"]["ansible_host"] = "192.168.1.3"
    return virtual_address.virtual_address_problems(heads, hostvars, cidr)


def node(number, *carried, interface="eth0", **more):
    addresses = [f"192.168.1.{number}/24", *carried]
    items = [{"address": text, "family": "inet", "scope": "global"} for text in addresses]
    management = {"netdev": "eth0", "address": f"192.168.1.{number}", "cidr": f"192.168.1.{number}/24"}
    return {"management": management, "interfaces": [{"name": interface, "addresses": items}], **more}


def planned(address="192.168.1.100/24", nodes=None, fronts=BOTH, **more):
    nodes = {"a": node(1), "b": node(2), "c": node(3), **(nodes or {})}
    fabric = {
        host: {
            "management_address": f"192.168.1.{number}",
            "management_netdev": "eth0",
            "control_address": f"10.100.0.{number}",
            "links": [{"address": f"10.100.0.{number}/24"}],
        }
        for number, host in enumerate("abc", 1)
    }
    hostvars = {host: {ADDRESS: address, **more} for host in nodes}
    return virtual_address.plan_virtual(fronts, hostvars, nodes, fabric)


def one(problems: list[Finding]) -> str:
    [problem] = problems
    return str(problem)


def test_nothing_is_wanted_unless_it_is_said():
    assert told(address=None) == told(address="") == []
    assert planned(address="") == (None, [])
    assert virtual_address.of_cluster({"head": "a"}) is None


def test_a_sound_inventory_has_no_problem():
    assert told() == told(address="192.168.1.100", **{ROUTER: "255"}) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"heads": ("a",)}, "only a has a front proxy.*serving_groups"),
        ({"address": "spark.lan"}, "not an IPv4 address; write it"),
        ({"address": "fd00::1/64"}, "not an IPv4 address"),
        ({"address": "10.100.3.4/24"}, "range of the fabric, fabric_cidr 10.100.0.0/16"),
        ({"address": "192.168.1.3/24"}, "address of c itself"),
        ({ROUTER: 0}, f"{ROUTER}: '0': .*1 to 255"),
        ({ROUTER: 256}, f"{ROUTER}: '256'"),
        ({ROUTER: True}, f"{ROUTER}: 'True'"),
    ],
)
def test_what_is_known_before_a_host_is_contacted(given, words):
    text = one(told(**given))
    assert re.search(words, text), text


def test_the_plan_names_each_heads_interface_and_own_address():
    assert planned() == (
        Virtual(
            "192.168.1.100/24",
            51,
            (AddressHolder("a", "eth0", "192.168.1.1"), AddressHolder("b", "eth0", "192.168.1.2")),
        ),
        [],
    )
    # without a length it is the network's
    assert planned("192.168.1.100")[0].address == "192.168.1.100/24"
    assert planned(**{ROUTER: "7"})[0].router_id == 7


def test_another_interface_brings_its_own_network():
    two = {"name": "eth1", "addresses": [{"address": "172.16.0.9/16", "family": "inet", "scope": "global"}]}
    nodes = {"a": {**node(1), "interfaces": [*node(1)["interfaces"], two]}}
    fronts = (Front("a", "eth1"), Front("b"))
    virtual, problems = planned("172.16.0.100/16", nodes, fronts)
    assert virtual.holders == (AddressHolder("a", "eth1", "172.16.0.9"),)
    assert "host b" in one(problems)
    assert "eth0, which has 192.168.1.2/24" in one(problems)


@pytest.mark.parametrize(
    "address", ["192.168.2.100/24", "192.168.1.100/16", "192.168.1.0/24", "192.168.1.255/24", "192.168.1.255"]
)
def test_an_address_outside_of_the_interfaces_network_is_refused(address):
    _virtual, problems = planned(address)
    assert {problem.host for problem in problems} == {"a", "b"}
    assert all("which has 192.168.1." in problem.what for problem in problems)


def test_an_address_of_a_host_is_refused_unless_keepalived_put_it_there():
    held = "192.168.1.100/24"
    assert "ip address shows" in one(planned(nodes={"c": node(3, held)})[1])
    ours = {"virtual": "192.168.1.100"}
    virtual, problems = planned(nodes={"a": node(1, held, declared=ours)})
    assert problems == []
    assert virtual.of("a").address == "192.168.1.1"
    # ssh came in by it
    management = {"netdev": "eth0", "address": "192.168.1.100", "cidr": held}
    nodes = {"a": {**node(1, held, declared=ours), "management": management}}
    assert planned(nodes=nodes)[0].of("a").address == "192.168.1.1"
    assert "is an address of the host itself" in one(planned("192.168.1.2/24")[1][:1])


def test_a_front_proxy_that_does_not_listen_there_is_refused():
    assert "does not listen on it: 192.168.1.1" in one(
        planned(fronts=(Front("a", listen=("192.168.1.1",)), Front("b")))[1]
    )
    assert "same vllm_serve_tls" in one(planned(fronts=(Front("a", tls="self_signed"), Front("b")))[1])


def test_somebody_who_answers_there_is_noticed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert virtual_address.answered("127.0.0.1", port)
    # a refusal is an answer
    assert virtual_address.answered("127.0.0.1", port)
    assert not virtual_address.answered("255.255.255.255", port, 0.1)
    assert "somebody in the LAN answers" in str(virtual_address.taken(TWO))
    assert virtual_address.declared({"a": {"declared": {"virtual": TWO.bare}}}, TWO.bare)
    assert not virtual_address.declared({"a": {"declared": {}}, "b": {}}, TWO.bare)


def shared(monkeypatch, somebody, assumed=False, heads="aab", plan=None, **more):
    """What the heads of these plans have in turn, what is wrong with it, and who was asked."""
    variables = {host: {ADDRESS: "192.168.1.100", "vllm_serve_api_port": 8443} for host in "ab"}
    nodes = {"a": node(1, **more), "b": node(2)}
    fabric = {
        host: {"management_netdev": "eth0", "management_address": f"192.168.1.{n}"} for n, host in enumerate("ab", 1)
    }
    asked = []
    monkeypatch.setattr(virtual_address, "answered", lambda *given: asked.append(given) or somebody)
    plans = [{"head": host, "topology": "lan"} for host in heads]
    given = {"a": {**variables["a"], **(plan or {})}, "b": variables["b"]}
    found = virtual_address.plan_shared(plans, given.__getitem__, variables, nodes, fabric, assumed)
    return (*found, asked)


def test_the_heads_of_all_plans_share_it(monkeypatch):
    virtual, problems, asked = shared(monkeypatch, somebody=False)
    assert ([holder.host for holder in virtual.holders], problems) == (["a", "b"], [])
    assert asked == [(TWO.bare, 8443)]
    # the plan of the whole cluster is that of its first group: its head counts where there are no groups
    assert [holder.host for holder in shared(monkeypatch, somebody=False, heads="b")[0].holders] == ["b"]


def test_a_stranger_is_asked_for_once_nothing_else_is_wrong(monkeypatch):
    assert "somebody in the LAN answers" in one(shared(monkeypatch, somebody=True)[1])
    ours = {"declared": {"virtual": TWO.bare}}
    assert shared(monkeypatch, somebody=True, **ours)[1:] == ([], [])
    assert shared(monkeypatch, somebody=True, assumed=True)[1:] == ([], [])
    _virtual, problems, asked = shared(monkeypatch, somebody=True, plan={"vllm_serve_listen": ["127.0.0.1"]})
    assert "does not listen on it: 127.0.0.1" in one(problems)
    assert asked == []
    # on a LAN a front proxy has TLS unless the inventory says otherwise
    assert "a off, b self_signed" in one(shared(monkeypatch, somebody=False, plan={"vllm_serve_tls": "off"})[1])


def test_heads_say_it_to_each_other_alone(variables):
    assert [TWO.peers(host) for host in "abc"] == [["192.168.1.2"], ["192.168.1.1"], []]
    first, second = (
        files(plan(sharing(variables, head=host), inventory_hostname=host, vllm_serve_tls=tls))[CONFIG]
        for host, tls in (("a", "off"), ("b", "self_signed"))
    )
    for line in (
        "vrrp_version 3",
        "enable_script_security",
        "script_user sparkthor-front",
        "state BACKUP",
        "nopreempt",
        "interface eth0",
        "virtual_router_id 51",
        "priority 200",
        "unicast_src_ip 192.168.1.1",
        "192.168.1.2 min_ttl 255 max_ttl 255",
        "192.168.1.100/24 dev eth0",
    ):
        assert f"    {line}\n" in first, first
    assert 'sparkthor/front-answers 8000"' in first
    assert 'sparkthor/front-answers 8000 tls"' in second
    assert "priority 199" in second
    assert "192.168.1.100/24 dev lan0" in second
    assert "auth" not in first


def sharing(variables, **cluster):
    return {**variables, "sparkthor_cluster": {**variables["sparkthor_cluster"], "virtual": asdict(TWO), **cluster}}


def test_a_head_gets_unit_and_configuration_and_a_worker_none(variables):
    found = plan(sharing(variables))
    assert f"ExecStopPost=-/sbin/ip address delete {TWO.address} dev eth0" in files(found)[UNIT]
    assert "CAP_NET_ADMIN" in files(found)[UNIT]
    assert '"virtual_address": "192.168.1.100"' in files(found)["/etc/sparkthor/cluster.json"]
    unit = units(found)[NAME]
    assert (unit["state"], unit["restart_on"], unit["reload_on"]) == ("started", [UNIT], [CONFIG])
    # what asks the front proxy runs when there is one
    assert list(units(found)).index(NAME) > list(units(found)).index("sparkthor-front.service")
    worker = plan(sharing(variables), inventory_hostname="b")
    assert UNIT not in files(worker)
    assert units(worker)[NAME]["state"] == "stopped"
    assert {UNIT, CONFIG} <= set(worker["state"]["absent"])


def test_without_one_nothing_is_rendered_and_what_was_there_goes(variables):
    found = plan(variables)
    assert not {UNIT, CONFIG, PROGRAM} & set(files(found))
    assert "virtual" not in files(found)["/etc/sparkthor/cluster.json"]
    assert units(found)[NAME]["state"] == "stopped"
    assert {UNIT, CONFIG} <= set(found["state"]["absent"])


def test_the_self_made_certificate_names_it(variables):
    for names, wanted in (([], "IP:192.168.1.100"), (["api.lan"], "DNS:api.lan,IP:192.168.1.100")):
        given = {"vllm_serve_tls": "self_signed", "vllm_serve_tls_names": names}
        text = files(plan(sharing(variables), **given))["/etc/sparkthor/front/self-signed"]
        assert text.strip().endswith(wanted)


def test_every_group_plans_the_same(variables):
    found = sharing(variables, groups=GROUPS[:1])["sparkthor_cluster"]
    assert virtual_address.of_cluster(found) == TWO


def test_who_has_it_now():
    links = {"a": node(1)["interfaces"], "b": node(2, "192.168.1.100/24")["interfaces"]}
    assert virtual_address.holders("192.168.1.100/24", links) == ["b"]
