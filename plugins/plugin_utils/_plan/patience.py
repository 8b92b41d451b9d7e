# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long the watchdog leaves an engine alone that has requests and counts no token: planned from its longest step.

The longest step is a full batch of prompt tokens at the end of the longest context::

    seconds = tokens of one step x operations per token / (operations per second of a GPU x tensor parallel size)

Pipeline stages do not shorten it: the counters move when a batch has passed all of them, one after the other. A GPU is
taken for 40 TFLOP/s. Source of that: owners report that a 405B model computes its first 4,096 tokens over three Sparks
(PP=3) for about a minute, which is 55 TFLOP/s; kernels that unpack weights and small batches are slower. Three times
the result is the patience, so a GPU three times slower is still not restarted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.patience import WORKING_FACTOR

#: operations per second of one GPU in a prefill
GPU_FLOPS = 40e12
#: of the longest step, before an engine that only looks busy is restarted; and one of which nothing moves
MARGIN, STILL_MARGIN = 3.0, 2.0
#: a first long prompt may compile kernels, whatever the model's size. With the watchdog's looks before and after it,
#: the least patience stays below the two minutes within which a small model's wedged engine is to be noticed
LEAST_PATIENCE, LEAST_BOUND = 110, 60
#: where the model's shape is not known, it may be a large one
UNKNOWN_STEP = 60.0
#: watts: a Spark whose ranks wait for each other draws 16 to 27 at full utilization, one that computes about 45
SPARK_WORKING_POWER = 30.0
#: seconds: an engine that gives no token for longer than half an hour has to be reported
MOST = 1800
#: of the engine's and Ray's own limit on a step, however short the planned one
LEAST_TIMEOUT = 900

#: variable -> least and most value that can work, and what happens beyond them
RANGES: dict[str, tuple[float, float, str, str]] = {
    "vllm_serve_watchdog_interval": (1, 120, "the probes would keep the engine busy", "faults would go unnoticed"),
    "vllm_serve_watchdog_deadline": (2, 600, "a healthy engine would be restarted", "faults would go unnoticed"),
    "vllm_serve_watchdog_first_deadline": (
        *(10, 3600),
        "an engine that compiles would be restarted",
        "a first answer that never comes would go unnoticed",
    ),
    "vllm_serve_watchdog_failures": (1, 10, "no failure would be needed", "faults would go unnoticed"),
    "vllm_serve_watchdog_load_stall": (
        *(30, 14400),
        "a load would be restarted between two lines of its log",
        "a load that hangs would go unnoticed",
    ),
    "vllm_serve_watchdog_backoff_max": (15, 7200, "restarts would follow each other", "healing would wait for hours"),
}


class PatienceError(ValueError):
    """The message names the variable, its value, and the planned numbers."""


def step_seconds(planned: Mapping[str, Any]) -> float:
    """What the longest step of the served model takes; ``planned`` as ``plan_serving`` returns it."""
    memory = planned.get("memory") or {}
    flops = memory.get("prefill_flops_per_token")
    if not flops:
        return UNKNOWN_STEP
    tokens = int(memory["max_num_batched_tokens"])
    if (planned.get("args") or {}).get("enable-chunked-prefill") is False:
        length = planned.get("max_model_len")
        tokens = max(tokens, int((None if length == "auto" else length) or memory.get("model_max_len") or 0))
    return tokens * float(flops) / (GPU_FLOPS * max(1, int(planned.get("tensor_parallel") or 1)))


def step_timeout(step_patience: float) -> int:
    """Seconds until the engine and Ray give up a step by themselves: not before the watchdog does, who has evidence."""
    return max(LEAST_TIMEOUT, math.ceil(WORKING_FACTOR * step_patience))


def plan_patience(
    variables: Mapping[str, Any], planned: Mapping[str, Any], kinds: Mapping[str, str]
) -> dict[str, float]:
    """The watchdog's ``step_patience``, ``wedge_bound`` and ``working_power``. Raises PatienceError.

    ``planned`` is empty where preflight knows no model, ``kinds`` the platform by host.
    """
    for name, limits in RANGES.items():
        _check_range(name, variables.get(name), *limits)
    step = step_seconds(planned)
    words = f"the longest step is planned at {step:.0f} s"
    auto_patience = max(LEAST_PATIENCE, math.ceil(MARGIN * step))
    name = "vllm_serve_watchdog_step_patience"
    allowed = _seconds(name, variables.get(name))
    if allowed is None:
        allowed = float(auto_patience)
    else:
        _check_least(name, allowed, max(30.0, 1.5 * step), words)
    if allowed > max(MOST, 10 * step):
        raise PatienceError(
            f"{name}={allowed:g}: {words}, so an engine that hangs would go unnoticed. Give {auto_patience}, or auto."
        )
    name = "vllm_serve_watchdog_wedge_bound"
    bound = _seconds(name, variables.get(name))
    if bound is None:
        bound = min(allowed, float(max(LEAST_BOUND, math.ceil(STILL_MARGIN * step))))
    else:
        _check_least(name, bound, max(20.0, step), words)
    if bound > allowed:
        raise PatienceError(
            f"{name}={bound:g} is longer than the patience with an engine that shows life, {allowed:g} s. "
            f"Give at most {allowed:g}, or auto."
        )
    sparks = bool(kinds) and all(kind == "spark" for kind in kinds.values())
    return {
        "step_patience": allowed,
        "wedge_bound": bound,
        "working_power": SPARK_WORKING_POWER if sparks else 0.0,
    }


def _check_least(name: str, value: float, least: float, words: str) -> None:
    if value < least:
        number = math.ceil(least)
        raise PatienceError(
            f"{name}={value:g}: {words}, so a healthy engine would be restarted. Give {number}, or auto."
        )


def _check_range(name: str, value: Any, least: float, most: float, below: str, above: str) -> None:
    if value is None:
        return
    number = _number(value)
    if number is None or not least <= number <= most:
        reason = below if number is not None and number < least else above
        raise PatienceError(f"{name}={value}: {reason}. Give {least:g} to {most:g}.")


def _seconds(name: str, value: Any) -> float | None:
    """None for ``auto``."""
    if value in (None, "", "auto"):
        return None
    number = _number(value)
    if number is None:
        raise PatienceError(f"{name}={value!r} is not a number of seconds. Give one, or auto.")
    return number


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None
