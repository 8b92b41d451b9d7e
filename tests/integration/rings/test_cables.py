# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cables of rings and lines: one that is cut and comes back, and wrong ones, which stop a run before a change."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.integration.sites import TOP, Maker, Site, lost_pings, within

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


def test_a_cut_cable_is_named_and_needs_nothing_when_it_is_back(ring: Site) -> None:
    ring.lab.cut("spark-02", *HALVES[0])
    try:
        run = ring.play()
        assert run.rc != 0
        assert "host spark-02: NIC enp1s0f0np0 has no carrier" in run.output
        assert "host spark-03: NIC enp1s0f1np1 has no carrier" in run.output
    finally:
        ring.lab.fix("spark-02", *HALVES[0])
    within(45, lambda: lost_pings(ring, FULL) == [])
    run = ring.play()
    assert run.rc == 0, run.output
    assert set(run.changed.values()) == {0}, run.output


def test_the_environment_keeps_nccl_to_the_ring(ring: Site) -> None:
    for host in ring.hosts:
        env = dict(line.split("=", 1) for line in ring.on(host, "grep = /etc/sparkthor/fabric.env").splitlines())
        assert (env["NCCL_ALGO"], env["NCCL_IB_SUBNET_PREFIX_LEN"]) == ("Ring", "24")
        assert env["NCCL_SOCKET_IFNAME"] == "=enP7s7"


def test_a_doubled_and_a_crossed_cable_of_a_ring_of_five_stop_before_a_change(site: Maker) -> None:
    right = ["01p0-02p1", "02p0-03p1", "03p0-04p1", "04p0-05p1", "05p0-01p1"]
    # spark-04's two cables changed places
    crossed = ["01p0-02p1", "02p0-03p1", "03p0-04p0", "04p1-05p1", "05p0-01p1"]
    five = site("rings-cross", inventory("five", "ring", 5), 28, wiring=cables(*crossed))
    refused(five, "spark-04", "swap the two cables", "cabled now: ", "spark-03 p0=p0 spark-04 p1=p1 spark-05")
    five.lab.destroy()
    del site.sites["rings-cross"]
    doubled = ["01p0-02p1", "02p0-01p1", *right[2:4]]
    five = site("rings-double", inventory("five", "ring", 5), 28, wiring=cables(*doubled))
    refused(five, "spark-02", "the plan wants spark-03", "move the end")
    five.lab.destroy()
    del site.sites["rings-double"]


def test_a_ring_of_five_and_a_line_of_three_are_converged_once(site: Maker) -> None:
    right = ["01p0-02p1", "02p0-03p1", "03p0-04p1", "04p0-05p1", "05p0-01p1"]
    for name, topology, hosts, joined in (("five", "ring", 5, right), ("three", "line", 3, right[:2])):
        ring = site(f"rings-{name}", inventory(name, topology, hosts), 29, wiring=cables(*joined))
        run = ring.play()
        assert run.rc == 0, run.output
        assert lost_pings(ring, FULL) == []
        again = ring.play()
        assert (again.rc, set(again.changed.values())) == (0, {0}), again.output
        facts = json.loads(ring.on("spark-01", "ip -json -4 address show"))
        links = [link for link in facts if link["ifname"] in (*HALVES[0], *HALVES[1]) and link["addr_info"]]
        assert len(links) == (4 if topology == "ring" else 2)
        ring.lab.destroy()
        del site.sites[f"rings-{name}"]


def test_both_cages_of_a_pair_and_of_four_on_switches_are_converged_once(site: Maker) -> None:
    for name, topology, hosts in (("pair", "direct", 2), ("four", "switch", 4)):
        ring = site(f"rings-{name}", inventory(name, topology, hosts, fabric_cages=[0, 1]), 30)
        run = ring.play()
        assert run.rc == 0, run.output
        again = ring.play()
        assert (again.rc, set(again.changed.values())) == (0, {0}), again.output
        env = ring.on("spark-01", "cat /etc/sparkthor/fabric.env")
        assert "NCCL_IB_HCA==rocep1s0f0,roceP2p1s0f0,rocep1s0f1,roceP2p1s0f1" in env
        assert "NCCL_SOCKET_IFNAME==enP7s7" in env
        # the way between the hosts stays when one cable is lost
        ring.lab.cut("spark-01", *HALVES[1])
        head = ring.lab.plan.host("spark-01").address
        assert ring.on("spark-02", f"ping -q -c 1 -W 2 {head} >/dev/null && echo yes").strip() == "yes"
        refused(ring, "spark-01", "enp1s0f1np1", "no carrier")
        ring.lab.destroy()
        del site.sites[f"rings-{name}"]
