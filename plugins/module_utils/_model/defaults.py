# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens of a step and sequences at once that the engine takes where nobody names them, by the platform that serves.

vLLM chooses by what the driver says of the GPU's memory (0.32, EngineArgs.get_batch_defaults and what follows it). NVML
of a Spark tells nothing of unified memory, so a GB10 counts as a small GPU. A Thor has no NVML: torch tells its memory,
which is large.
"""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

SPARK = "spark"
#: tokens of a step, sequences at once; a GPU that is neither is taken for a small one
BY_KIND: Mapping[str, tuple[int, int]] = {SPARK: (2048, 256), "thor": (8192, 1024), "generic": (2048, 256)}
#: the value of performance-mode that doubles both
_DOUBLES = "throughput"


def step(
    kind: str,
    length: int,
    batched: int | None = None,
    sequences: int | None = None,
    chunked: bool = True,
    mode: str = "",
) -> tuple[int, int]:
    """(tokens of a step, sequences at once) of an engine for requests of ``length`` tokens.

    ``batched`` and ``sequences`` are what its arguments name, ``chunked`` whether prompts may be read in parts,
    ``mode`` its performance mode. Raises SizingError for a platform that is none.
    """
    if kind not in BY_KIND:
        raise SizingError("kind", kind, "is no platform", f"Choose one of {', '.join(sorted(BY_KIND))}.")
    usual = [number * (2 if mode == _DOUBLES else 1) for number in BY_KIND[kind]]
    at_once = usual[1] if sequences is None else sequences
    own = min(at_once * length, usual[0] if chunked else max(usual[0], length))
    tokens = own if batched is None else batched
    return tokens, min(at_once, tokens) if sequences is None else at_once
