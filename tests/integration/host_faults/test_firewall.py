# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A firewall change that shuts the controller out, or whose controller dies, is rolled back by the host alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

TABLE = "nft --stateless list table inet sparkthor 2>&1"
ARMED = "/run/sparkthor-firewall/armed.json"
#: a network of examples: the controller is not in it
STRANGERS = json.dumps({"firewall_ssh_sources": ["203.0.113.0/24"], "firewall_rollback_timeout": 12})


@pytest.fixture(scope="module")
def closed(site):
    return site("hf-fw", "2spark", 15)


def answers(site, host: str) -> bool:
    command = site.lab.ssh_command(host, ["true"])
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def state(site) -> dict[str, tuple[str, str]]:
    return {host: (files, site.on(host, TABLE, check=False)) for host, files in site.files().items()}


def within(seconds: float, holds: Callable[[], bool]) -> None:
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < seconds, f"not within {seconds} s"
        time.sleep(0.1)


def test_a_killed_controller_leaves_the_hosts_as_they_were(closed):
    before = state(closed)
    play = subprocess.Popen(
        closed.command("--tags=firewall", "-e", json.dumps({"firewall_rollback_timeout": 15})),
        env=closed.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    # On a host without our table the change takes two seconds, enough to kill in
    within(120, lambda: all(closed.on(host, f"test -e {ARMED} && echo yes", check=False) for host in closed.hosts))
    os.killpg(play.pid, signal.SIGKILL)
    play.wait()
    within(20, lambda: all("policy drop" in closed.on(host, TABLE, check=False) for host in closed.hosts))
    within(60, lambda: state(closed) == before)
    assert all(answers(closed, host) for host in closed.hosts)


def test_a_ruleset_that_shuts_the_controller_out_is_taken_back(closed):
    """First with no table before it, then with one."""
    for _round in ("virgin", "converged"):
        before = state(closed)
        run = closed.play("--tags=firewall", "-e", STRANGERS)
        assert run.rc != 0, run.output
        for host in closed.hosts:
            assert f"{host}: the host took the change back" in run.output
            assert answers(closed, host)
        assert state(closed) == before
        made = closed.play("--tags=firewall")
        assert made.rc == 0, made.output
    again = closed.play("--tags=firewall")
    assert set(again.changed.values()) == {0}, again.output


#: what docker has in the tables it owns, and a table of somebody else's
FOREIGN = r"""
table ip filter {
    chain FORWARD {
        type filter hook forward priority filter; policy drop;
        jump DOCKER-USER
    }
    chain DOCKER-USER {
        counter return
    }
}
table inet theirs {
    set friends {
        type ipv4_addr
        elements = { 192.0.2.1, 192.0.2.2 }
    }
    chain output {
        type filter hook output priority 10; policy accept;
        ip daddr @friends accept
    }
}
"""


def test_dockers_and_foreign_tables_are_left_alone(closed):
    """While our table comes, changes and goes."""
    others = "for table in 'ip filter' 'inet theirs'; do nft --handle list table $table; done"
    for host in closed.hosts:
        closed.lab.exec(host, ["nft", "-f", "-"], stdin=FOREIGN.replace("\\t", "\t"))
    try:
        before = {host: closed.on(host, others) for host in closed.hosts}
        for arguments in ((), ("-e", json.dumps({"firewall_tcp_ports": [9100]}))):
            run = closed.play("--tags=firewall", *arguments)
            assert run.rc == 0, run.output
            assert {host: closed.on(host, others) for host in closed.hosts} == before
        parts = json.dumps({"teardown_parts": "serving,network", "teardown_acknowledged": True})
        gone = closed.play("--tags=firewall", "-e", parts, playbook="teardown.yml")
        assert gone.rc == 0, gone.output
        assert {host: closed.on(host, others) for host in closed.hosts} == before
    finally:
        for host in closed.hosts:
            closed.on(host, "nft delete table ip filter; nft delete table inet theirs")
