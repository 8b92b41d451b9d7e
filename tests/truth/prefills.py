# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measured prompts of one stream (prefills.json, with the source of each) beside the plan's ranges.

python -m tests.truth.prefills        print each row and what docs/planning.md says of all

A row whose source gives seconds to the first token is written as tokens of the prompt divided by them.
"""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model import prefill
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import text_config
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import SPARK_BANDWIDTH
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.speed import SpeedStep, spread
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.weights import reads

from tests.truth.speeds import HERE, config


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((HERE / "prefills.json").read_text())
    return found


def planned(row: dict[str, Any]) -> tuple[float, float]:
    """Least and most tokens per second at which the prompt of this row is read."""
    given = config(row)
    shape = read_shape(given)
    step = SpeedStep(row["tensor_parallel"], 1, SPARK_BANDWIDTH)
    read = reads(shape, row["weights_bytes"])
    chosen = prefill.selected(text_config(given), shape)
    prompt = row["prompt_tokens"]
    least, most = spread(prompt / prefill.seconds(shape, read, step, row["batched"], prompt, chosen))
    return least, most


def holds(row: dict[str, Any]) -> bool:
    least, most = planned(row)
    return least <= row["tokens_per_second"] <= most


def held_out() -> list[dict[str, Any]]:
    """The rows that no figure was chosen by: every second one by its id."""
    return [row for row in rows() if not row.get("basis")]


def sentence() -> str:
    """What docs/planning.md says of the ranges."""
    held = held_out()
    inside = sum(holds(row) for row in held)
    return (
        f"chosen by {len(rows()) - len(held)} rows of `tests/truth/prefills.json`, every second one by its id, and "
        f"hold {inside} of the other {len(held)} ({100 * inside / len(held):.0f} %)"
    )


if __name__ == "__main__":
    for each in rows():
        low, high = planned(each)
        mark = "basis" if each.get("basis") else ""
        print(f"{each['id']:<34} {each['tokens_per_second']:>7} in {low:>8} to {high:>8} {holds(each)!s:<5} {mark}")
    print(sentence())
