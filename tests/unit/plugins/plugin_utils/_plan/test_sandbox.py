# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.sandbox import (
    EVERY,
    NETWORK,
    engine_home,
    sandbox,
)


def test_a_program_of_ours_may_next_to_nothing() -> None:
    lines = sandbox().splitlines()
    assert set(EVERY) < set(lines)
    assert "CapabilityBoundingSet=" in lines
    assert "RestrictAddressFamilies=AF_UNIX" in lines
    assert {"ProtectSystem=strict", "ProtectHome=yes", "PrivateDevices=yes", "MemoryDenyWriteExecute=yes"} < set(lines)
    # the list of what is allowed has to come before what is taken off it
    filters = [line for line in lines if line.startswith("SystemCallFilter=")]
    assert filters == ["SystemCallFilter=@system-service", "SystemCallFilter=~@privileged @resources"]
    assert not any(line.startswith("ReadWritePaths") for line in lines)


def test_what_a_program_needs_is_said() -> None:
    lines = sandbox(
        families=NETWORK, capabilities=["CAP_CHOWN", "CAP_SETUID"], writable=["/run/a", "/var/b"], refused=[]
    ).splitlines()
    assert "CapabilityBoundingSet=CAP_CHOWN CAP_SETUID" in lines
    assert "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6" in lines
    assert "ReadWritePaths=-/run/a -/var/b" in lines
    assert not any(line.startswith("SystemCallFilter=~") for line in lines)


def test_what_a_program_must_not_see_may_be_absent() -> None:
    assert "InaccessiblePaths=-/etc/a -/etc/b" in sandbox(engine=True, hidden=["/etc/a", "/etc/b"]).splitlines()
    assert "InaccessiblePaths" not in sandbox(engine=True)


def test_an_engine_keeps_devices_and_compilers() -> None:
    lines = sandbox(engine=True).splitlines()
    assert set(EVERY) < set(lines)
    assert "ProtectSystem=full" in lines
    assert not {"PrivateDevices=yes", "MemoryDenyWriteExecute=yes", "PrivateTmp=yes"} & set(lines)
    assert "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK" in lines
    assert not any(line.startswith("SystemCallFilter=@") for line in lines)


@pytest.mark.parametrize(
    ("values", "home"),
    [
        (("/var/lib/sparkthor/models", {"a": ["/data/home/x"]}), "yes"),
        (("/home/nvidia/models/x",), "no"),
        (({"vllm_serve_env": {"TRITON_CACHE_DIR": "/root/cache"}},), "no"),
        (({"download-dir": "file:/home/x"},), "no"),
        (("/homes/x", "/rooted"), "yes"),
    ],
)
def test_homes_are_closed_unless_a_setting_names_one(values: tuple[Any, ...], home: str) -> None:
    assert engine_home(*values) == home
