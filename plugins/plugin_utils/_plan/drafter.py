# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The model that drafts: its config.json and the bytes of its files, from the controller or the hub."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.checkpoint import read_model_folder
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import model_source
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.base import PlannedEngine

ARGUMENT = "speculative-config"
#: drafters whose `model` is a word of the engine's own
_WORDS = ("ngram", "[ngram]", "ngram_gpu", "suffix")
#: config.json and bytes of the weights of a model on the hub, by its id and revision; None where they cannot be had now
Ask = Callable[[str, str], "tuple[dict[str, Any], int] | None"]


def found(
    engine: PlannedEngine,
    data: Mapping[str, Any],
    chosen: Mapping[str, Any],
    first: Mapping[str, Any],
    ask: Ask | None,
) -> dict[str, Any]:
    """`draft_config` and `draft_weights_bytes` of the drafter that is asked for, as far as anybody here knows them.

    ``chosen`` is the user's own choice, which wins over the recipe's; ``first`` the head's variables. Whatever keeps
    the drafter's files from being read costs the plan of the drafter alone, so nothing is raised.
    """
    asked = _asked(engine, data, chosen)
    name = asked.get("model")
    if chosen.get("draft_config") or not isinstance(name, str) or name in _WORDS:
        return {}
    known = _on_controller(name, first)
    if known is None and ask is not None and model_source.on_hub(name):
        try:
            known = ask(name, str(asked.get("revision") or ""))
        except (AnsibleError, ValueError):
            known = None
    return {} if known is None else {"draft_config": known[0], "draft_weights_bytes": known[1]}


def _asked(engine: PlannedEngine, data: Mapping[str, Any], chosen: Mapping[str, Any]) -> Mapping[str, Any]:
    """The drafter's part of the arguments; what is no mapping is refused where arguments are checked."""
    value = engine.merged_arguments(data.get("args") or {}, chosen.get("args") or {}).get(ARGUMENT)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}


def _on_controller(name: str, first: Mapping[str, Any]) -> tuple[dict[str, Any], int] | None:
    """Of a drafter that the model store takes from a folder of the controller."""
    path = model_source.folder_of(name, first.get("model_store_models") or [])
    if not path:
        return None
    try:
        config, tensors = read_model_folder(path)
    except (OSError, SizingError):
        return None  # model_store says what is wrong with a folder of its own
    return config, sum(tensors.values())
