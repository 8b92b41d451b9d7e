# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that a look can see: a failed run within seconds that names host, NIC and mend, and nothing written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

SECONDS = 15
#: more where a port must first be set up and given the time a real link takes to train
TRAINING = 10

#: somebody moves the management address and has not applied it yet
PENDING = r"""
umask 077; cat >/etc/netplan/60-somebody.yaml <<END
network: {version: 2, ethernets: {enP7s7: {addresses: [10.79.10.99/24]}}}
END
"""
BROKEN = "umask 077; printf 'network:\\n  ethernets:\\n   enP7s7: [\\n' >/etc/netplan/70-broken.yaml"


@contextlib.contextmanager
def fault(site, host: str, make: str, undo: str) -> Iterator[None]:
    site.on(host, make)
    try:
        yield
    finally:
        site.on(host, undo)


def refused(site, *words: str, arguments: tuple[str, ...] = (), seconds: float = SECONDS) -> str:
    """Run; it must fail in time, with all of these words in one line of its message, and write nothing anywhere."""
    files, live = site.files(), site.live()
    run = site.play(*arguments)
    assert run.rc != 0, run.output
    assert site.files() == files
    assert site.live() == live
    lines = [line.strip() for line in run.output.splitlines()]
    named = [line for line in lines if all(word in line for word in words)]
    assert named, f"no line names {words}:\n{run.output}"
    assert run.seconds <= seconds, f"{run.seconds:.1f} s"
    print(f"\n{run.seconds:.1f} s: {named[0]}")
    return run.output


@pytest.mark.parametrize("check", [(), ("--check",)], ids=["run", "check"])
def test_pending_edit_of_somebody_else(ring, check):
    with fault(ring, "spark-02", PENDING, "rm /etc/netplan/60-somebody.yaml"):
        output = refused(ring, "spark-02", "enP7s7", arguments=check)
        assert "60-somebody.yaml" in output


def test_broken_yaml_in_another_file_on_one_host(ring):
    with fault(ring, "spark-03", BROKEN, "rm /etc/netplan/70-broken.yaml"):
        refused(ring, "spark-03", "/etc/netplan/70-broken.yaml")


def test_management_network_inside_the_fabric_range(ring):
    refused(ring, "fabric_cidr", "10.79.0.0/16", arguments=("-e", "fabric_cidr=10.79.0.0/16"))


def test_route_of_one_host_into_the_fabric_range(ring):
    route = "10.100.0.0/16 via 10.79.10.1"
    with fault(ring, "spark-02", f"ip route add {route}", f"ip route del {route}"):
        refused(ring, "spark-02", "route 10.100.0.0/16", "fabric_cidr")


def test_one_half_without_carrier(ring):
    ring.lab.cut("spark-02", "enP2p1s0f0np0")
    try:
        refused(ring, "spark-02", "enP2p1s0f0np0", "reseat the cable", seconds=SECONDS + TRAINING)
    finally:
        ring.lab.mend("spark-02", "enP2p1s0f0np0")


def test_both_halves_in_one_subnet(ring):
    make = "ip address add 10.55.0.1/24 dev enp1s0f0np0; ip address add 10.55.0.2/24 dev enP2p1s0f0np0"
    undo = "ip address flush dev enp1s0f0np0; ip address flush dev enP2p1s0f0np0"
    with fault(ring, "spark-01", make, undo):
        refused(ring, "spark-01", "enp1s0f0np0", "enP2p1s0f0np0", "one subnet", "ip address del")


def test_foreign_address_on_a_fabric_nic(ring):
    make, undo = "ip address add 10.56.0.1/24 dev enp1s0f1np1", "ip address flush dev enp1s0f1np1"
    with fault(ring, "spark-03", make, undo):
        refused(ring, "spark-03", "enp1s0f1np1", "10.56.0.1/24")


def test_an_unreachable_host_stops_all(ring):
    ring.lab.off("spark-03")
    try:
        others = {host: ring.on(host, "sha256sum /etc/netplan/*") for host in ("spark-01", "spark-02")}
        run = ring.play()
        assert run.rc != 0
        assert "spark-03" in run.output
        assert others == {host: ring.on(host, "sha256sum /etc/netplan/*") for host in others}
        # ssh's own time limit for a host that does not answer, and the look at the others
        assert run.seconds <= 60
    finally:
        ring.lab.boot("spark-03")
        ring.lab.wait("spark-03")


def test_two_swapped_cables_of_a_ring(site):
    pairs = [(f"spark-02:{half}0np0", f"spark-02:{half}1np1") for half in ("enp1s0f", "enP2p1s0f")]
    swapped = site("hf-swap", "3spark_ring", 11, {"swap": [list(pair) for pair in pairs]})
    refused(swapped, "spark-02", "enp1s0f0np0", "swap the two cables")


def test_cable_in_the_other_cage(site):
    moved = site("hf-cage", "2spark", 12, {"cage": {"spark-02": 0}})
    refused(moved, "spark-02", "enp1s0f1np1", "enp1s0f0np0", "move the cable", seconds=SECONDS + TRAINING)
