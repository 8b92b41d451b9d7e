# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""teardown.yml gives a host back as it was, and a firewall that somebody took away is noticed and put back."""

from __future__ import annotations

import json

import pytest

from tests.integration import virgin
from tests.integration.scan import tcp_ports

#: areas that are off unless asked for; the package of earlyoom is not on the lab's hosts
MORE = {
    "os_hardening_hold": True,
    "os_hardening_hold_packages": ["nft*"],
    "os_hardening_headless_isolate": True,
}
EVERYTHING = ("-e", "teardown_parts=all")
YES = ("-e", "teardown_acknowledged=true")
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


def all_of(site) -> dict[str, virgin.Known]:
    return {host: virgin.of(lambda command, host=host: site.on(host, command)) for host in site.hosts}


def test_a_host_is_given_back_as_it_was(pair):
    more = ("-e", json.dumps(MORE))
    before = all_of(pair)
    assert pair.on("spark-01", CANDIDATE).split() == ["99.0-1"], "apt would take the newer one"
    made = pair.play(*more)
    assert made.rc == 0, made.output
    assert any(virgin.differences(before[host], found) for host, found in all_of(pair).items())
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

    # a file of ours in the place of somebody else's, and what a person put into a folder that we made
    pair.on("spark-01", "echo theirs >/etc/sysctl.d/60-sparkthor.conf.sparkthor-orig")
    pair.on("spark-02", "echo mine >/usr/local/lib/sparkthor/notes")

    for arguments, message in (
        (("-e", "teardown_parts=kernel"), "kernel: there is no such part"),
        (EVERYTHING, "-e teardown_acknowledged=true"),
        (("-e", "teardown_parts=engine", *YES), "serving, monitoring cannot stay without engine"),
    ):
        refused = pair.play(*arguments, playbook="teardown.yml")
        assert refused.rc != 0
        assert message in " ".join(refused.output.split()), refused.output
        assert sum(refused.changed.values()) == 0
    predicted = pair.play("--check", *EVERYTHING, playbook="teardown.yml")
    taken = pair.play(*EVERYTHING, *YES, playbook="teardown.yml")
    assert taken.rc == 0, taken.output
    assert taken.changed == predicted.changed
    after = all_of(pair)
    left = {host: virgin.differences(before[host], after[host]) for host in pair.hosts}
    restored = [line for line in left["spark-01"] if "/etc/sysctl.d/60-sparkthor.conf" in line]
    assert len(restored) == 2, "the file that was there before, and its content"
    assert [line for line in left["spark-01"] if line not in restored] == []
    # the record stays as long as it names a folder that is there
    kept = ("/usr/local/lib/sparkthor", "/var/lib/sparkthor")
    assert [line for line in left["spark-02"] if not any(path in line for path in kept)] == []
    mine = ["/usr/local/lib/sparkthor", "/usr/local/lib/sparkthor/notes"]
    assert pair.on("spark-02", "find /usr/local/lib/sparkthor").split() == mine
    assert set(pair.play(*EVERYTHING, *YES, playbook="teardown.yml").changed.values()) == {0}
