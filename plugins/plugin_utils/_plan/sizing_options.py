# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a deployment the memory plan is told, by the names of its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.defaults import SPARK

#: what is asked for when neither the recipe nor the user says: engines' own defaults are above what unified memory
#: survives
DEFAULT_UTILIZATION = 0.85


def of_engine(hosts: Sequence[str], kinds: Mapping[str, str] | None, version: str) -> dict[str, str]:
    """What serves: the head's process chooses for all hosts what no argument names."""
    return {"kind": (kinds or {}).get(hosts[0], SPARK), **({"vllm_version": version} if version else {})}
