# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of the kernel's log that a rule of the doctor may be about, for status; what they mean the rules say.
Standard library only."""

from __future__ import annotations

from collections.abc import Callable

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.mask import mask

Runner = Callable[[list[str]], tuple[int, str, str]]

#: as far back as the doctor looks
COMMAND = [
    *("journalctl", "--no-pager", "--quiet", "--boot", "--dmesg", "--output=cat"),
    *("--since=-2h", "--lines=3000"),
]
#: every line that a rule with ``kernel: true`` names has one of them
WORDS = (
    *("NVRM", "fallen off the bus", "GSP_INIT_DONE", "SEC2", "Key was rejected", "Bad return status"),
    *("Module nvidia not found", "OOM killer"),
    *("mlx5_core", "Link down", "Link is Down", "Port module event", "PCIe", "pciehp", "AER"),
    *("_kgsp", "Oops", "kernel BUG at", "Unable to handle kernel"),
    *("lockup", "LOCKUP", "rcu: INFO", "INFO: task", "critical temperature", "[Hardware Error]"),
    *("nvme", "EXT4-fs", "read-only", "out of memory", "Out of memory", "Killed process", "sending SIG"),
)
#: lines and characters of them that are told, the newest
_LINES, _WIDTH = 200, 400


def lines(text: str) -> str:
    """The lines with one of :data:`WORDS`, the newest, without what looks like a secret."""
    found = [line[:_WIDTH] for line in text.splitlines() if any(word in line for word in WORDS)]
    return mask("\n".join(found[-_LINES:]))


def read(run: Runner) -> str:
    """Of this boot and the last two hours; nothing where journald keeps no kernel's log."""
    rc, out, _err = run(COMMAND)
    return lines(out) if rc == 0 else ""
