# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is closed stays closed: whoever takes our table away or changes it, it is back, and serving never notices."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.asking import ask
from tests.integration.scan import tcp_ports
from tests.integration.security.conftest import Asking, Target

TABLE = "nft --stateless list table inet sparkthor 2>/dev/null"
WATCH = "sparkthor-firewall-watch.service"
#: ports of Ray and of the exporter, which strangers must not reach
CLOSED = (6379, 8265, 9835)
#: run on a host: take the table away, then count the milliseconds until the former one is back
AWAY = r"""
wanted=$({table}); [ -n "$wanted" ] || exit 3
( {attack} ) >/dev/null || exit 5
begun=$(date +%s%N)
while [ "$({table})" != "$wanted" ]; do
  [ $(( ($(date +%s%N) - begun) / 1000000 )) -gt 30000 ] && exit 4
done
echo $(( ($(date +%s%N) - begun) / 1000000 ))
"""
ATTACKS = (
    "nft flush ruleset",
    "systemctl restart nftables.service",
    "systemctl stop nftables.service",
    "nft delete table inet sparkthor",
    "nft insert rule inet sparkthor input accept",
    "nft add chain inet sparkthor input '{ policy accept; }'",
    "nft add table inet sparkthor '{ flags dormant; }'",
    "systemctl kill --signal=SIGKILL sparkthor-firewall-watch.service; nft flush ruleset",
)


@pytest.fixture(autouse=True)
def closed_in_the_end(target: Target) -> Iterator[None]:
    yield
    for host in target.hosts:
        target.run(host, f"systemctl start sparkthor-firewall.service {WATCH}")


@pytest.mark.parametrize("attack", ATTACKS)
def test_it_comes_back_and_serving_is_not_disturbed(target: Target, asking: Asking, attack: str) -> None:
    before = target.invocations()
    answered = len(asking.seconds)
    for host in target.hosts:
        text = target.run(host, AWAY.format(table=TABLE, attack=attack))
        print(f"\n{host}: closed again {text.strip()} ms after {attack}", end="", flush=True)
        assert not set(CLOSED) & set(tcp_ports(target.cluster.addresses[host], CLOSED))
    target.until(lambda: len(asking.seconds) > answered + 1, 60)
    assert asking.failures == []
    assert target.invocations() == before


def test_what_the_watch_costs_while_nothing_happens(target: Target) -> None:
    # a lab's host may have no accounting of memory, so systemd cannot say
    look = (
        f"pid=$(systemctl show -P MainPID {WATCH}); cut -d' ' -f1 /proc/$pid/schedstat; "
        "awk '/^VmRSS:/ {print $2}' /proc/$pid/status"
    )
    first = [int(value) for value in target.run(target.head, look).split()]
    time.sleep(30)
    last = [int(value) for value in target.run(target.head, look).split()]
    print(f"\n{(last[0] - first[0]) / 1e6 / 30:.2f} ms of a CPU each second, {last[1] / 2**10:.1f} MiB", flush=True)
    assert last[0] >= first[0] > 0
    assert last[1] > 0


def test_whoever_stops_the_firewall_is_obeyed_and_everybody_says_so(
    target: Target, monitored: Target, tmp_path: Path
) -> None:
    host = target.hosts[-1]
    # stopped alone, it would come back with the next start of any service, as of a login
    target.run(host, "systemctl disable --now sparkthor-firewall.service")
    assert target.run(host, f"systemctl is-active {WATCH}", check=False).strip() == "inactive"
    time.sleep(12)
    assert target.run(host, TABLE, check=False) == ""
    answer = ask(target.cluster.inventories, tmp_path, "--extra-vars", f"lab_name={target.cluster.lab.name}")
    assert answer.places == [("firewall-open", (host,))]
    status = target.play("playbooks/status.yml")
    assert f"{host}: the firewall is open: the table inet sparkthor is not loaded" in status.output
    metrics = "curl -sf http://127.0.0.1:9835/metrics | grep ^sparkthor_firewall_closed"
    assert monitored.run(host, metrics).split() == ["sparkthor_firewall_closed", "0"]
    target.run(host, "systemctl enable --now sparkthor-firewall.service")
    target.until(lambda: target.run(host, metrics).split()[-1] == "1", 30)
    assert target.run(host, TABLE)


def test_without_the_watch_it_is_said_that_a_flush_would_last(target: Target, tmp_path: Path) -> None:
    host = target.head
    target.run(host, f"systemctl stop {WATCH}")
    answer = ask(target.cluster.inventories, tmp_path, "--extra-vars", f"lab_name={target.cluster.lab.name}")
    assert answer.places == [("firewall-unwatched", (host,))]
    again = target.play("site.yml", "--tags", "firewall")
    assert again.changed[host] == 1
    assert target.run(host, f"systemctl is-active {WATCH}").strip() == "active"
