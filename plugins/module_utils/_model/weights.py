# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of weights on each rank, from the shape of the model or from the tensors of its checkpoint."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layers import STATE
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import Shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, dtype_bytes

#: Bytes per parameter of a quantized linear layer, its scales included.
_QUANT_BYTES = {
    "fp8": Fraction(1),
    "int8": Fraction(1),
    # 4 bits and one FP8 scale for each 16
    "nvfp4": Fraction(9, 16),
    # 4 bits and one 8-bit scale for each 32
    "mxfp4": Fraction(17, 32),
    # 4 bits, and an FP16 scale and a 4-bit zero point for each 128
    "int4": Fraction(1, 2) + Fraction(20, 8 * 128),
}


#: MXFP4 experts of gpt-oss are padded for the kernel that the engine prefers on sm_12x (Marlin): of each matrix the
#: width of an expert on a rank, and that of the model
_PADDED_TYPES, _PADDED_WIDTH, _PADDED_HIDDEN = ("gpt_oss",), 128, 256


def _padding(shape: Shape, tensor_parallel: int) -> Fraction:
    """How much larger experts are on a rank than in the checkpoint."""
    if shape.model_type not in _PADDED_TYPES or shape.quantization != "mxfp4":
        return Fraction(1)
    width, hidden = -(-shape.moe_intermediate // tensor_parallel), shape.hidden
    padded = -(-width // _PADDED_WIDTH) * _PADDED_WIDTH * -(-hidden // _PADDED_HIDDEN) * _PADDED_HIDDEN
    return Fraction(padded, width * hidden)


def _ignored(shape: Shape) -> Callable[[str], bool]:
    """Whether the checkpoint's quantization leaves modules of a given kind alone."""
    quant = shape.quant_config
    patterns: list[str] = []
    for key in ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"):
        value = quant.get(key)
        if isinstance(value, (list, tuple)):
            patterns.extend(str(item) for item in value)

    def matches(word: str) -> bool:
        for pattern in patterns:
            if pattern.startswith("re:"):
                if word in pattern:
                    return True
            elif word in pattern or fnmatch.fnmatch(word, pattern):
                return True
        return False

    return matches


@dataclass(frozen=True)
class _LayerBytes:
    split: Fraction  # divides by TP
    experts: Fraction  # of which, in experts
    kv: Fraction  # divides by min(TP, KV heads)
    whole: Fraction  # the same on each rank of the stage
    groups: int  # of Mamba 2, whose projections several ranks need where there are fewer groups than ranks
    group: Fraction  # bytes of one
    active: Fraction  # read for each token of one stream

    def repeated(self, tensor_parallel: int) -> Fraction:
        """What a rank holds of groups beside its share of all, where several ranks need the same one."""
        if not self.groups or self.groups % tensor_parallel == 0:
            return Fraction(0)
        return self.group * (tensor_parallel - self.groups) / tensor_parallel


def _layer_bytes(shape: Shape) -> list[_LayerBytes]:
    full = Fraction(dtype_bytes("dtype", shape.dtype))
    packed = _QUANT_BYTES.get(shape.quantization, full)
    ignored = _ignored(shape)
    attention_full = packed if not (ignored("self_attn") or ignored("mixer")) else full
    attention_state = packed if not (ignored("linear_attn") or ignored("mamba") or ignored("mixer.in_proj")) else full
    if shape.quantization in ("mxfp4",):
        attention_full = attention_state = full  # only experts are packed
    dense = packed if not ignored("shared_expert") else full
    experts = _QUANT_BYTES["mxfp4"] if shape.expert_dtype == "fp4" else packed
    result = []
    for layer in shape.layers:
        attention = attention_state if layer.cache == STATE else attention_full
        ffn = dense if layer.expert_params else packed
        routed = layer.expert_params * experts
        split = layer.attention_params * attention + layer.dense_params * ffn + routed + layer.table_params * packed
        keys = layer.kv_params * attention
        whole = layer.replicated_params * full + layer.whole_params * attention + 2 * shape.hidden * full
        active = (
            layer.attention_params * attention
            + keys
            + layer.dense_params * ffn
            + layer.active_expert_params * experts
            + whole
        )
        group = 2 * shape.hidden * layer.group_state * attention
        result.append(
            _LayerBytes(
                split=split,
                experts=routed,
                kv=keys,
                whole=whole,
                groups=layer.groups,
                group=group,
                active=active,
            )
        )
    return result


@dataclass(frozen=True)
class Reads:
    """Bytes that a step reads of all ranks together: always, of all experts, and the share of those for one token."""

    always: float
    experts: float
    share: float


#: a checkpoint's experts may be smaller than its config says (another quantization), or a little larger
_LEAST_EXPERTS, _MOST_EXPERTS = 0.3, 1.15


def reads(shape: Shape, weights_bytes: int | None, active_bytes: int | None = None) -> Reads:
    """What one step reads, by the shape; of a checkpoint of another size the experts are what differs.

    ``active_bytes`` is what one token reads, where that is known better.
    """
    layers = _layer_bytes(shape)
    full = Fraction(dtype_bytes("dtype", shape.dtype))
    head = shape.vocab * shape.hidden * full
    routed = sum((item.experts for item in layers), Fraction(0))
    share = Fraction(shape.experts_per_token or shape.experts, shape.experts) if shape.experts else Fraction(1)
    always = sum((item.active for item in layers), Fraction(0)) - routed * share + head
    if weights_bytes:
        rest = sum((item.split + item.kv + item.whole for item in layers), Fraction(0)) - routed + head
        rest += (0 if shape.tied else head) + shape.vision_params * full
        if routed:
            least, most = routed * Fraction(_LEAST_EXPERTS), routed * Fraction(_MOST_EXPERTS)
            routed = min(max(weights_bytes - rest, least), most)
        else:
            always = always * min(Fraction(weights_bytes) / rest, Fraction(1))
    scale = Fraction(active_bytes) / (always + routed * share) if active_bytes else Fraction(1)
    return Reads(float(always * scale), float(routed * scale), float(share))


@dataclass(frozen=True)
class Weights:
    """Bytes of weights by rank, of the whole model, and what one token of one stream reads."""

    by_rank: list[int]
    total: int
    active: int
    source: str
    measured: bool = False  # by the checkpoint, as a whole or by tensors


def _vision_share(shape: Shape, tensor_parallel: int) -> Fraction:
    """The part of the vision tower that a rank holds."""
    return Fraction(1) if shape.vision_whole else Fraction(1, tensor_parallel)


def estimate_weights(
    shape: Shape,
    stages: Sequence[int],
    tensor_parallel: int,
    weights_bytes: int | None = None,
    language_model_only: bool = False,
) -> Weights:
    """Weights by rank from the config's shape, scaled to `weights_bytes` when the checkpoint's size is known."""
    full = Fraction(dtype_bytes("dtype", shape.dtype))
    layers = _layer_bytes(shape)
    embedding = shape.vocab * shape.hidden * full
    vision = Fraction(0) if language_model_only else _vision_share(shape, tensor_parallel) * shape.vision_params * full
    head = Fraction(0) if shape.tied else embedding
    total = sum((item.split + item.kv + item.whole for item in layers), Fraction(0)) + embedding + head
    total += (shape.vision_params + shape.positions) * full
    # a head that shares the embedding's table is read all the same
    active = sum((item.active for item in layers), Fraction(0)) + embedding
    scale = Fraction(1)
    source = "estimated from the shape in config.json"
    if weights_bytes is not None and total:
        scale = Fraction(weights_bytes) / total
        source = "the checkpoint's size, divided by the shape in config.json"
    kv_heads = max(shape.kv_heads, 1)
    part_of_rank = _part(max(shape.heads, 1), tensor_parallel, padded=shape.heads > 0)
    more = _padding(shape, tensor_parallel) - 1
    by_rank: list[int] = []
    start = 0
    for stage, count in enumerate(stages):
        part = layers[start : start + count]
        start += count
        amount = Fraction(0)
        for item in part:
            amount += (item.split + more * item.experts) * part_of_rank
            amount += item.kv * _part(kv_heads, tensor_parallel) + item.whole
            amount += item.repeated(tensor_parallel)
        last = stage == len(stages) - 1
        if shape.embedding_everywhere or stage == 0 or (last and shape.tied):
            amount += embedding / tensor_parallel + shape.positions * full
        if shape.head_everywhere or last:
            amount += head / tensor_parallel
        # a tower for images is made on each stage, though the first one alone uses it
        amount += vision
        by_rank.extend([int(amount * scale)] * tensor_parallel)
    measured = weights_bytes is not None
    return Weights(by_rank, int(total * scale), int(active * scale), source, measured)


def loaded_share(shape: Shape, size: int) -> Fraction:
    """What a byte of a checkpoint of `size` takes in memory, as the engine turns numbers into its own dtype."""
    change = Fraction(dtype_bytes("dtype", shape.dtype), dtype_bytes("dtype", shape.stored_dtype))
    if change == 1 or shape.quantization != "none":
        return Fraction(1)
    # the files may be in another dtype than config.json names
    whole = estimate_weights(shape, [shape.num_layers], 1).total
    return change if abs(size - whole / change) < abs(size - whole) else Fraction(1)


def drafter_bytes(drafter: Shape, tensor_parallel: int, built_in: bool) -> int:
    """Weights of what drafts, on each rank of the last stage: layers, and a vocabulary if it is another model."""
    full = Fraction(dtype_bytes("dtype", drafter.dtype))
    layers = sum(
        (item.split / tensor_parallel + item.kv / tensor_parallel + item.whole for item in _layer_bytes(drafter)),
        Fraction(0),
    )
    return int(layers if built_in else layers + drafter.vocab * drafter.hidden * full / tensor_parallel)


def _check_layers(shape: Shape, tensors: Mapping[str, int]) -> None:
    """A checkpoint that ends before the last layer of its config is another model's, or a part of this one."""
    found = [number for name in tensors if not _VISION.search(name) and (number := _LAYER_NUMBER.search(name))]
    last = max((int(number.group(1)) for number in found), default=None)
    # a layer that was replaced by nothing has no tensors
    filled = [
        index
        for index, layer in enumerate(shape.layers)
        if layer.attention_params or layer.dense_params or layer.expert_params
    ]
    if last is not None and filled and last < filled[-1]:
        raise SizingError(
            "config.num_hidden_layers",
            shape.num_layers,
            f"disagrees with the checkpoint, whose tensors end with layer {last}",
            "config.json and the files are of different models: fetch the model again.",
        )


_LAYER_NUMBER = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer)\.(\d+)\.")
_REPLICATED = re.compile(
    r"(norm|router|\.gate\.|shared_expert_gate|kv_a_proj|q_a_proj|input_scale|weight_scale_2|k_scale|v_scale|"
    r"e_score_correction_bias|A_log|dt_bias|\.indexer\.|\.compressor\.|\.wq_a\.|\.wkv\.|\.hc_)"
)
_EXPERTS = re.compile(r"\.experts\.")
_DRAFT = re.compile(r"(^|\.)(mtp|nextn|draft_model)\.")
_VISION = re.compile(r"(^|\.)(visual|vision_tower|vision_model|multi_modal_projector|audio_tower)\.")


def _part(heads: int, tensor_parallel: int, padded: bool = True) -> Fraction:
    """What each rank holds of what is divided by heads, which an engine may pad to a multiple of the ranks."""
    return Fraction(-(-heads // tensor_parallel), heads) if padded else Fraction(1, tensor_parallel)


def _share_of(name: str, size: int, part_of_rank: Fraction, part_of_keys: Fraction) -> Fraction:
    """Bytes of a tensor on each rank of its stage."""
    if _REPLICATED.search(name):
        return Fraction(size)
    return size * (part_of_keys if re.search(r"\.(k_proj|v_proj)\.", name) else part_of_rank)


def weights_from_tensors(
    shape: Shape,
    tensors: Mapping[str, int],
    stages: Sequence[int],
    tensor_parallel: int,
    language_model_only: bool = False,
    drafting: bool = False,
) -> Weights:
    """Weights by rank from the tensors of the checkpoint itself: name -> bytes."""
    _check_layers(shape, tensors)
    stage_of: list[int] = []
    for stage, count in enumerate(stages):
        stage_of.extend([stage] * count)
    ranks = [Fraction(0)] * len(stages)
    last = len(stages) - 1
    total = 0
    part_of_rank = _part(max(shape.heads, 1), tensor_parallel, padded=shape.heads > 0)
    part_of_keys = _part(max(shape.kv_heads, 1), tensor_parallel)
    active = Fraction(0)
    padding = _padding(shape, tensor_parallel)
    for name, size in tensors.items():
        number = _LAYER_NUMBER.search(name)
        vision = _VISION.search(name) is not None
        if _DRAFT.search(name) or (number and not vision and int(number.group(1)) >= len(stage_of)):
            # multi-token prediction, some of it numbered after the decoder's own layers
            if drafting:
                ranks[last] += Fraction(size) if _REPLICATED.search(name) else Fraction(size, tensor_parallel)
            continue
        total += size
        if vision:
            if not language_model_only:
                ranks = [amount + _vision_share(shape, tensor_parallel) * size for amount in ranks]
            continue
        share = _share_of(name, size, part_of_rank, part_of_keys) * (padding if _EXPERTS.search(name) else 1)
        if number:
            ranks[stage_of[int(number.group(1))]] += share
        elif shape.head_everywhere and re.search(r"(lm_head|output_layer|embed_out)", name):
            ranks = [amount + share for amount in ranks]
        elif shape.embedding_everywhere and re.search(r"(embed|wte|word_embeddings)", name):
            ranks = [amount + share for amount in ranks]
            if not shape.tied:
                continue  # a lookup reads one row
        elif re.search(r"(lm_head|output_layer|embed_out)", name):
            ranks[last] += share
        elif re.search(r"(embed|wte|word_embeddings)", name):
            ranks[0] += share
            if shape.tied and last:
                ranks[last] += share
            if not shape.tied:
                continue  # a lookup reads one row
        else:
            ranks[last] += share
        if _EXPERTS.search(name) and shape.experts:
            active += Fraction(size * (shape.experts_per_token or shape.experts), shape.experts)
        else:
            active += size
    for index, item in enumerate(_layer_bytes(shape)):
        ranks[stage_of[index]] += item.repeated(tensor_parallel)
    by_rank = [int(amount) for amount in ranks for _index in range(tensor_parallel)]
    return Weights(by_rank, total, int(active), "the checkpoint's safetensors headers", measured=True)
