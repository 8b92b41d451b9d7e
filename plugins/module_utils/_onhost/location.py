# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where this package lies on a host, and how a program of it is called there."""

from __future__ import annotations

LIBRARY = "/usr/local/lib/sparkthor"
PACKAGE = f"{LIBRARY}/sparkthor_host"
#: isolated, because no variable or folder of another user may change what root runs; nothing is written beside it
PYTHON = ("/usr/bin/python3", "-IB")


def command(verb: str, *arguments: str) -> list[str]:
    """The words that run ``verb`` on a host."""
    return [*PYTHON, PACKAGE, verb, *arguments]
