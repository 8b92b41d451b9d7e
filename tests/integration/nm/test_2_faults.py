# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What strikes in the middle of a change on hosts of NetworkManager's: every host is as it was, and reachable."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.integration.nm.conftest import comes_back, state
from tests.integration.sites import ARMED, WATCHER, answers, armed, within

CHANGE = ("-e", "fabric_mtu=8000")
#: a change that also goes from one network service to the other
SWITCH = ("-e", "roce_network_renderer=networkd")
#: by then a host answers again
ANSWERS_WITHIN = 90


@pytest.fixture(autouse=True)
def fixed(live):
    yield
    run = live.play()
    assert run.rc == 0, run.output


@pytest.mark.parametrize("change", [CHANGE, SWITCH], ids=["mtu", "renderer"])
def test_a_killed_controller(live, change):
    before = state(live)
    play = subprocess.Popen(
        live.command(*change, "-e", "roce_network_rollback_timeout=30"),
        env=live.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    within(120, lambda: len(armed(live)) == len(live.hosts))
    os.killpg(play.pid, signal.SIGKILL)
    play.wait()
    within(ANSWERS_WITHIN, lambda: not armed(live))
    comes_back(live, before)
    assert all(answers(live, host) for host in live.hosts)


def test_power_lost_while_armed(live):
    before = state(live)
    with subprocess.Popen(
        live.command(*CHANGE), env=live.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as play:
        within(120, lambda: "spark-02" in armed(live))
        live.lab.cycle("spark-02")
        live.lab.wait("spark-02")
        output = play.communicate(timeout=300)[0]
    assert play.returncode != 0, output
    within(ANSWERS_WITHIN, lambda: not armed(live))
    comes_back(live, before)


#: somebody gives the management NIC another address (and netplan starts networkd); somebody takes its profile down
LOSSES = {
    "address": 'sed -i "s|10.79.16.12/24|10.79.16.99/24|" /etc/netplan/90-NM-*.yaml; netplan apply;'
    " systemctl stop systemd-networkd.socket systemd-networkd.service",
    "down": 'sleep 1; nmcli connection down "Wired connection 1"',
}


@pytest.mark.parametrize("action", LOSSES.values(), ids=LOSSES)
def test_management_lost_while_armed(live, action):
    before = state(live)
    live.on("spark-02", WATCHER.format(condition=f"test -e {ARMED}", action=action))
    with subprocess.Popen(
        live.command(*CHANGE), env=live.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as play:
        within(120, lambda: bool(live.on("spark-02", "test -e /run/somebody-acted && echo yes", check=False)))
        within(ANSWERS_WITHIN, lambda: answers(live, "spark-02") and not armed(live))
        output = play.communicate(timeout=300)[0]
    assert play.returncode != 0, output
    comes_back(live, before)
    journal = live.on(
        "spark-02", "journalctl --no-pager -u 'sparkthor-netplan-*' | grep -c 'unknown connection'", check=False
    )
    assert journal.strip() == "0"
