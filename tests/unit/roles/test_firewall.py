# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role asks of the firewall, and what it does before the firewall changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.firewall_machine import NODE, declared, ruleset

ROLE = (
    next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists()) / "roles/firewall"
)


@pytest.mark.parametrize(
    ("given", "open_"),
    [
        ({}, False),
        ({"ansible_host": "192.168.1.11"}, False),
        ({"ansible_host": "spark-1a2b.local"}, True),
        ({"ansible_host": "spark-1a2b.Local."}, True),
        ({"ansible_host": "spark.local.example.org"}, False),
        ({"ansible_host": "local"}, False),
        ({"inventory_hostname": "spark-1a2b.local"}, True),
        ({"inventory_hostname": "spark-1a2b.local", "ansible_host": "192.168.1.11"}, False),
        ({"ansible_host": "spark-1a2b.local", "firewall_mdns": False}, False),
    ],
)
def test_multicast_dns_is_let_in_where_it_is_the_way_in(given: dict[str, Any], open_: bool) -> None:
    loader = DataLoader()
    values: dict[str, Any] = {"inventory_hostname": "spark-01"}
    values.update(loader.load(trust_as_template((ROLE / "defaults/main.yml").read_text())))
    templar = Templar(loader=loader, variables={**values, **given})
    assert templar.template(trust_as_template("{{ firewall_mdns }}")) is open_


def gives_up(host: str, declared: dict[str, Any], heads: list[str]) -> Any:
    """Whether a host gives the virtual address up that these heads are to have."""
    cluster = {"virtual": {"holders": [{"host": head, "address": head} for head in heads]}} if heads else {}
    values = trust_as_template((ROLE / "vars/main.yml").read_text())
    facts = {"sparkthor_node": {"declared": declared}}
    given = {"inventory_hostname": host, "sparkthor_cluster": cluster, "ansible_facts": facts}
    templar = Templar(loader=DataLoader(), variables={**DataLoader().load(values), **given})
    return templar.template(trust_as_template("{{ __firewall_gives_address_up }}"))


@pytest.mark.parametrize(
    ("host", "declared", "heads", "wanted"),
    [
        # nobody ever had one, or a head is about to get it
        ("a", {}, [], False),
        ("a", {"virtual": ""}, ["a", "b"], False),
        ("a", {"virtual": "192.168.1.100"}, ["a", "b"], False),
        # the variable was removed, or the host is no longer a head
        ("a", {"virtual": "192.168.1.100"}, [], True),
        ("c", {"virtual": "192.168.1.100"}, ["a", "b"], True),
    ],
)
def test_who_gives_the_virtual_address_up(host: str, declared: dict[str, Any], heads: list[str], wanted: bool) -> None:
    assert gives_up(host, declared, heads) is wanted


def test_keepalived_stops_before_the_firewall_closes() -> None:
    tasks = yaml.safe_load((ROLE / "tasks/main.yml").read_text(encoding="utf-8"))
    modules = [next(key for key in task if "." in key) for task in tasks]
    stop = tasks[modules.index("sparkthor.cluster.host_state")]
    assert modules.index("sparkthor.cluster.host_state") < modules.index("ansible.builtin.import_tasks")
    assert "__firewall_gives_address_up" in stop["when"]
    assert stop["sparkthor.cluster.host_state"]["units"] == [
        {"name": "sparkthor-address.service", "enabled": False, "state": "stopped", "optional": True}
    ]


def fabric(hosts: int) -> dict[str, Any]:
    """A LAN beside the fabric, on which nobody is trusted."""
    names = ("one", "two", "three")[:hosts]
    return {
        host: {
            "links": [{"netdev": "enp1s0f1np1", "subnet": "10.0.0.0/24", "address": f"10.0.0.{number}/24"}],
            "trusted_netdevs": ["enp1s0f1np1", "enP7s7"],
            **{"control_netdev": "enp1s0f1np1", "control_address": f"10.0.0.{number}"},
        }
        for number, host in enumerate(names, 1)
    }


def rules(**given: Any) -> list[str]:
    """Lines of the ruleset; what is not a fact is a variable of the role."""
    known = ("sparkthor_fabric", "sparkthor_cluster", "ansible_facts")
    named = {name if name in known else f"firewall_{name}": value for name, value in given.items()}
    return [line.strip() for line in ruleset(**named).splitlines()]


def test_the_file_replaces_its_own_table_only() -> None:
    lines = rules()
    assert lines[1] == "# Ansible managed: sparkthor.cluster"
    assert [line for line in lines if line.startswith(("table", "delete", "flush"))] == [
        "table inet sparkthor",
        "delete table inet sparkthor",
        "table inet sparkthor {",
    ]
    assert "type filter hook input priority filter; policy drop;" in lines
    assert not [line for line in lines if "forward" in line or "output" in line]


