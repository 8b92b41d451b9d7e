# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two controllers at once, one that was killed, and a reboot of all hosts by a playbook."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time

import pytest

from tests.integration.sites import within

LOCK = "/run/sparkthor-controller.json"


@pytest.fixture(scope="module")
def pair(site):
    return site("hf-two", "2spark", 16)


def holder(pair) -> dict[str, str]:
    text = pair.on("spark-01", f"cat {LOCK} 2>/dev/null", check=False)
    return json.loads(text) if text.strip() else {}


def started(pair, *arguments: str) -> subprocess.Popen[str]:
    """A run in the background, once it holds the lock."""
    # with a firewall that has to be confirmed, a first run takes a while after its lock
    run = subprocess.Popen(
        pair.command(*arguments),
        env=pair.environment(),
        cwd=os.getcwd(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    within(120, lambda: bool(holder(pair)) or run.poll() is not None)
    assert run.poll() is None, run.communicate()[0]
    return run


def test_the_second_controller_is_told_and_changes_nothing(pair):
    first = started(pair)
    since, owner = holder(pair)["since"], holder(pair)["owner"]
    second = pair.play("-e", "firewall_tcp_ports=9100")
    assert second.rc != 0
    text = " ".join(second.output.split())
    assert f'{owner} is changing this cluster: "Prepare the hosts" since {since}' in text
    assert sum(second.changed.values()) == 0
    # who only looks is not kept out
    assert pair.play("--check").rc == 0
    output = first.communicate(timeout=400)[0]
    assert first.returncode == 0, output
    within(20, lambda: not holder(pair))
    assert set(pair.play().changed.values()) == {0}


def test_the_lock_of_a_killed_controller_falls_at_once(pair):
    run = started(pair, "-e", "firewall_tcp_ports=9100")
    run.send_signal(signal.SIGKILL)
    run.communicate(timeout=60)
    within(20, lambda: not holder(pair))
    after = pair.play("-e", "firewall_tcp_ports=9100")
    assert after.rc == 0, after.output


def test_a_controller_that_lost_power_is_taken_over(pair):
    """Nobody is left to release its lock, and nobody gives a sign of life."""
    text = json.dumps(
        {"token": "x", "owner": "ada@gone (process 7)", "play": "Prepare the hosts", "since": "yesterday"}
    )
    pair.on("spark-01", f"echo '{text}' >{LOCK}")
    refused = pair.play("-e", "firewall_tcp_ports=9101")
    assert refused.rc != 0
    assert "ada@gone (process 7) is changing this cluster" in " ".join(refused.output.split())
    pair.on("spark-01", f"touch --date='2 minutes ago' {LOCK}")
    taken = pair.play("-e", "firewall_tcp_ports=9101")
    assert taken.rc == 0, taken.output
    assert "took over the lock of ada@gone (process 7)" in " ".join(taken.output.split())
    within(20, lambda: not holder(pair))


def test_all_hosts_reboot_in_order(pair):
    boots = {host: pair.lab.boot_id(host) for host in pair.hosts}
    pair.on("spark-02", "echo linux-image-6.18 >/run/reboot-required.pkgs; touch /run/reboot-required")
    looked = pair.play("--check", playbook="reboot.yml")
    assert looked.rc == 0, looked.output
    assert "spark-02 reboots: linux-image-6.18" in looked.output
    assert "spark-01 reboots" not in looked.output
    assert {host: pair.lab.boot_id(host) for host in pair.hosts} == boots

    one = pair.play(playbook="reboot.yml")
    assert one.rc == 0, one.output
    assert pair.lab.boot_id("spark-01") == boots["spark-01"]
    assert pair.lab.boot_id("spark-02") != boots["spark-02"]

    begun = time.monotonic()
    both = pair.play("-e", "reboot_all=true", playbook="reboot.yml")
    print(f"both: {time.monotonic() - begun:.0f} s", flush=True)
    assert both.rc == 0, both.output
    assert both.changed == {"spark-01": 1, "spark-02": 1}
    order = re.findall(r"^changed: \[(spark-\d+)\]", both.output, re.MULTILINE)
    assert order == ["spark-02", "spark-01"], "the head last"
    within(20, lambda: not holder(pair))
    assert set(pair.play("-e", "firewall_tcp_ports=9101").changed.values()) == {0}
    assert "no host asks for a reboot" in pair.play(playbook="reboot.yml").output
