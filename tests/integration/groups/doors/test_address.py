# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One address for all doors: it comes by a run, survives the loss of the head that has it, and goes by a run.

The tests build on each other, and leave the lab as they found it.
"""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import replace

import httpx
import openai
import pytest

from tests.integration.groups.conftest import HEADS, PAIR, PAIR_HEAD, PAIR_WORKER, SINGLE, SINGLE_A, SINGLE_B, Doors
from tests.integration.sites import within

#: as a host of the cluster to those who ask
SHARED = "shared"


@pytest.fixture(scope="module")
def shared(doors: Doors) -> Doors:
    """The doors with one address more, after a run that brought it."""
    address = f"{doors.cluster.addresses[PAIR_HEAD].rpartition('.')[0]}.200"
    file = doors.cluster.lab.folder / "address.yml"
    given = {"vllm_serve_virtual_address": f"{address}/24"}
    file.write_text(json.dumps({"all": {"children": {"cluster": {"vars": given}}}}), encoding="utf-8")
    addresses = {**doors.cluster.addresses, SHARED: address}
    found = Doors(replace(doors.cluster, addresses=addresses, inventories=[*doors.cluster.inventories, file]))
    checked = found.play("site.yml", "--check")
    assert checked.rc == 0, checked.failures
    outcome = found.play("site.yml")
    assert outcome.rc == 0, outcome.failures
    assert f"The API is at http://{address}:8000/v1" in outcome.output
    return found


def holders(doors: Doors, heads: tuple[str, ...] = HEADS) -> list[str]:
    wanted = f" {doors.cluster.addresses[SHARED]}/"
    return [host for host in heads if wanted in doors.cluster.run(host, "ip -4 address show")]


def answers(doors: Doors, host: str) -> bool:
    """Whether the front proxy there does; it may just be starting."""
    try:
        return doors.ask(host, SINGLE) == SINGLE
    except openai.APIConnectionError:
        return False


def test_one_head_has_it_and_it_leads_to_all_models(shared: Doors) -> None:
    within(30, lambda: len(holders(shared)) == 1)
    assert shared.models(SHARED) == {PAIR, SINGLE}
    assert [shared.ask(SHARED, model) for model in (PAIR, SINGLE)] == [PAIR, SINGLE]
    [holder] = holders(shared)
    status = shared.play("playbooks/status.yml")
    assert f"virtual address {shared.cluster.addresses[SHARED]}: {holder}" in status.output


def test_only_heads_have_anything_of_it(shared: Doors) -> None:
    on = shared.cluster.run
    for head in HEADS:
        assert on(head, "systemctl is-active sparkthor-address.service").strip() == "active"
        assert on(head, "systemctl is-active keepalived.service", check=False).strip() == "inactive"
        [rule] = [line for line in on(head, "cat /etc/sparkthor/firewall.nft").splitlines() if "protocol 112" in line]
        # neighbours come as one network
        networks = [ipaddress.ip_network(word) for word in re.findall(r"[0-9.]+\.[0-9]+(?:/[0-9]+)?", rule)]
        let_in = {str(address) for network in networks for address in network}
        assert let_in == {shared.cluster.addresses[other] for other in HEADS if other != head}
    assert on(PAIR_WORKER, "systemctl is-active sparkthor-address.service", check=False).strip() == "inactive"
    assert "protocol 112" not in on(PAIR_WORKER, "cat /etc/sparkthor/firewall.nft")


def test_without_a_change_nothing_changes(shared: Doors) -> None:
    outcome = shared.play("site.yml")
    assert outcome.rc == 0, outcome.failures
    assert set(outcome.changed.values()) == {0}, outcome.changed


def test_a_front_proxy_that_ends_gives_it_away(shared: Doors) -> None:
    [before] = holders(shared)
    shared.cluster.run(before, "systemctl stop sparkthor-front.service")
    within(30, lambda: len(holders(shared)) == 1 and before not in holders(shared))
    assert shared.ask(SHARED, SINGLE) == SINGLE
    shared.cluster.run(before, "systemctl start sparkthor-front.service")
    within(30, lambda: answers(shared, before))
    assert before not in holders(shared)


def test_the_head_that_has_it_loses_its_power(shared: Doors) -> None:
    [before] = holders(shared)
    others = tuple(host for host in HEADS if host != before)
    try:
        # whoever waits for an answer of a host without power only hears of it from its own timeout
        with shared.asking(SHARED, SINGLE, timeout=30.0) as counted:
            within(60, lambda: counted["answered"] > 5)
            shared.cluster.lab.off(before)
            within(30, lambda: len(holders(shared, others)) == 1)
            [after] = holders(shared, others)
            answered = counted["answered"]
            # either replica answers for this model, whichever group has lost its head
            within(180, lambda: counted["answered"] > answered + 5)
    finally:
        # the tests after this one need the host
        shared.cluster.lab.boot(before)
        shared.cluster.lab.wait(before)
    assert after != before
    # it serves again, and does not take the address back
    group = {PAIR_HEAD: "pair", SINGLE_A: "single_a", SINGLE_B: "single_b"}[before]
    within(900, lambda: httpx.get(f"http://{shared.cluster.addresses[after]}:8000/health/group/{group}").is_success)
    assert holders(shared) == [after]


def test_it_goes_when_it_is_no_longer_wanted(shared: Doors) -> None:
    plain = Doors(replace(shared.cluster, inventories=shared.cluster.inventories[:-1]))
    outcome = plain.play("site.yml")
    assert outcome.rc == 0, outcome.failures
    assert holders(shared) == []
    for head in HEADS:
        on = shared.cluster.run
        assert on(head, "ls /etc/sparkthor/address.conf", check=False) == ""
        assert "protocol 112" not in on(head, "cat /etc/sparkthor/firewall.nft")
    # while a firewall is closed and a keepalived runs, two heads have it
    ended = "journalctl --no-pager -o short-unix -u sparkthor-address.service | tail -1 | cut -d ' ' -f 1"
    stopped = [float(shared.cluster.run(head, ended)) for head in HEADS]
    closed = [float(shared.cluster.run(head, "stat -c %.Y /etc/sparkthor/firewall.nft")) for head in HEADS]
    assert max(stopped) < min(closed)
