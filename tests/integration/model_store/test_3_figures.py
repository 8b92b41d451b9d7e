# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time and CPU of copies over rate-limited links, beside rsync on the same hosts in the same run."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from .bench import SIZES, SLOWER, Bench, bring_tools, resting
from .rig import GIB, TOP, Figure, Rig

#: the issue's promise: total time over size divided by link rate, both halves together
FACTOR = 1.25
RESULTS = TOP / ".lab" / "results" / "model_store.jsonl"


def keep(figure: Figure) -> Figure:
    print(figure.line(), flush=True)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(figure.document()) + "\n")
    return figure


@pytest.fixture(scope="module")
def switch() -> Iterator[Rig]:
    rig = Rig.make("ms-switch", 16, "10.79.33.0/24", suite="bookworm")
    rig.mount(rig.hosts)
    bring_tools(rig)
    yield rig
    rig.lab.destroy()


@pytest.fixture(scope="module")
def ring() -> Iterator[Rig]:
    rig = Rig.make("ms-ring", 3, "10.79.32.0/24", "ring")
    rig.mount(rig.hosts)
    yield rig
    rig.lab.destroy()


def judge(figure: Figure) -> None:
    assert figure.valid, f"no figure: only {figure.idle:.0%} of the CPU was idle"
    assert figure.factor <= FACTOR


@pytest.mark.parametrize("count", list(SIZES))
def test_one_to_many_on_a_switch(switch: Rig, count: int) -> None:
    size, mbit = SIZES[count]
    switch.rate(mbit)
    bench = Bench(switch, count, size)
    print(resting())
    ours = keep(bench.fanout())
    parallel = keep(bench.rsync(parallel=True))
    serial = keep(bench.rsync(parallel=False))
    judge(ours)
    assert ours.seconds < parallel.seconds < serial.seconds


def test_a_ring_of_three_by_direct_neighbours(ring: Rig) -> None:
    ring.rate(400 * SLOWER)
    bench = Bench(ring, 2, GIB)
    print(resting())
    figure = keep(bench.fanout())
    nodes = ring.status(ring.hosts[0])
    assert [nodes[host]["upstream"] for host in ring.hosts[1:]] == [ring.hosts[0]] * 2
    judge(figure)
