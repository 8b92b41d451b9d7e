# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cables of rings and lines: one that is cut and comes back, and wrong ones, which stop a run before a change."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.integration.sites import TOP, Site, lost_pings, within

HALVES = {0: ("enp1s0f0np0", "enP2p1s0f0np0"), 1: ("enp1s0f1np1", "enP2p1s0f1np1")}
FULL = 8972


def cables(*joined: str) -> dict[str, Any]:
    """A wiring out of words such as ``01p0-02p1``."""
    found = []
    for word in joined:
        ends = [(f"spark-{end[:2]}", int(end[3])) for end in word.split("-")]
        found += [[f"{host}:{HALVES[cage][half]}" for host, cage in ends] for half in (0, 1)]
    return {"cables": found}


def inventory(name: str, topology: str, hosts: int, **more: Any) -> str:
    """A folder beside the others of this lab, as Maker takes it."""
    folder = TOP / ".lab" / "rings" / name
    names = [f"spark-{number:02}" for number in range(1, hosts + 1)]
    groups = {
        "ray_head": {"hosts": {names[0]: None}},
        "ray_workers": {"hosts": dict.fromkeys(names[1:])},
    }
    variables = {"ansible_user": "nvidia", "fabric_topology": topology, "fabric_cidr": "10.100.0.0/24", **more}
    (folder / "group_vars").mkdir(parents=True, exist_ok=True)
    document = {"cluster": {"children": groups}, "sparks": {"children": {"cluster": None}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(document))
    (folder / "group_vars/cluster.yml").write_text(yaml.safe_dump(variables))
    return str(folder)


def refused(site: Site, *words: str) -> None:
    """A run fails before it changed a file, and one line of it has all of these words."""
    before, live = site.files(), site.live()
    run = site.play()
    assert run.rc != 0, run.output
    assert (site.files(), site.live()) == (before, live)
    assert any(all(word in line for word in words) for line in run.output.splitlines()), run.output


def needs_nothing(site: Site, payload: int = FULL) -> None:
    """Full frames pass by every way, and a run finds nothing to change."""
    within(90, lambda: lost_pings(site, payload) == [])
    run = site.play()
    assert (run.rc, set(run.changed.values())) == (0, {0}), run.output


def is_converged(site: Site, payload: int = FULL) -> None:
    run = site.play()
    assert run.rc == 0, run.output
    needs_nothing(site, payload)


def holds_after_a_reboot(site: Site) -> None:
    site.lab.reboot()
    site.lab.wait()
    needs_nothing(site)


def holds(site: Site, host: str, *nics: str) -> None:
    """A cable that is cut stops a run; back again, and after a reboot of all hosts, there is nothing to do."""
    site.lab.cut(host, *nics)
    refused(site, host, nics[0], "no carrier")
    site.lab.fix(host, *nics)
    needs_nothing(site)
    holds_after_a_reboot(site)


def test_a_cut_cable_is_named_and_needs_nothing_when_it_is_back(ring: Site) -> None:
    ring.lab.cut("spark-02", *HALVES[0])
    try:
        run = ring.play()
        assert run.rc != 0
        assert "host spark-02: NIC enp1s0f0np0 has no carrier" in run.output
        assert "host spark-03: NIC enp1s0f1np1 has no carrier" in run.output
    finally:
        ring.lab.fix("spark-02", *HALVES[0])
    needs_nothing(ring)
    holds_after_a_reboot(ring)


def test_the_environment_keeps_nccl_to_the_ring(ring: Site) -> None:
    for host in ring.hosts:
        env = dict(line.split("=", 1) for line in ring.on(host, "grep = /etc/sparkthor/fabric.env").splitlines())
        assert (env["NCCL_ALGO"], env["NCCL_IB_SUBNET_PREFIX_LEN"]) == ("Ring", "24")
        assert env["NCCL_SOCKET_IFNAME"] == "=enP7s7"


RING = ["01p0-02p1", "02p0-03p1", "03p0-04p1", "04p0-05p1", "05p0-01p1"]


@pytest.mark.parametrize(
    ("name", "topology", "hosts", "joined", "words"),
    [
        # spark-04's two cables changed places
        (
            "five",
            "ring",
            5,
            ["01p0-02p1", "02p0-03p1", "03p0-04p0", "04p1-05p1", "05p0-01p1"],
            ("spark-04", "swap the two cables", "cabled now: ", "spark-03 p0=p0 spark-04 p1=p1 spark-05"),
        ),
        (
            "five",
            "ring",
            5,
            ["01p0-02p1", "02p0-01p1", *RING[2:4]],
            ("spark-02", "the plan wants spark-03", "move the end"),
        ),
        # two pairs with two cables each
        (
            "four",
            "ring",
            4,
            ["01p0-02p1", "02p0-01p1", "03p0-04p1", "04p0-03p1"],
            ("cabled now: spark-01 p0=p1 spark-02 p0=p1 spark-01; spark-03 p0=p1 spark-04 p0=p1 spark-03",),
        ),
        # spark-02's two cables changed places
        (
            "three",
            "line",
            3,
            ["01p0-02p0", "02p1-03p1"],
            ("spark-02", "swap the two cables", "cabled now: spark-01 p0=p0 spark-02 p1=p1 spark-03"),
        ),
    ],
    ids=["five-crossed", "five-doubled", "four-doubled", "line-crossed"],
)
def test_wrong_cables_stop_a_run_before_a_change(
    other: Callable[..., Site], name: str, topology: str, hosts: int, joined: list[str], words: tuple[str, ...]
) -> None:
    refused(other(inventory(name, topology, hosts), wiring=cables(*joined)), *words)


def test_crossed_cables_of_both_cages_of_a_pair_stop_a_run_before_a_change(other: Callable[..., Site]) -> None:
    crossed = cables("01p0-02p1", "01p1-02p0")
    pair = other(inventory("pair-both", "direct", 2, fabric_cages=[0, 1]), wiring=crossed)
    refused(pair, "spark-01", "its two cables are swapped", "swap the two cables at spark-01 alone", "cabled now: ")


def test_a_host_of_four_with_its_rails_in_the_wrong_switches_stops_a_run_before_a_change(
    other: Callable[..., Site],
) -> None:
    swapped = {"swap": [[f"spark-04:{nic}" for nic in pair] for pair in zip(*HALVES.values(), strict=True)]}
    four = other(inventory("four-both", "switch", 4, fabric_cages=[0, 1]), wiring=swapped)
    refused(four, "spark-04", "cage 1 is in one network with cage 0 of spark-01", "swap the two cables at spark-04")


@pytest.mark.parametrize(
    ("name", "topology", "hosts", "joined"), [("five", "ring", 5, RING), ("three", "line", 3, RING[:2])]
)
def test_a_ring_of_five_and_a_line_of_three_are_converged_once_and_hold(
    other: Callable[..., Site], name: str, topology: str, hosts: int, joined: list[str]
) -> None:
    chain = other(inventory(name, topology, hosts), wiring=cables(*joined))
    is_converged(chain)
    facts = json.loads(chain.on("spark-01", "ip -json -4 address show"))
    links = [link for link in facts if link["ifname"] in (*HALVES[0], *HALVES[1]) and link["addr_info"]]
    assert len(links) == (4 if topology == "ring" else 2)
    holds(chain, "spark-02", *HALVES[0])


@pytest.mark.parametrize(("name", "topology", "hosts"), [("pair", "direct", 2), ("four", "switch", 4)])
def test_both_cages_of_a_pair_and_of_four_on_switches_are_converged_once_and_hold(
    other: Callable[..., Site], name: str, topology: str, hosts: int
) -> None:
    both = other(inventory(f"{name}-both", topology, hosts, fabric_cages=[0, 1]))
    is_converged(both)
    env = both.on("spark-01", "cat /etc/sparkthor/fabric.env")
    assert "NCCL_IB_HCA==rocep1s0f0,roceP2p1s0f0,rocep1s0f1,roceP2p1s0f1" in env
    assert "NCCL_SOCKET_IFNAME==enP7s7" in env
    # the way between the hosts stays when one cable is lost
    both.lab.cut("spark-01", *HALVES[1])
    head = both.lab.plan.host("spark-01").address
    assert both.on("spark-02", f"ping -q -c 1 -W 2 {head} >/dev/null && echo yes").strip() == "yes"
    holds(both, "spark-01", *HALVES[1])
