# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import firewall_watch
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import notify


# the watch over the firewall is one file that needs no other
@pytest.mark.parametrize("tell", [notify.notify, firewall_watch.notify], ids=["package", "firewall"])
@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_hears_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tell: Callable[[str], None], abstract: bool
) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.bind("\0" + path[1:] if abstract else path)
        door.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + path[1:] if abstract else path)
        tell(notify.ALIVE)
        assert door.recv(100) == b"WATCHDOG=1"
    # nobody listens, and nobody asked
    tell(notify.ALIVE)
    monkeypatch.delenv("NOTIFY_SOCKET")
    tell(notify.ALIVE)
