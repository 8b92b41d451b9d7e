# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults that strike after the hosts were looked at, or between two runs: no host stays cut off, none half changed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

#: the issue's promise: by then a host answers again, with its previous files
ANSWERS_WITHIN = 90
ARMED = "/var/lib/sparkthor-netplan/plan.json"
#: a change of every host's fabric ports, and of one file of an earlier role
CHANGE = ("-e", "fabric_mtu=8000", "-e", "os_hardening_swap_swappiness=2")

#: somebody else acts on a host as soon as a condition holds there
WATCHER = """
rm -f /run/somebody-acted
systemd-run --quiet --collect --unit=somebody /bin/bash -c '
  for _ in $(seq 2400); do {condition} && break; sleep 0.05; done
  umask 077
  {action}
  touch /run/somebody-acted'
"""
MOVE = 'sed -i "s|10.79.13.12/24|10.79.13.99/24|" /etc/netplan/01-management.yaml'


@pytest.fixture(scope="module")
def live(site):
    """Three converged hosts."""
    one = site("hf-live", "3spark_ring", 13)
    run = one.play()
    assert run.rc == 0, run.output
    return one


@pytest.fixture(autouse=True)
def mended(live):
    """Whatever a test does, the next one starts on hosts that are as planned."""
    yield
    run = live.play()
    assert run.rc == 0, run.output


def within(seconds: float, holds: Callable[[], bool]) -> float:
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < seconds, f"not within {seconds} s"
        time.sleep(0.5)
    return time.monotonic() - begun


def answers(site, host: str) -> bool:
    """Whether somebody can log in on the host's own management address."""
    done = subprocess.run(site.lab.ssh_command(host, ["true"]), capture_output=True, timeout=60, check=False)
    return done.returncode == 0


def armed(site) -> list[str]:
    return [host for host in site.hosts if site.on(host, f"test -e {ARMED} && echo yes", check=False)]


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
    before = live.netplan()["spark-02"]
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
    assert "taken back" in output or "way in was lost" in output, output
    assert live.netplan()["spark-02"] == before
    print(f"\nanswers again {took:.0f} s after it was cut off")


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
