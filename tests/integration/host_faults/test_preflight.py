# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that preflight can see: a failed run within seconds that names host, NIC and fix, and nothing written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

SECONDS = 15
#: more where the ports of all hosts are down: they must be set up first and given the time that a real link takes
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
        refused(ring, "spark-02", "enP2p1s0f0np0", "reseat the cable")
    finally:
        ring.lab.fix("spark-02", "enP2p1s0f0np0")


def test_both_halves_in_one_subnet(ring):
    make = "ip address add 10.55.0.1/24 dev enp1s0f0np0; ip address add 10.55.0.2/24 dev enP2p1s0f0np0"
    undo = "ip address flush dev enp1s0f0np0; ip address flush dev enP2p1s0f0np0"
    with fault(ring, "spark-01", make, undo):
        refused(ring, "spark-01", "enp1s0f0np0", "enP2p1s0f0np0", "one subnet", "ip address del")


def test_foreign_address_on_a_fabric_nic(ring):
    make, undo = "ip address add 10.56.0.1/24 dev enp1s0f1np1", "ip address flush dev enp1s0f1np1"
    with fault(ring, "spark-03", make, undo):
        refused(ring, "spark-03", "enp1s0f1np1", "10.56.0.1/24")


def test_an_address_at_run_time_only(ring):
    """The next netplan apply by anybody would drop it, on a NIC that is none of ours."""
    make, undo = "ip address add 10.79.10.77/24 dev enP7s7", "ip address del 10.79.10.77/24 dev enP7s7"
    with fault(ring, "spark-02", make, undo):
        refused(ring, "spark-02", "enP7s7", "10.79.10.77/24", "run time only")


def test_somebody_elses_settings_for_a_fabric_nic(ring):
    """One netplan file, and one NetworkManager profile that a desktop made."""
    netplan = "umask 077; printf 'network: {ethernets: {enp1s0f0np0: {dhcp4: true}}}' >/etc/netplan/50-them.yaml"
    profile = "[connection]\\ntype=ethernet\\ninterface-name=enp1s0f1np1\\n"
    folder = "/etc/NetworkManager/system-connections"
    with (
        fault(ring, "spark-01", netplan, "rm /etc/netplan/50-them.yaml"),
        fault(
            ring,
            "spark-03",
            f"umask 077; mkdir -p {folder}; printf '{profile}' >{folder}/wired.nmconnection",
            f"rm -r {folder}; rmdir --ignore-fail-on-non-empty /etc/NetworkManager",
        ),
    ):
        output = refused(ring, "spark-01", "/etc/netplan/50-them.yaml", "enp1s0f0np0", "roce_network_replace_foreign")
        assert f"{folder}/wired.nmconnection also configures fabric NIC enp1s0f1np1" in output


def test_a_host_of_another_image_is_named_and_not_refused(ring):
    change = "cp --remove-destination /usr/lib/os-release /etc/os-release; sed -i 's/24.04.3/24.04.2/' /etc/os-release"
    with fault(ring, "spark-03", change, "ln -sf ../usr/lib/os-release /etc/os-release"):
        run = ring.play("--check")
        assert run.rc == 0, run.output
        named = " ".join(run.output.split()).partition("[WARNING]: host spark-03: OS image is Ubuntu 24.04.2")[2]
        for word in ("24.04.3", "spark-01, spark-02", "preflight_accept"):
            assert word in named


def states(site) -> dict[str, str]:
    return {host: site.on(host, "grep . /sys/class/net/en*/flags") for host in site.hosts}


def test_ports_that_are_down_are_set_up_to_probe_and_down_again(ring):
    """With another fault present, so that nothing is written: the cut half is found behind ports that were down."""
    nics = "enp1s0f0np0 enP2p1s0f0np0 enp1s0f1np1 enP2p1s0f1np1"
    for host in ring.hosts:
        ring.on(host, f"for nic in {nics}; do ip link set $nic down; done")
    ring.lab.cut("spark-02", "enP2p1s0f0np0")
    try:
        before = states(ring)
        refused(ring, "spark-02", "enP2p1s0f0np0", "reseat the cable", seconds=SECONDS + TRAINING)
        assert states(ring) == before
        with fault(ring, "spark-01", PENDING.replace("10.79.10.99", "10.79.10.98"), "rm /etc/netplan/60-somebody.yaml"):
            output = refused(ring, "spark-01", "60-somebody.yaml", arguments=("--check",))
        assert states(ring) == before
        assert "reseat the cable" not in output, "check mode sets nothing up, so it cannot know"
    finally:
        ring.lab.fix("spark-02", "enP2p1s0f0np0")
        for host in ring.hosts:
            ring.on(host, f"for nic in {nics}; do ip link set $nic up; done")


def test_check_mode_says_what_it_could_not_see(ring):
    nic = "enp1s0f0np0"
    with fault(ring, "spark-01", f"ip link set {nic} down", f"ip link set {nic} up"):
        run = ring.play("--check")
    assert run.rc == 0, run.output
    text = " ".join(run.output.split())
    assert f"NIC {nic} is administratively down, so its carrier and neighbour are unknown" in text


def test_an_unreachable_host_stops_all(ring):
    ring.lab.off("spark-03")
    try:
        others = {host: ring.on(host, "sha256sum /etc/netplan/*") for host in ("spark-01", "spark-02")}
        run = ring.play()
        assert run.rc != 0
        assert "spark-03" in run.output
        assert others == {host: ring.on(host, "sha256sum /etc/netplan/*") for host in others}
        # ssh's own time limit for a host that does not answer, and the probe of the others
        assert run.seconds <= 60
    finally:
        ring.lab.boot("spark-03")
        ring.lab.wait("spark-03")


def test_two_swapped_cables_of_a_ring(site):
    pairs = [(f"spark-02:{half}0np0", f"spark-02:{half}1np1") for half in ("enp1s0f", "enP2p1s0f")]
    swapped = site("hf-swap", "3spark_ring", 11, wiring={"swap": [list(pair) for pair in pairs]})
    refused(swapped, "spark-02", "enp1s0f0np0", "swap the two cables")


def test_cable_in_the_other_cage(site):
    moved = site("hf-cage", "2spark", 12, wiring={"cage": {"spark-02": 0}})
    refused(moved, "spark-02", "enp1s0f1np1", "enp1s0f0np0", "move the cable")
