# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two hosts and one cable, with NetworkManager as netplan's renderer and a desktop. Tests run in the files' order."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.integration.sites import Maker, Site


@pytest.fixture(scope="session")
def pair() -> Iterator[Site]:
    maker = Maker()
    yield maker("nm", "2spark", 16, layers=["networkmanager", "desktop"])
    maker.destroy()


@pytest.fixture(scope="session")
def virgin(pair: Site) -> dict[str, str]:
    """The hosts before the first run."""
    return state(pair)


@pytest.fixture(scope="session")
def live(pair: Site, virgin: dict[str, str]) -> Site:
    """The converged hosts; the first run is test_1_deploy's."""
    assert virgin
    run = pair.play()
    assert run.rc == 0, run.output
    return pair


def state(site: Site) -> dict[str, str]:
    """Files, addresses, MTU, and whose hands each NIC is in."""
    command = (
        "cd /etc/netplan && sha256sum *; ls -A /etc/NetworkManager/conf.d /etc/NetworkManager/system-connections;"
        'ip -br address show scope global | awk \'$3 {sub(/@.*/, "", $1); $2=""; print}\';'
        "grep . /sys/class/net/en*/mtu;"
        # a NIC that waits for DHCP is connecting and disconnected by turns
        "nmcli -g DEVICE,STATE device | sed -E 's/:(connecting|disconnected).*/:managed/' | grep ^en | sort;"
        "systemctl is-active systemd-networkd.service;"
        # the metric is NetworkManager's choice whenever it raises a profile
        "(ip route show default; ip -6 route show default) | sed 's/ metric .*//'"
    )
    return {host: site.on(host, command, check=False) for host in site.hosts}


def comes_back(site: Site, before: dict[str, str], seconds: float = 30) -> None:
    """Wait until all is as it was, or show what is not."""
    end = time.monotonic() + seconds
    while (now := state(site)) != before and time.monotonic() < end:
        time.sleep(1)
    for host, text in before.items():
        assert now[host].splitlines() == text.splitlines(), host


def addresses(site: Site, *hosts: str) -> dict[str, list[str]]:
    """Fabric addresses and MTUs."""
    command = (
        'ip -br -4 address show scope global | awk \'!/^enP7s7/ {sub(/@.*/, "", $1); $2=""; print}\';'
        "grep . /sys/class/net/en*np*/mtu"
    )
    return {host: site.on(host, command).splitlines() for host in hosts or site.hosts}
