# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the boot before ended.  The lines are those that systemd 252 and 255 write."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import boots

ORDERLY = """\
1764126720.100000 spark-02 systemd[1]: Stopped target multi-user.target - Multi-User System.
1764126721.200000 spark-02 systemd[1]: Reached target shutdown.target - System Shutdown.
1764126721.300000 spark-02 systemd[1]: Reached target final.target - Late Shutdown Services.
1764126721.400000 spark-02 systemd[1]: Finished systemd-poweroff.service - System Power Off.
1764126721.500000 spark-02 systemd[1]: Reached target poweroff.target - System Power Off.
1764126721.600000 spark-02 systemd[1]: Shutting down.
1764126721.700000 spark-02 systemd-journald[412]: Journal stopped
"""
CUT = """\
1764126000.000000 spark-02 sparkthor-vllm[9001]: INFO 11-26 03:00:00 Avg generation throughput: 31.2 tokens/s
1764126720.250000 spark-02 CRON[22101]: pam_unix(cron:session): session opened for user root(uid=0) by (uid=0)
"""
HOT = ORDERLY.replace(
    "systemd[1]: Stopped target multi-user.target - Multi-User System.",
    "kernel: thermal thermal_zone3: acpitz: critical temperature reached, shutting down",
)
PANIC = """\
1764126720.250000 spark-02 kernel: watchdog: BUG: soft lockup - CPU#2 stuck for 23s! [kworker/2:1:25629]
1764126721.250000 spark-02 kernel: Kernel panic - not syncing: softlockup: hung tasks
"""


@pytest.mark.parametrize(
    ("text", "how", "ended", "last"),
    [
        (ORDERLY, "orderly", 1764126721, 0),
        (
            ORDERLY.replace("power-off", "x").replace("poweroff", "reboot").replace("Power Off", "Reboot"),
            "orderly",
            1764126721,
            0,
        ),
        (CUT, "cut", 1764126720, 2),
        (PANIC, "panic", 1764126721, 2),
        # the kernel ends it in order
        (HOT, "hot", 1764126721, 5),
    ],
)
def test_the_end_is_told(text: str, how: str, ended: int, last: int) -> None:
    found = boots.parse(text)
    assert (found["how"], found["ended"], len(found["last"])) == (how, ended, last)


def test_words_of_a_program_are_no_orderly_end() -> None:
    text = CUT + "1764126720.300000 spark-02 python3[7]: systemd[1]: Shutting down.\n"
    assert boots.parse(text)["how"] == "cut"


def test_a_restart_of_journald_is_not_the_end() -> None:
    text = """\
1764125000.000000 spark-02 systemd-journald[412]: Received SIGTERM from PID 1 (systemd).
1764125000.100000 spark-02 systemd-journald[412]: Journal stopped
1764125000.200000 spark-02 systemd-journald[9120]: Journal started
"""
    assert boots.parse(text + CUT)["how"] == "cut"
    assert boots.parse(text + ORDERLY)["how"] == "orderly"


def test_heat_is_told() -> None:
    assert boots.told(boots.parse(HOT), 1764126900.0) == (
        "the kernel switched the host off at 2025-11-26 03:12:01 UTC, because a sensor was too hot"
    )


def test_a_journal_that_begins_with_this_boot_says_nothing() -> None:
    assert boots.parse("") == {}
    assert boots.previous(lambda argv: (1, "", "Data from the specified boot is not available")) == {}
    assert boots.previous(lambda argv: (0, CUT, ""))["how"] == "cut"
