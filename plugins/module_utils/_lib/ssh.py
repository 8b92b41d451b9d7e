# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ssh connection a module runs over, as the host sees it."""

from __future__ import annotations

import os
import re


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def connection(proc: str = "/proc", pid: int | None = None) -> list[str]:
    """``[client address, client port, server address, server port]``, or nothing without ssh.

    sudo drops ``SSH_CONNECTION``, so the process tree is walked upwards; root may read every environment.
    """
    current = os.getpid() if pid is None else pid
    for _step in range(32):
        found = re.search(r"(?:^|\0)SSH_CONNECTION=([^\0]*)", _read(f"{proc}/{current}/environ"))
        words = found.group(1).split() if found else []
        if len(words) == 4 and words[3].isdigit():
            return words
        parent = re.search(r"^PPid:\s+(\d+)", _read(f"{proc}/{current}/status"), re.MULTILINE)
        current = int(parent.group(1)) if parent else 0
        if current <= 1:
            break
    return []
