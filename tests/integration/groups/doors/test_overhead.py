# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the longest way to an engine costs - another group's door, its own head's, the engine - against its socket.

Both ways in turns. On simulated hosts doors, engines and clients share the processors, so the figures are an upper
bound; docs/developers.md has those of real GPUs.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.integration.groups.conftest import PAIR, PAIR_HEAD, SINGLE_B, Doors
from tools.gpu.load import Aim, measure
from tools.gpu.price import summary

SOCKET = "/run/sparkthor/vllm/vllm.sock"
WAYS = ("chain", "socket")
PAIRS, SECONDS, TOKENS = 6, 8.0, 128


@pytest.fixture(scope="module")
def rows(doors: Doors) -> list[dict[str, Any]]:
    # the test before may have left a group on its way back
    end = time.monotonic() + 600
    while PAIR not in doors.models(SINGLE_B):
        assert time.monotonic() < end, "the pair does not serve"
        time.sleep(1)
    leader = doors.cluster.lab.machine(PAIR_HEAD).leader()
    aims = {
        "chain": Aim(f"http://{doors.cluster.addresses[SINGLE_B]}:8000", "", doors.cluster.api_key, PAIR, 32, TOKENS),
        "socket": Aim("", f"/proc/{leader}/root{SOCKET}", doors.cluster.api_key, PAIR, 32, TOKENS),
    }
    for aim in aims.values():
        measure(aim, 64, 2.0)
    found: list[dict[str, Any]] = []
    for number in range(PAIRS):
        for streams in (1, 8, 64):
            for way in WAYS if number % 2 == 0 else reversed(WAYS):
                # no prompt comes twice: the engine's prefix cache would answer the second
                figures = measure(aims[way], streams, SECONDS, seed=len(found) + 1)
                found.append({"streams": streams, "round": number, "way": way, **figures})
    return found


def test_the_whole_chain_costs_little(rows: list[dict[str, Any]]) -> None:
    table = summary(rows, *WAYS)
    for cell in table:
        p99 = {
            way: sorted(row["ttft_p99_ms"] for row in rows if (row["streams"], row["way"]) == (cell["streams"], way))
            for way in WAYS
        }
        added = [p99[way][len(p99[way]) // 2] for way in WAYS]
        print(
            f"{cell['streams']} streams, {cell['pairs']} pairs: {cell['ours']:.1f} against {cell['bare']:.1f} "
            f"tokens/s, ratio {cell['ratio']:.3f} {cell['ratios']}; first token p50 {cell['ttft_added']:+.1f} ms "
            f"{cell['ttft_spread']}, p99 {added[0]:.1f} against {added[1]:.1f} ms",
            flush=True,
        )
    assert [cell["streams"] for cell in table] == [1, 8, 64]
    assert not any(row["failed"] for row in rows), [row.get("error") for row in rows if row["failed"]]
    assert all(cell["ratio"] >= 0.98 for cell in table), table
