# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What speculative decoding adds: layers of a drafter, their caches and weights, and tokens beyond a sequence's end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model import known
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import (
    DEEPSEEK_V41_TYPES,
    optional_int,
    text_config,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layers import FULL, WINDOW, Layer
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import Shape, read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, as_int

#: drafters without a model: they look tokens up
_WITHOUT_MODEL = ("ngram", "ngram_gpu", "suffix", "[ngram]")
_PREDICTION_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
#: drafters that are weights alone: heads on the model's last state, which cache nothing, and Gemma 4's, whose layers
#: only ask: they read the keys and values of the model (library speculators, issue 586)
_WITHOUT_CACHE = ("medusa", "mlp_speculator", "gemma4_assistant")
#: the method of a drafter that is an ordinary model
_PLAIN = "draft_model"
#: what the engine makes blocks of attention beside states a multiple of
_BLOCKS = 16
#: DSpark of DeepSeek V4 and V4.1 is in the model's own checkpoint, under mtp.*: its layers where no field says how
#: many, and the tokens of a block (vLLM 0.32, deepseek_v4/nvidia/dspark.py and config/speculative.py)
_OWN_DSPARK, _DSPARK_LAYERS = ("deepseek_v4", *DEEPSEEK_V41_TYPES), 3
_DSPARK_BLOCK = ("block_size", "dspark_block_size")


@dataclass(frozen=True)
class Drafter:
    """The part of speculative decoding that takes memory."""

    tokens: int = 0  # drafted in each step
    shape: Shape | None = None  # of the model that drafts; its layers are on the last stage
    own_weights: bool = False  # layers of the model's own checkpoint (multi-token prediction)
    unknown: str = ""  # what is not known of it, and so not counted
    weights: int | None = None  # bytes of its files, where they are known
    risk: str = ""  # what may end the start


def read_drafter(
    speculative: Mapping[str, Any] | str | None,
    config: Mapping[str, Any],
    shape: Shape,
    draft: Mapping[str, Any] | None,
    weights: int | None = None,
) -> Drafter:
    """What `--speculative-config` adds to a model; `draft` is the config.json of the model that drafts, `weights` the
    bytes of its files. What nobody knows of a drafter is said in `unknown`, and the model is planned without it.
    """
    asked = _parsed(speculative)
    if not asked:
        return Drafter()
    text = text_config(config)
    method, model = str(asked.get("method") or "").lower(), asked.get("model")
    predicting = optional_int(text, _PREDICTION_LAYERS, 0)
    # a model without such layers drafts by a checkpoint of its own, where one is named
    built_in = (method.endswith("mtp") and (predicting > 0 or model is None)) or (not method and model is None)
    block = optional_int({**text, **(draft or {})}, _DSPARK_BLOCK, 0) if method == "dspark" else 0
    drafted = asked.get("num_speculative_tokens") or block or predicting or 1
    tokens = as_int("speculative_config.num_speculative_tokens", drafted)
    if method in _WITHOUT_MODEL:
        return Drafter(tokens)
    if draft is not None:
        if method == _PLAIN and not asked.get("use_heterogeneous_vocab"):
            _same_words(str(model), text, draft)
        return _other_model(tokens, str(model or method), draft, weights)
    if method == "dspark" and shape.model_type in _OWN_DSPARK:
        return Drafter(tokens, _with_layers(shape, _dspark_layers(shape, text)), own_weights=True)
    if not built_in:
        return _uncounted(tokens, f"the drafter {model or method} (give its config.json as draft_config)", weights)
    layer = _prediction_layer(shape)
    layers = _with_layers(shape, [layer] * max(1, predicting))
    return Drafter(tokens, layers, own_weights=True, risk=_ring_risk(text, tokens))


def _same_words(name: str, text: Mapping[str, Any], draft: Mapping[str, Any]) -> None:
    """Raises SizingError for an ordinary model that drafts in another vocabulary, with which no engine starts."""
    words, drafted = (optional_int(one, ("vocab_size",), 0) for one in (text, text_config(draft)))
    if words and drafted and words != drafted:
        raise SizingError(
            "speculative_config.model",
            name,
            f"has a vocabulary of {drafted:,} words, and the model one of {words:,}, so nothing would start",
            "Name a drafter of the model's own family, or add use_heterogeneous_vocab: true where the engine has it.",
        )


def _other_model(tokens: int, name: str, draft: Mapping[str, Any], weights: int | None) -> Drafter:
    """A drafter by its own config.json."""
    inner = draft.get("transformer_layer_config")  # as the library speculators writes one
    described = {**draft, **inner} if isinstance(inner, Mapping) else dict(draft)
    text = text_config(described)
    if described.get("model_type") in _WITHOUT_CACHE:
        said = "" if weights else f"the weights of the drafter {name} (give their size as draft_weights_bytes)"
        return Drafter(tokens, unknown=said, weights=weights)
    try:
        other = read_shape(described)
    except SizingError as error:
        return _uncounted(tokens, f"the drafter {name}: {error}", weights)
    strange = known.unknown_of({**text, "model_type": ""})
    if strange:
        return _uncounted(tokens, f"the drafter {name}: {'; '.join(strange)}", weights)
    # the head may have fewer words than the model; the embedding is the model's own
    vocab = optional_int(described, ("draft_vocab_size",), other.vocab)
    return Drafter(tokens, replace(other, vocab=vocab), weights=weights)


def _uncounted(tokens: int, what: str, weights: int | None) -> Drafter:
    """Of a drafter whose caches are not known its files alone count."""
    return Drafter(tokens, unknown=f"{what}: its cache" if weights else what, weights=weights)


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


def _prediction_layer(shape: Shape) -> Layer:
    """A layer that predicts a further token has the attention of the model's last full layer."""
    if shape.compressed:  # DeepSeek V4: its window alone
        last = shape.layers[-1]
        return Layer(**{**last.__dict__, "cache": WINDOW, "ratio": 1, "source": 0, "index_dim": 0})
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


def _ring_risk(text: Mapping[str, Any], tokens: int) -> str:
    """Of Qwen4-Exp, whose open group of compressed keys is a ring that must divide a block of attention.

    vLLM 0.32 (qwen4_exp/common/qsa_cache.py) makes the ring as large as the group and the drafted tokens, in whole
    groups, and chooses blocks in multiples of 16 tokens.
    """
    ratio = optional_int(text, ("indexer_compress_ratio",), 0)
    if not ratio or not str(text.get("model_type")).startswith("qwen4_exp"):
        return ""

    def ring(drafted: int) -> int:
        return ratio * -(-(ratio + drafted) // ratio)

    if _BLOCKS % ring(tokens) == 0:
        return ""
    sound = [number for number in range(1, _BLOCKS) if _BLOCKS % ring(number) == 0]
    return (
        f"drafting {tokens} tokens makes a ring of {ring(tokens)} entries, which must divide a block of attention (a "
        f"multiple of {_BLOCKS} tokens), else the engine ends at its start; num_speculative_tokens of "
        f"{', '.join(str(number) for number in sound)} always does"
    )


def _dspark_layers(shape: Shape, text: Mapping[str, Any]) -> list[Layer]:
    """Layers with the window alone, and in the first what they share: projection of states, table of pairs."""
    count = optional_int(text, ("n_mtp_layers",), 0) or _DSPARK_LAYERS
    last = shape.layers[-1]
    layer = replace(last, cache=WINDOW, ratio=1, source=0, index_dim=0)
    experts = optional_int(text, ("dspark_n_routed_experts",), 0)  # V4.1: fewer than the model has
    if experts and shape.experts:
        layer = replace(layer, expert_params=layer.expert_params * experts // shape.experts)
    targets = text.get("dspark_target_layer_ids")
    states = len(targets) if isinstance(targets, (list, tuple)) else count
    shared = states * shape.hidden * shape.hidden + 2 * shape.vocab * optional_int(text, ("dspark_markov_rank",), 0)
    return [replace(layer, whole_params=layer.whole_params + shared), *[layer] * (count - 1)]


def _with_layers(shape: Shape, layers: list[Layer]) -> Shape:
    return Shape(**{**shape.__dict__, "layers": tuple(layers), "vision_params": 0})
