# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that strike after preflight, or between two runs: no host stays cut off, none half changed."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.integration.sites import ARMED, WATCHER, answers, armed, lost_pings, within

#: the issue's promise: by then a host answers again, with its previous files
ANSWERS_WITHIN = 90
#: a change of every host's fabric ports, and of one file of an earlier role
CHANGE = ("-e", "fabric_mtu=8000", "-e", "os_hardening_swap_swappiness=2")

MOVE = 'sed -i "s|10.79.13.12/24|10.79.13.99/24|" /etc/netplan/01-management.yaml'


@pytest.fixture(scope="module")
def live(site):
    """Three converged hosts."""
    one = site("hf-live", "3spark_ring", 13)
    run = one.play()
    assert run.rc == 0, run.output
    return one


@pytest.fixture(autouse=True)
def fixed(live):
    """Whatever a test does, the next one starts on hosts that are as planned."""
    yield
    run = live.play()
    assert run.rc == 0, run.output


def test_rerun_after_a_power_cycle_of_all_hosts_changes_nothing(live):
    files, addresses = live.netplan(), live.live()
    live.lab.cycle()
    live.lab.wait()
    run = live.play()
    assert run.rc == 0, run.output
    assert run.changed == dict.fromkeys(live.hosts, 0), run.output
    assert live.netplan() == files
    assert live.live() == addresses
    print(f"\nrun after the power cycle: {run.seconds:.0f} s")


def test_an_edit_between_preflight_and_apply_stops_before_writing(live):
    live.on("spark-02", "sysctl -w vm.swappiness=1; sed -i 's/swappiness = .*/swappiness = 1/' /etc/sysctl.d/60-sp*")
    before = live.netplan()
    condition = 'grep -q "swappiness = 2" /etc/sysctl.d/60-sparkthor.conf'
    live.on("spark-02", WATCHER.format(condition=condition, action=MOVE))
    try:
        run = live.play(*CHANGE)
        assert run.rc != 0, run.output
        live.on("spark-02", "test -e /run/somebody-acted")
        assert "01-management.yaml" in run.output
        assert "spark-02" in run.output
        assert all(answers(live, host) for host in live.hosts)
        after = live.netplan()
        for host in ("spark-01", "spark-03"):
            assert after[host] == before[host], "no host is written where one of them must not be"
        assert after["spark-02"].split()[2:] == before["spark-02"].split()[2:], "only the other person's file differs"
        print(f"\nstopped after {run.seconds:.0f} s")
    finally:
        live.on("spark-02", "systemctl stop somebody; sed -i 's|10.79.13.99/24|10.79.13.12/24|' /etc/netplan/01-m*")


