# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Management networks other than one IPv4 address on one NIC, on a cluster that serves meanwhile.

This machine's kernel has neither bonds nor VLANs, so a bridge stands for a NIC that is stacked on another one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from sparklab.system import run as run_command

from tests.integration.conftest import Cluster
from tools.faults import host_faults
from tools.faults.faults import lives
from tools.faults.site import Site, wait
from tools.playbooks import run_playbook

NETWORK = "fd83:5ba1::"


@pytest.fixture
def site(cluster: Cluster) -> Site:
    found = Site(cluster.lab, cluster.inventories)
    wait(lambda: found.endpoint.complete(1, stream=False, timeout=60) == "", 600, "a first completion")
    return found


def run(inventories: list[Path], name: str) -> dict[str, int]:
    outcome = run_playbook("site.yml", inventories, name=name)
    assert outcome.rc == 0, outcome.failures
    print(f"\n{name}: {outcome.seconds:.0f} s, changed {outcome.changed}: {outcome.changes}")
    return outcome.changed


def usual(site: Site, host: str) -> tuple[str, str]:
    """The management NIC of a host, and its address with prefix length."""
    nic = site.lab.plan.host(host).management
    return nic, host_faults.addresses(site.lab, host, nic)[0]


@pytest.fixture
def six(site: Site, tmp_path: Path) -> Iterator[tuple[list[Path], dict[str, str]]]:
    """Hosts without an IPv4 address for management; the inventories that name the others, and these by host."""
    here = f"sl{site.lab.plan.tag}ctl"
    addresses = {host: f"{NETWORK}{number}" for number, host in enumerate(site.hosts, 0x11)}
    before = {host: usual(site, host) for host in site.hosts}
    hostvars = {
        host: {
            "ansible_host": address,
            "ansible_ssh_extra_args": f"-o HostKeyAlias={site.lab.plan.host(host).address}",
        }
        for host, address in addresses.items()
    }
    overlay = tmp_path / "six.yml"
    overlay.write_text(yaml.safe_dump({"all": {"hosts": hostvars}}), encoding="utf-8")
    run_command(["ip", "address", "replace", f"{NETWORK}1/64", "dev", here, "nodad"])
    try:
        for host, (nic, address) in before.items():
            site.on(host, f"sysctl -q -w net.ipv6.conf.{nic}.disable_ipv6=0")
            site.on(
                host, f"ip address replace {addresses[host]}/64 dev {nic} nodad && ip address del {address} dev {nic}"
            )
        yield [*site.inventories, overlay], addresses
    finally:
        for host, (nic, address) in before.items():
            site.on(host, f"ip address replace {address} dev {nic}; ip address del {addresses[host]}/64 dev {nic}")
        run_command(["ip", "address", "del", f"{NETWORK}1/64", "dev", here])
        run(site.inventories, "after-six")


def test_management_by_ipv6_alone(site: Site, six: tuple[list[Path], dict[str, str]]) -> None:
    inventories, addresses = six
    before = lives(site)
    run(inventories, "six")
    assert {unit for unit, life in lives(site).items() if life != before[unit]} <= {
        f"sparkthor-front.service on {site.head}"
    }
    moved = dataclasses.replace(site.endpoint, address=addresses[site.head])
    assert moved.complete(4, stream=False, timeout=120) == ""
    assert set(run(inventories, "six-again").values()) == {0}
    status = run_playbook("playbooks/status.yml", inventories, name="six-status")
    assert status.rc == 0
    assert f"http://[{addresses[site.head]}]:8000/v1" in status.output


@pytest.fixture
def stacked(site: Site) -> Iterator[None]:
    before = {host: usual(site, host) for host in site.hosts}
    try:
        for host, (nic, address) in before.items():
            # in one breath: the address is away for a moment
            site.on(
                host,
                f"ip link add stacked type bridge && ip link set stacked address $(cat /sys/class/net/{nic}/address) up"
                f" && ip address del {address} dev {nic} && ip link set {nic} master stacked"
                f" && ip address add {address} dev stacked",
            )
        yield
    finally:
        for host, (nic, address) in before.items():
            site.on(host, f"ip link del stacked; ip link set {nic} nomaster; ip address replace {address} dev {nic}")
        run(site.inventories, "after-stacked")


@pytest.mark.usefixtures("stacked")
def test_management_by_a_nic_that_is_stacked_on_another(site: Site) -> None:
    before = lives(site)
    run(site.inventories, "stacked")
    assert lives(site) == before
    assert set(run(site.inventories, "stacked-again").values()) == {0}
    assert site.endpoint.complete(4, stream=False, timeout=120) == ""
