# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel parameters."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.sysctls import sysctl_path
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import (
    HostStateError,
)

from tests.unit.simulated_host import FakeHost, read, write


def named(values: dict[str, object]) -> list[dict[str, object]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def test_sysctls(host: FakeHost) -> None:
    write(host, "/proc/sys/vm/swappiness", "60\n")
    write(host, "/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n")
    done = host.converge(sysctls=named({"vm.swappiness": 1, "net.ipv4.tcp_rmem": "4096 131072 6291456"}))
    assert done.changed_sysctls == ["vm.swappiness"]
    assert done.diff[0]["before"] == "vm.swappiness = 60\n"
    assert read(host, "/proc/sys/vm/swappiness") == "1\n"


def test_unknown_sysctl(host: FakeHost) -> None:
    predicted = host.apply(check=True, sysctls=named({"vm.nothing": 1}))
    assert predicted.changed
    assert "vm.nothing cannot be read" in predicted.warnings[0]
    with pytest.raises(HostStateError, match=r"vm\.nothing cannot be read on this host: No such file"):
        host.apply(sysctls=named({"vm.nothing": 1}))


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("vm.swappiness", "vm/swappiness"),
        ("net/ipv4/conf/eth0.1/forwarding", "net/ipv4/conf/eth0.1/forwarding"),
        ("net.ipv4.conf.eth0/1.forwarding", "net/ipv4/conf/eth0.1/forwarding"),
    ],
)
def test_sysctl_path(key: str, path: str) -> None:
    assert sysctl_path(key) == path


@pytest.mark.parametrize("key", ["swappiness", "/vm/swappiness", "../etc/passwd", "vm..x", "a b.c", ""])
def test_bad_sysctl_key(key: str) -> None:
    with pytest.raises(HostStateError, match="not a sysctl key"):
        sysctl_path(key)