def test_management_lost_during_the_change_comes_back_by_itself(live):
    before, addresses = live.netplan(), live.live()
    live.on("spark-02", WATCHER.format(condition=f"test -e {ARMED}", action=f"{MOVE}; netplan apply"))
    command = live.command(*CHANGE)
    with subprocess.Popen(
        command, env=live.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as play:
        within(120, lambda: bool(live.on("spark-02", "test -e /run/somebody-acted && echo yes", check=False)))
        took = within(ANSWERS_WITHIN, lambda: answers(live, "spark-02") and not armed(live))
        output = play.communicate(timeout=200)[0]
    assert play.returncode != 0, output
    assert "spark-02" in output
    assert "rolled back" in output or "way in was lost" in output, output
    assert live.netplan() == before, "no host keeps what one of them could not have"
    within(20, lambda: live.live() == addresses)
    assert "rolled back as well, because spark-02" in " ".join(output.split()), output
    print(f"\nanswers again {took:.0f} s after it was cut off")


def test_a_change_that_fails_on_one_host_is_kept_on_none(live):
    """The links of one host do not become as planned; the others are fine and would be a step ahead."""
    files, addresses = live.netplan(), live.live()
    environment = {host: live.on(host, "sha256sum /etc/sparkthor/fabric.env") for host in live.hosts}
    # a port leaves the bus in the middle of the change, as an uncabled ConnectX-7 does
    gone = "ip link set enp1s0f0np0 down; ip link set enp1s0f0np0 name gone0"
    live.on("spark-03", WATCHER.format(condition=f"test -e {ARMED}", action=gone))
    try:
        run = live.play(*CHANGE)
        live.on("spark-03", "test -e /run/somebody-acted")
    finally:
        live.on("spark-03", "systemctl stop somebody; ip link set gone0 name enp1s0f0np0", check=False)
        live.on("spark-03", "ip link set enp1s0f0np0 up")
    assert run.rc != 0, run.output
    text = " ".join(run.output.split())
    reason = "spark-03: the network change was rolled back by the host: the links did not become as planned"
    assert f"{reason}: enp1s0f0np0 does not exist" in text, run.output
    for host in ("spark-01", "spark-02"):
        assert f"{host}: its network change was rolled back as well, because spark-03" in text, run.output
    assert armed(live) == []
    assert live.netplan() == files
    within(20, lambda: live.live() == addresses)
    assert environment == {host: live.on(host, "sha256sum /etc/sparkthor/fabric.env") for host in live.hosts}
    print(f"\ntaken back on all hosts after {run.seconds:.0f} s")


def test_an_mtu_of_1500_is_made_and_verified_with_its_own_size(live):
    run = live.play("-e", "fabric_mtu=1500")
    assert run.rc == 0, run.output
    assert lost_pings(live, 1472) == []
    ways = 2 * len(live.lab.plan.segments)
    assert len(lost_pings(live, 1473)) == ways == 12, "one byte more does not fit, so the size was the whole"
    back = live.play()
    assert back.rc == 0, back.output
    assert lost_pings(live, 8972) == []


def test_a_switch_or_cable_that_swallows_large_frames_is_named(live):
    live.lab.blackhole("spark-02", "enP2p1s0f1np1")
    try:
        run = live.play("-e", "roce_network_verify_wait=3")
        assert run.rc != 0, run.output
        text = " ".join(run.output.split())
        assert "enP2p1s0f1np1 does not reach spark-01" in text, run.output
        assert "with 8972 bytes unfragmented" in text
        assert "does not reach spark-03" not in text, "the other cables are sound"
    finally:
        live.lab.fix("spark-02", "enP2p1s0f1np1")


def test_a_file_by_hand_that_means_the_same_is_adopted(live):
    path = "/etc/netplan/40-cx7.yaml"
    ours = live.on("spark-02", f"cat {path}")
    by_hand = f"sed -i -e '1s/.*/# by hand, after a guide/' -e 's/^      optional: true$/      optional: yes/' {path}"
    live.on("spark-02", by_hand)
    theirs = live.on("spark-02", f"cat {path}")
    assert theirs != ours
    try:
        run = live.play()
        assert run.rc == 0, run.output
        assert run.changed == dict.fromkeys(live.hosts, 0), run.output
        assert live.on("spark-02", f"cat {path}") == theirs
        other = live.play("-e", "fabric_mtu=8000")
        assert other.rc != 0, other.output
        assert f"{path} was not written by this collection and means something else than the plan" in other.output
        assert live.on("spark-02", f"cat {path}") == theirs
    finally:
        live.lab.exec("spark-02", ["tee", path], stdin=ours)


@pytest.mark.parametrize("whom", ["controller", "all of it"])
def test_killed_controller_leaves_every_host_as_it_was(live, whom):
    files, addresses = live.netplan(), live.live()
    play = subprocess.Popen(
        live.command(*CHANGE, "-e", "roce_network_rollback_timeout=30"),
        env=live.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    within(120, lambda: len(armed(live)) == len(live.hosts))
    if whom == "controller":
        play.kill()
    else:
        os.killpg(play.pid, signal.SIGKILL)
    play.wait()
    took = within(ANSWERS_WITHIN, lambda: not armed(live))
    assert live.netplan() == files
    within(20, lambda: live.live() == addresses)
    assert all(answers(live, host) for host in live.hosts)
    print(f"\nall hosts as before {took:.0f} s after the kill")
