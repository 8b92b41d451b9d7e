# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""teardown.yml gives a host back as it was, and a firewall that somebody took away is noticed and put back."""

from __future__ import annotations

import json

import pytest

from tests.integration.scan import tcp_ports

#: stays on: a clock that is right is nobody's harm, and who had it off cannot be told
LEFT = "timesync"
REST = "nft list ruleset; systemctl get-default; cat /proc/sys/vm/swappiness; systemctl is-enabled sleep.target; true"


#: areas that are off unless asked for; the package of earlyoom is not on the lab's hosts
MORE = {"os_hardening_hold": True, "os_hardening_hold_packages": ["nft*"], "os_hardening_headless_isolate": True}
#: what apt would install of a package of which a source has a newer version
CANDIDATE = r"""
set -e
mkdir -p /run/newer/repo /run/newer/lists/partial /run/newer/cache
cat >/run/newer/repo/Packages <<END
Package: nftables
Version: 99.0-1
Architecture: all
Maintainer: nobody <nobody@example.org>
Description: a newer one
Filename: ./nftables_99.0-1_all.deb
Size: 1
SHA256: 0000000000000000000000000000000000000000000000000000000000000000
END
echo 'deb [trusted=yes] file:/run/newer/repo ./' >/run/newer/sources.list
options="-o Dir::Etc::sourcelist=/run/newer/sources.list -o Dir::Etc::sourceparts=- -o Dir::Cache=/run/newer/cache"
options="$options -o Dir::State::lists=/run/newer/lists"
apt-get $options update >/dev/null 2>&1
apt-cache $options policy nftables | sed -n 's/ *Candidate: //p'
rm -r /run/newer
"""


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
    more = ("-e", json.dumps(MORE))
    before = all_of(pair)
    assert pair.on("spark-01", CANDIDATE).split() == ["99.0-1"], "apt would take the newer one"
    made = pair.play(*more)
    assert made.rc == 0, made.output
    assert all_of(pair) != before
    assert "99.0-1" not in pair.on("spark-01", CANDIDATE), "a held package stays"

    address = pair.lab.plan.host("spark-02").address
    pair.on("spark-02", "systemd-run --quiet --collect --unit=listen python3 -m http.server 6379; sleep 1")
    assert tcp_ports(address) == [22]
    # the watch would bring it back by itself
    pair.on("spark-02", "systemctl stop sparkthor-firewall-watch.service && nft delete table inet sparkthor")
    assert 6379 in tcp_ports(address), "the scan finds what is open"
    again = pair.play(*more)
    assert again.changed == {"spark-01": 0, "spark-02": 1}, again.output
    assert tcp_ports(address) == [22]
    pair.on("spark-02", "systemctl stop listen")

    predicted = pair.play("--check", playbook="teardown.yml")
    taken = pair.play(playbook="teardown.yml")
    assert taken.rc == 0, taken.output
    assert taken.changed == predicted.changed
    assert all_of(pair) == before
    assert set(pair.play(playbook="teardown.yml").changed.values()) == {0}
