# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports for tests, which run beside other tests."""

from __future__ import annotations

import random
import socket

#: below the ports that Linux gives to outgoing connections and to whoever asks for any
RANGE = range(10_000, 30_000)


def free_port() -> int:
    """A port that nobody has and that nobody is given by chance before the test uses it."""
    while True:
        port = random.SystemRandom().choice(RANGE)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
