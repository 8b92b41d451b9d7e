# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml on two hosts, one of which lies: both get what the inventory says, and no other file of the controller."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.border.conftest import Border, node

SECRET = b"the operator's own key"


@pytest.fixture
def site(border: Border) -> Border:
    """A controller with a model, and with something beside it that is nobody's business."""
    model, own = border.home / "model", border.home / ".ssh"
    for folder in (model, own):
        folder.mkdir()
    (model / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}')
    (model / "model.safetensors").write_bytes(b"weights")
    (own / "id_ed25519").write_bytes(SECRET)
    border.inventory(
        {name: {"ansible_host": f"192.0.2.{10 + number}"} for number, name in enumerate(("good", "liar"))},
        fabric_topology="lan",
        model_store_models=[{"name": "mini", "source": str(model)}],
        firewall_sources=["192.0.2.200"],
    )
    return border


def say(site: Border, lies: dict[str, Any], good: dict[str, Any], liar: dict[str, Any] | None = None) -> None:
    """Two hosts that answer what every playbook needs; what is a lie is in every answer of one of them."""
    for number, (host, own) in enumerate(zip(site.hosts, (good, good if liar is None else liar), strict=True)):
        needs = {"node_info": {"ansible_facts": {"sparkthor_node": node(number)}}, "controller_lock": {"since": "now"}}
        site.answers(host, {**needs, **own, **({"*": lies} if host == "liar" else {})})


def test_a_host_does_not_choose_what_is_sent_to_it(site: Border) -> None:
    """A fan-out begins at the host that lacks least, and that one gets the files of the controller."""
    secret = str(site.home / ".ssh")
    lies = {"ansible_facts": {"model_store_models": [{"name": "x", "source": secret}]}}
    say(site, lies, {"model_copy": {"needs": 10**9}}, {"model_copy": {"needs": 1}})
    output = site.play("sparkthor.cluster.site", "--tags=model_store")
    assert site.sent(SECRET) == []
    asked = site.asked("liar", "model_copy")
    assert asked, output
    assert secret not in json.dumps(asked)
    # it is sent what the inventory names
    assert site.sent(b"weights"), output


@pytest.mark.parametrize(
    "forged",
    [{"firewall_sources": ["0.0.0.0/0"]}, {"firewall_api_sources": ["0.0.0.0/0"], "firewall_enabled": False}],
    ids=lambda forged: next(iter(forged)),
)
def test_a_host_does_not_open_its_firewall_by_facts(site: Border, forged: dict[str, Any]) -> None:
    say(site, {"ansible_facts": forged}, {"firewall_apply": {}})
    output = site.play("sparkthor.cluster.site", "--tags=firewall")
    [honest], [lying] = site.asked("good", "firewall_apply"), site.asked("liar", "firewall_apply")
    rules = [
        {line.strip() for line in told["files"][0]["content"].splitlines() if "192.0.2.1" not in line}
        for told in (honest, lying)
    ]
    assert "ip saddr { 192.0.2.200 } accept" in rules[0], output
    # the good one is the head, with the API's port for everybody
    assert rules[0] - rules[1] == {"tcp dport 8000 accept"}, output
    assert rules[1] <= rules[0], output


def test_a_host_does_not_say_where_secrets_lie(site: Border) -> None:
    """The first host of a play answers for all in what is done once; the play's own tasks make and keep secrets."""
    forged = {"inventory_dir": str(site.home / "forged"), "sparkthor_secrets_dir": str(site.home / "forged")}
    say(site, {}, {})
    answers = {"node_info": {"ansible_facts": {"sparkthor_node": node(0), **forged}}}
    site.answers("good", {"controller_lock": {"since": "now"}, **answers, "*": {"ansible_facts": forged}})
    output = site.play("sparkthor.cluster.site", "--tags=os_hardening")
    assert not (site.home / "forged").exists(), output
    assert (site.home / "inventory" / ".secrets" / "api_key").exists(), output


@pytest.mark.parametrize(
    "forged", [{"generation": 1 << 50}, {"seen": 1 << 50}, {"generation": 1 << 50, "seen": 1 << 50}]
)
def test_a_host_alone_does_not_raise_the_generation(site: Border, forged: dict[str, int]) -> None:
    """With a number that nobody reaches it would keep every other head down for ever."""
    declared = {"head": "good", "generation": 3, "seen": 3, "cluster": "c", "hosts": ["good", "liar"], "machines": {}}
    declared |= {"topology": "lan", "executor": "ray", "virtual": "", "hostname": ""}
    for number, host in enumerate(site.hosts):
        said = {**declared, "host": host, **(forged if host == "liar" else {})}
        fact = {"sparkthor_node": node(number, declared=said)}
        site.answers(host, {"node_info": {"ansible_facts": fact}, "controller_lock": {"since": "now"}})
    output = site.play("sparkthor.cluster.site", "--tags=os_hardening", watched=("sparkthor_cluster",))
    found = {host: known["sparkthor_cluster"]["generation"] for host, known in site.variables().items()}
    assert found == {"good": 3, "liar": 3}, output
