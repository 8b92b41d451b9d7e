# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measured tokens per second of one stream (speeds.json, with the source of each) beside the plan's ranges.

python -m tests.truth.speeds          print each row and what docs/planning.md says of all
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan

HERE = Path(__file__).parent
#: configs of models are also among those that vLLM itself was asked about
FOLDERS = (HERE.parent / "fixtures" / "models", HERE / "configs")
_OPEN = ["*self_attn*", "*linear_attn*", "*mixer*", "*shared_expert*", "lm_head"]
#: how a checkpoint is stored whose config.json is not at hand in that form
QUANTIZATIONS: dict[str, dict[str, Any]] = {
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": _OPEN},
    "w4all": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]},
    "int4": {"quant_method": "gptq", "bits": 4},
    "fp8": {"quant_method": "fp8"},
}


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((HERE / "speeds.json").read_text())
    return found


def config(row: dict[str, Any]) -> dict[str, Any]:
    """The config.json of a row's model, as its checkpoint is stored."""
    path = next(folder / f"{row['model']}.json" for folder in FOLDERS if (folder / f"{row['model']}.json").exists())
    found: dict[str, Any] = json.loads(path.read_text())
    if quantization := QUANTIZATIONS.get(row.get("quantization", "")):
        for part in (found, found.get("text_config") or {}):
            part.pop("compression_config", None)
            part["quantization_config"] = quantization
    return found


def planned(row: dict[str, Any]) -> tuple[float, float]:
    """The plan's range for the kind of text that was measured."""
    drafting = {"method": "mtp", "num_speculative_tokens": row["drafted"]}
    found = plan(
        config(row),
        tensor_parallel=row["tensor_parallel"],
        weights_bytes=row["weights_bytes"],
        active_bytes=row.get("active_bytes"),
        enforce_eager=row.get("enforce_eager", False),
        speculative_config=drafting if row["drafted"] else None,
        max_model_len=8192,
    )
    least, most = found["tokens_per_second"][row["text"]]
    return least, most


def holds(row: dict[str, Any]) -> bool:
    least, most = planned(row)
    return least <= row["tokens_per_second"] <= most


def sentence() -> str:
    """What docs/planning.md says of the ranges."""
    every = rows()
    held = [row for row in every if not row.get("basis")]
    inside = sum(holds(row) for row in held)
    return (
        f"The figures were chosen by {len(every) - len(held)} measured rows of `tests/truth/speeds.json` and hold "
        f"{inside} of the other {len(held)} ({100 * inside / len(held):.0f} %)."
    )


if __name__ == "__main__":
    for each in rows():
        low, high = planned(each)
        mark = "basis" if each.get("basis") else ""
        print(f"{each['id']:<34} {each['tokens_per_second']:>6} in {low:>6} to {high:>6} {holds(each)!s:<5} {mark}")
    print(sentence())
