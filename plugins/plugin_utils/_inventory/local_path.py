# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A path on the controller as a person would write it: ``~`` expanded, ``a/b/../../c`` without the steps back."""

from __future__ import annotations

import os


def local(path: str) -> str:
    """The path to open and to print.  Steps back stay where a symbolic link on the way gives them another meaning."""
    path = os.path.expanduser(path)
    short = os.path.normpath(path) if path else ""
    return short if os.path.realpath(short) == os.path.realpath(path) else path
