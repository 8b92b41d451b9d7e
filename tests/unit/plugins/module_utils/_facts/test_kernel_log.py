# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What status reads of the kernel's log."""

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import kernel_log

XID = "NVRM: Xid (PCI:000f:01:00): 79, pid=811, name=python3, GPU has fallen off the bus."


def test_lines_that_no_rule_is_about_stay_on_the_host() -> None:
    text = f"usb 1-1: new high-speed USB device\n{XID}\naudit: type=1100 password=geheimgeheim\n"
    assert kernel_log.lines(text) == XID


def test_only_the_newest_are_told_and_a_journal_that_fails_says_nothing() -> None:
    many = "\n".join(f"mlx5_core 0000:01:00.0 p0: Link down {number}" for number in range(1000))
    found = kernel_log.read(lambda _argv: (0, many, "")).splitlines()
    assert (len(found), found[-1][-3:]) == (200, "999")
    assert kernel_log.read(lambda _argv: (1, many, "no journal")) == ""
