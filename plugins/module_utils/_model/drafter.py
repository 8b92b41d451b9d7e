# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What speculative decoding adds: layers of a drafter, their caches and weights, and tokens beyond a sequence's end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import optional_int, text_config
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layers import FULL, WINDOW, Layer
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import Shape, read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, as_int

#: drafters without a model: they look tokens up
_WITHOUT_MODEL = ("ngram", "ngram_gpu", "suffix", "[ngram]")
_PREDICTION_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")


@dataclass(frozen=True)
class Drafter:
    """The part of speculative decoding that takes memory."""

    tokens: int = 0  # drafted in each step
    shape: Shape | None = None  # of the model that drafts; its layers are on the last stage
    own_weights: bool = False  # layers of the model's own checkpoint (multi-token prediction)
    unknown: str = ""  # what is not known of it


def read_drafter(
    speculative: Mapping[str, Any] | str | None,
    config: Mapping[str, Any],
    shape: Shape,
    draft: Mapping[str, Any] | None,
) -> Drafter:
    """What `--speculative-config` adds to a model; `draft` is the config.json of the model that drafts."""
    asked = _parsed(speculative)
    if not asked:
        return Drafter()
    text = text_config(config)
    method, model = str(asked.get("method") or "").lower(), asked.get("model")
    own = method.endswith("mtp") or (not method and model is None)
    predicting = optional_int(text, _PREDICTION_LAYERS, 0)
    tokens = as_int("speculative_config.num_speculative_tokens", asked.get("num_speculative_tokens") or predicting or 1)
    if method in _WITHOUT_MODEL:
        return Drafter(tokens)
    if draft is not None:
        return Drafter(tokens, read_shape(draft))
    if not own:
        name = model or method
        return Drafter(tokens, unknown=f"the drafter {name} (give its config.json as draft_config)")
    layer = _prediction_layer(shape, text)
    return Drafter(tokens, _with_layers(shape, [layer] * max(1, predicting)), own_weights=True)


def _parsed(value: Mapping[str, Any] | str | None) -> Mapping[str, Any]:
    if value in (None, "", {}):
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if not isinstance(value, Mapping):
        raise SizingError(
            "speculative_config", value, "is not a mapping", 'Give one, such as {"method": "mtp"}, or its JSON.'
        )
    return value


def _prediction_layer(shape: Shape, text: Mapping[str, Any]) -> Layer:
    """A layer that predicts a further token has the attention of the model's last full layer."""
    if shape.compressed:  # DeepSeek V4: its window alone
        last = shape.layers[-1]
        return Layer(**{**last.__dict__, "cache": WINDOW, "ratio": 1, "index_dim": 0})
    grown = [layer for layer in shape.layers if layer.cache == FULL] or list(shape.layers)
    last = grown[-1]
    dense = last.dense_params or 0
    if not (dense or last.expert_params):  # its feed-forward part is a layer of its own (Nemotron-H)
        beside = next((layer for layer in reversed(shape.layers) if layer.expert_params), last)
        last = Layer(
            **{
                **last.__dict__,
                "dense_params": beside.dense_params,
                "expert_params": beside.expert_params,
                "active_expert_params": beside.active_expert_params,
                "replicated_params": beside.replicated_params,
            }
        )
    # the projection of two hidden states into one
    return Layer(**{**last.__dict__, "whole_params": last.whole_params + 2 * shape.hidden * shape.hidden})


def _with_layers(shape: Shape, layers: list[Layer]) -> Shape:
    return Shape(**{**shape.__dict__, "layers": tuple(layers), "vision_params": 0})