def test_only_ssh_is_open_by_default() -> None:
    opened = [line for line in rules() if "dport" in line]
    assert opened == [
        "udp sport 67 udp dport 68 accept",
        "ip6 saddr fe80::/10 udp sport 547 udp dport 546 accept",
        "tcp dport { 22 } accept",
    ]


def test_answers_come_before_everything_that_drops() -> None:
    lines = rules()
    assert lines.index("ct state established,related accept") < lines.index("ct state invalid drop")
    neighbour = next(line for line in lines if "nd-neighbor-solicit" in line)
    assert lines.index(neighbour) < lines.index("ct state invalid drop")


def test_peers_are_trusted_by_interface_and_source() -> None:
    lines = rules(sparkthor_fabric=fabric(3))
    assert 'ip saddr { 10.0.0.2/31 } iifname "enp1s0f1np1" accept' in lines
    assert not [line for line in lines if "enP7s7" in line], "an interface without peers trusts nobody"


def test_no_name_in_local_is_heard_on_the_fabric() -> None:
    managed = {host: {**plan, "addressing": "managed"} for host, plan in fabric(3).items()}
    lines = rules(sparkthor_fabric=managed, mdns=True)
    dropped = 'iifname "enp1s0f1np1" udp dport 5353 drop'
    trusted = next(line for line in lines if line.endswith('iifname "enp1s0f1np1" accept'))
    assert lines.index(dropped) < lines.index(trusted) < lines.index("ip daddr 224.0.0.251 udp dport 5353 accept")
    # a LAN has no other way
    adopted = {host: {**plan, "addressing": "adopted"} for host, plan in fabric(3).items()}
    assert dropped not in rules(sparkthor_fabric=adopted, mdns=True)


def test_sources_are_split_by_family_and_merged() -> None:
    lines = rules(ssh_sources=["192.168.1.0/24", "192.168.1.7", "2001:db8::/64"], ssh_ports=[2222, 22, 22])
    assert "ip saddr { 192.168.1.0/24 } tcp dport { 22, 2222 } accept" in lines
    assert "ip6 saddr { 2001:db8::/64 } tcp dport { 22, 2222 } accept" in lines
    assert "tcp dport { 22, 2222 } accept" not in lines


def test_everything_that_can_be_opened() -> None:
    lines = rules(
        sparkthor_cluster={"head": "one"},
        api_port=8000,
        api_sources=["10.9.0.0/16"],
        sources=["198.51.100.4"],
        interfaces=["docker0"],
        tcp_ports=[9100],
        udp_ports=[161, 51820],
        mdns=True,
    )
    for line in (
        "ip saddr { 10.9.0.0/16 } tcp dport 8000 accept",
        "ip saddr { 198.51.100.4 } accept",
        'iifname "docker0" accept',
        "tcp dport { 9100 } accept",
        "udp dport { 161, 51820 } accept",
        "ip daddr 224.0.0.251 udp dport 5353 accept",
    ):
        assert line in lines


def test_the_text_does_not_depend_on_the_order_of_the_input() -> None:
    one = fabric(3)
    assert rules(sparkthor_fabric=one, tcp_ports=[2, 1]) == rules(
        sparkthor_fabric=dict(reversed(one.items())), tcp_ports=[1, 2]
    )


def test_the_port_in_use_stays_open() -> None:
    assert "tcp dport { 22, 2222 } accept" in rules(ansible_facts={"sparkthor_node": {**NODE, "ssh_port": 2222}})


def test_nft_is_called_where_it_lies() -> None:
    for node, path in ((NODE, "/usr/sbin/nft"), ({**NODE, "binaries": {"nft": "/opt/nft"}}, "/opt/nft")):
        found = declared(ansible_facts={"sparkthor_node": node})
        texts = {file["path"].rpartition("/")[2]: file["content"] for file in found["files"]}
        assert f"ExecStart={path} -f {found['ruleset']}\n" in texts["sparkthor-firewall.service"]
        assert f"/firewall-watch {path}\n" in texts["sparkthor-firewall-watch.service"]


def test_the_api_is_open_on_the_head_alone() -> None:
    assert "tcp dport 8000 accept" in rules(sparkthor_cluster={"head": "one"}, api_port="8000")
    assert not [line for line in rules() if "8000" in line]


def test_vrrp_comes_in_from_the_other_heads_alone() -> None:
    holders = [{"host": host, "address": f"192.168.1.{number}"} for number, host in enumerate(("one", "two"), 1)]
    shared = {"head": "two", "virtual": {"holders": holders}}
    assert not [line for line in rules() if "protocol 112" in line]
    assert "ip saddr { 192.168.1.2 } ip protocol 112 accept" in rules(sparkthor_cluster=shared)
    others = {"head": "two", "virtual": {"holders": holders[1:]}}
    assert not [line for line in rules(sparkthor_cluster=others) if "protocol 112" in line]


def test_no_plan_is_an_error() -> None:
    with pytest.raises(AnsibleError, match="the plan of this run lacks 'one'; run the preflight role first"):
        ruleset(sparkthor_fabric={})
