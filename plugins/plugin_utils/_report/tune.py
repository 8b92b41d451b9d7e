# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which splits of a model are measured one after the other, and which of them is the best.  On the controller; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report.bench import BenchError

#: another split has to be this many times as fast; less is within what two runs of the same one differ by
GAIN = 1.03
MOST = 3
_SIZES = ("vllm_serve_tensor_parallel_size", "vllm_serve_pipeline_parallel_size")

Split = tuple[int, int]


def used(found: Mapping[str, str]) -> Split:
    """The split that serves, by what a speed depends on."""
    tensor, pipeline = (int(found.get(f"option {name}-parallel-size") or 1) for name in ("tensor", "pipeline"))
    return tensor, pipeline


def splits(choice: Mapping[str, Any], serves: Split, most: int) -> list[Split]:
    """The one that serves, and the best of the plan's, ``most`` in all. Raises BenchError if there is no other one."""
    if not 2 <= most <= MOST:
        raise BenchError(f"tune_splits: {most}: two or three splits are measured. Give 2 or {MOST}, or leave it out")
    if not choice:
        raise BenchError(
            f"{' and '.join(_SIZES)}: the plan has nothing to choose from: there is one GPU alone, the engine knows no "
            "other split, or -e names the split. Leave them out of -e; one GPU has nothing to tune"
        )
    proposed = [(choice["tensor"], choice["pipeline"]), *choice["next"], *choice["uncompared"]]
    others = [(int(tensor), int(pipeline)) for tensor, pipeline in proposed if (tensor, pipeline) != serves]
    if not others:
        raise BenchError(
            f"{' and '.join(_SIZES)}: {name(serves)} serves, and these hosts allow no other split of this model: "
            f"{'; '.join(choice['others']) or 'there is none'}. There is nothing to tune"
        )
    return [serves, *others][:most]


def check(goal: str, sweeps: Sequence[Sequence[Sequence[int]]]) -> None:
    """Raises BenchError if what is measured, (prompt lengths, numbers of streams), says nothing of the goal."""
    if goal == "latency" and not any(1 in streams for _prompts, streams in sweeps):
        raise BenchError("bench_streams: latency is compared by the tokens/s of one stream. Give 1 among its numbers")


def name(split: Sequence[int]) -> str:
    return f"TP={split[0]} PP={split[1]}"


def score(goal: str, one: Mapping[str, Any]) -> float:
    """Tokens/s by which splits are compared: of one stream, over all prompts, or the most of all streams together.

    0 for what does not serve or was not measured.
    """
    speeds = [
        float(row["throughput"])
        for row in one.get("rows") or ()
        if row.get("throughput") and (goal == "throughput" or row["streams"] == 1)
    ]
    if not speeds:
        return 0.0
    return max(speeds) if goal == "throughput" else sum(speeds) / len(speeds)


def best(goal: str, tried: Sequence[Mapping[str, Any]]) -> int:
    """Of what was tried, in that order; one that comes later has to be faster by GAIN."""
    found, fastest = 0, 0.0
    for number, one in enumerate(tried):
        speed = score(goal, one)
        if speed > fastest * (GAIN if number else 1.0):
            found, fastest = number, speed
    return found


def text(goal: str, tried: Sequence[Mapping[str, Any]]) -> str:
    """What each came to, and what to set."""
    what = "of one stream" if goal == "latency" else "of all streams together, at most"
    chosen = best(goal, tried)
    lines = [
        f"{name(one['split'])}: "
        + (
            f"{speed:.4g} tokens/s {what}"
            if (speed := score(goal, one))
            else f"left, because of: {one.get('failed') or 'no speed was measured'}"
        )
        + (", and serves" if number == chosen else "")
        for number, one in enumerate(tried)
    ]
    sizes = ", ".join(f"{key}: {value}" for key, value in zip(_SIZES, tried[chosen]["split"], strict=True))
    if chosen:
        lines.append(f"Set in the inventory, or the next site.yml serves {name(tried[0]['split'])} again: {sizes}")
        lines.append(f"Back to {name(tried[0]['split'])}: rollback.yml -e roll_back_to={tried[0]['kept']}")
    else:
        lines.append(f"Nothing is to be changed: no other split is {GAIN:g} times as fast ({sizes})")
    return "\n".join(lines)
