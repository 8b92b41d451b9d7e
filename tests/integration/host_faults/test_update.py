# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Updates one host at a time, by apt itself out of a repository on each host's own disk."""

from __future__ import annotations

import pytest

from tests.integration.sites import Site

PACKAGE = "sparkthor-probe"
UPDATE = ("-e", f"update_packages={PACKAGE}", "-e", "update_proof_retries=1")
#: two versions of one package; what its script ends with after the installation of the second one is $1
REPOSITORY = r"""
set -e; rm -rf /srv/probe; mkdir -p /srv/probe; cd /srv/probe
make() {
  mkdir -p $1/DEBIAN
  {
    printf 'Package: sparkthor-probe\nVersion: 1:%s\nArchitecture: all\n' $1
    printf 'Maintainer: x <x@example.org>\nDescription: nothing\n'
  } > $1/DEBIAN/control
  printf '#!/bin/sh\nexit %s\n' $2 > $1/DEBIAN/postinst; chmod 755 $1/DEBIAN/postinst
  dpkg-deb --build $1 $1.deb > /dev/null
}
make 1.0 0; make 2.0 $1
for file in *.deb; do
  dpkg-deb -f $file; echo "Filename: ./$file"; echo "Size: $(stat -c %s $file)"
  echo "SHA256: $(sha256sum $file | cut -d' ' -f1)"; echo
done > Packages
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d; mkdir /etc/apt/sources.list.d
echo 'deb [trusted=yes] file:/srv/probe ./' > /etc/apt/sources.list.d/probe.list
dpkg --install 1.0.deb > /dev/null
"""


@pytest.fixture(scope="module")
def hosts(site) -> Site:
    one = site("hf-update", "3spark_ring", 17)
    run = one.play()
    assert run.rc == 0, run.output
    return one


def prepare(site: Site, broken: str = "") -> None:
    for host in site.hosts:
        site.on(host, f"set -- {int(host == broken)}\n{REPOSITORY}")


def versions(site: Site) -> dict[str, str]:
    return {host: site.on(host, f"dpkg-query -W -f '${{Version}}' {PACKAGE}").strip() for host in site.hosts}


def test_nothing_changes_before_somebody_agreed(hosts: Site) -> None:
    prepare(hosts)
    run = hosts.play(*UPDATE, playbook="update.yml")
    assert run.rc != 0
    assert "update_acknowledged=true" in run.output
    head, first, second = hosts.hosts
    lines = [f"{number}. {host}: {PACKAGE} 1:1.0 -> 1:2.0" for number, host in enumerate((first, second, head), 1)]
    assert all(line in run.output for line in (*lines, "way back: ")), run.output
    assert set(versions(hosts).values()) == {"1:1.0"}


def test_one_hosts_failing_update_is_taken_back_and_stops_the_rest(hosts: Site) -> None:
    head, first, second = hosts.hosts
    prepare(hosts, broken=second)
    run = hosts.play(*UPDATE, "-e", "update_acknowledged=true", playbook="update.yml")
    assert run.rc != 0
    assert f"{second}: apt-get install ended with 100" in run.output, run.output
    assert versions(hosts) == {head: "1:1.0", first: "1:2.0", second: "1:1.0"}


def test_a_host_that_is_worse_afterwards_is_taken_back(hosts: Site) -> None:
    head, first, second = hosts.hosts
    prepare(hosts)
    # while its package is installed, a port loses its cable
    hosts.on(
        first,
        "nohup sh -c 'until dpkg-query -W sparkthor-probe | grep -q 1:2.0; do sleep 0.1; done; "
        "ip link set enp1s0f0np0 down' > /dev/null 2>&1 &",
    )
    try:
        run = hosts.play(*UPDATE, "-e", "update_acknowledged=true", playbook="update.yml")
    finally:
        hosts.on(first, "ip link set enp1s0f0np0 up")
    assert run.rc != 0
    assert "enp1s0f0np0 has no carrier, and had one" in run.output, run.output
    assert versions(hosts) == {head: "1:1.0", first: "1:1.0", second: "1:1.0"}


def test_all_hosts_are_updated_one_after_the_other(hosts: Site) -> None:
    prepare(hosts)
    run = hosts.play(*UPDATE, "-e", "update_acknowledged=true", playbook="update.yml")
    assert run.rc == 0, run.output
    assert set(versions(hosts).values()) == {"1:2.0"}
    again = hosts.play(*UPDATE, playbook="update.yml")
    assert again.rc == 0, again.output
    assert "no host has an update" in again.output
