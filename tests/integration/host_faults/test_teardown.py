# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""teardown.yml gives a host back as it was, and a firewall that somebody took away is noticed and put back."""

from __future__ import annotations

import pytest

from tests.integration.scan import tcp_ports

#: stays on: a clock that is right is nobody's harm, and who had it off cannot be told
LEFT = "timesync"
REST = "nft list ruleset; systemctl get-default; cat /proc/sys/vm/swappiness; systemctl is-enabled sleep.target; true"


@pytest.fixture(scope="module")
def pair(site):
    return site("hf-td", "2spark", 14)


def all_of(site) -> dict[str, tuple[set[str], str, str]]:
    live, files = site.live(), site.files()
    return {
        host: (
            {line for line in files[host].splitlines() if LEFT not in line and "/var/lib/sparkthor" not in line},
            live[host],
            site.on(host, REST),
        )
        for host in site.hosts
    }


def test_a_host_is_given_back_as_it_was(pair):
    before = all_of(pair)
    made = pair.play()
    assert made.rc == 0, made.output
    assert all_of(pair) != before

    address = pair.lab.plan.host("spark-02").address
    pair.on("spark-02", "systemd-run --quiet --collect --unit=listen python3 -m http.server 6379; sleep 1")
    assert tcp_ports(address) == [22]
    pair.on("spark-02", "nft delete table inet sparkthor")
    assert 6379 in tcp_ports(address), "the scan finds what is open"
    again = pair.play()
    assert again.changed == {"spark-01": 0, "spark-02": 1}, again.output
    assert tcp_ports(address) == [22]
    pair.on("spark-02", "systemctl stop listen")

    predicted = pair.play("--check", playbook="teardown.yml")
    taken = pair.play(playbook="teardown.yml")
    assert taken.rc == 0, taken.output
    assert taken.changed == predicted.changed
    assert all_of(pair) == before
    assert set(pair.play(playbook="teardown.yml").changed.values()) == {0}
