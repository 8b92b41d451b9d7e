# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measured starts (starts.json, with the source of each) beside what the plan says of them.

python -m tests.truth.starts          print the table of docs/developers.md
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan

HERE = Path(__file__).parent
#: configs of models are also among those that vLLM itself was asked about
FOLDERS = (HERE.parent / "fixtures" / "models", HERE / "configs")
GIB = 2**30
#: MemTotal of a DGX Spark, where a row names no other
TOTAL = 121.69
#: what the rows' drafter has: one group of 8 layers beside 10 full and 30 linear ones of the model
DRAFTER = {
    "model_type": "qwen3",
    "dtype": "bfloat16",
    "num_hidden_layers": 8,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 248320,
    "max_position_embeddings": 262144,
}


@dataclass(frozen=True)
class Start:
    row: dict[str, Any]
    planned: float | None  # GiB of cache
    at_least: float | None
    measured: float | None
    concurrency: float | None  # given the bytes that were measured
    verdict: str
    tokens: int | None = None  # as the release prints them, where whole blocks are all that is known

    @property
    def error(self) -> float | None:
        return None if self.planned is None or self.measured is None else self.planned / self.measured - 1

    @property
    def concurrency_error(self) -> float | None:
        real = self.row.get("max_concurrency")
        return None if self.concurrency is None or real is None else self.concurrency / real - 1


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((HERE / "starts.json").read_text())
    return found


def _least(value: Any) -> float | None:
    return min(value) if isinstance(value, list) else value


def compare(row: dict[str, Any]) -> Start:
    given = row["plan"]
    config = json.loads(
        next(path for folder in FOLDERS if (path := folder / f"{given['model']}.json").exists()).read_text()
    )
    total = given.get("total") or row.get("cuda_total_gib") or TOTAL
    options: dict[str, Any] = {"tensor_parallel": row["tp"], **given["options"], "memory_bytes": int(total * GIB)}
    if given.get("drafter"):
        options["draft_config"] = DRAFTER
    measured = _least(row.get("available_kv_gib"))
    pinned = row.get("kv_cache_memory_bytes")
    if given.get("blocks"):
        # only tokens and concurrency were reported: the one number of whole blocks that gives both
        sizes = plan(config, **options, kv_cache_memory_bytes="1G", weights_bytes=GIB, overhead_bytes=0)
        pinned = given["blocks"] * sizes["block_bytes_per_rank"]
    exact = pinned or (None if measured is None else int(measured * GIB))
    concurrency = tokens = None
    if exact:
        held = plan(config, **options, kv_cache_memory_bytes=exact, weights_bytes=GIB, overhead_bytes=0)
        concurrency = held["max_concurrent_sequences"]
        tokens = held["kv_cache_tokens"] if given.get("blocks") else None
    if given.get("weights") is None:
        return Start(row, None, None, measured, concurrency, "", tokens)
    weights = given["weights"] * GIB
    options["gpu_memory_utilization"] = row["util"]
    # what a rank holds was measured, drafter included: scale the checkpoint so that the rank holds that
    whole = plan(config, **options, weights_bytes=int(weights * row["tp"]))["weights_bytes_per_rank"]
    result = plan(config, **options, weights_bytes=int(weights * row["tp"] * weights / whole))
    off = int(weights) - result["weights_bytes_per_rank"]
    ranks = result["ranks"]
    return Start(
        row,
        (min(ranks["kv_cache_bytes"]) - off) / GIB,
        (min(ranks["kv_cache_bytes_at_least"]) - off) / GIB,
        measured,
        concurrency,
        result["verdict"],
    )


def starts() -> list[Start]:
    return [compare(row) for row in rows() if "plan" in row]


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.1f} %"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def table() -> str:
    heads = "start, cache measured (GiB), planned, at least, error, concurrency measured, planned, error, plan says"
    lines = ["| " + heads.replace(", ", " | ") + " |", "|---" * 9 + "|"]
    for row in rows():
        real = row.get("max_concurrency")
        if "left_out" in row:
            cells = [row["id"], _number(_least(row.get("available_kv_gib"))), *[""] * 3, _number(real), "", ""]
            lines.append("| " + " | ".join([*cells, row["left_out"]]) + " |")
            continue
        start = compare(row)
        name = row["id"] + (" (basis)" if row["plan"].get("basis") else "")
        cells = [name, _number(start.measured), _number(start.planned), _number(start.at_least), _share(start.error)]
        cells += [_number(real), _number(start.concurrency) if real else "", _share(start.concurrency_error)]
        lines.append("| " + " | ".join([*cells, start.verdict]) + " |")
    errors = [abs(start.error) for start in starts() if start.error is not None]
    held = [abs(s.error) for s in starts() if s.error is not None and not s.row["plan"].get("basis")]
    lines += [
        "",
        f"{len(errors)} of these {len(rows())} starts report enough to plan their bytes: median error "
        f"{100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} %; of the {len(held)} that no figure "
        f"was chosen by, {100 * statistics.median(held):.1f} % and {100 * max(held):.1f} %.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
    sys.exit(0)
