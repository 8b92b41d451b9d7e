# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd's readiness and liveness protocol, sd_notify(3)."""

from __future__ import annotations

import contextlib
import os
import socket

READY = "READY=1"
ALIVE = "WATCHDOG=1"


def notify(text: str) -> None:
    """Where systemd asked for it; systemd listens to a unit's main process alone."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door, contextlib.suppress(OSError):
        door.sendto(text.encode(), address)
