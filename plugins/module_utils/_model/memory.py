# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model needs of each rank's memory, computed from its config.json alone.

Pure and standard library only: the same file is imported by the filter on the controller, by the module on a
host, and by the parallelism planner. Nothing here touches a GPU; every number is a formula over the model's shape,
so that a split which cannot work is known before ten minutes of loading.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import (
    FULL,
    STATE,
    WINDOW,
    Layer,
    Shape,
    SizingError,
    as_fraction,
    as_int,
    dtype_bytes,
    parse_length,
    read_shape,
    with_overrides,
)

GIB = 1024**3

#: Memory bandwidth of a GB10; the bound on decode speed is this divided by what each token has to read.
SPARK_BANDWIDTH = 273e9

#: Where unified memory still leaves the operating system alone; above it a verdict is at best "tight".
USUAL_UTILIZATION = 0.85
EDGE_UTILIZATION = 0.90

#: CUDA context, NCCL buffers, allocator slack and captured graphs: measured on GB10 between 1 and 2 GiB a rank.
BASE_OVERHEAD = GIB
GRAPH_OVERHEAD = GIB // 2

#: KV dtype of vLLM -> (bytes per element, extra bytes per cached head vector for its scale).
_KV_DTYPES: dict[str, tuple[Fraction, int]] = {
    "float32": (Fraction(4), 0),
    "float16": (Fraction(2), 0),
    "half": (Fraction(2), 0),
    "bfloat16": (Fraction(2), 0),
    "bf16": (Fraction(2), 0),
    "fp16": (Fraction(2), 0),
    "fp8": (Fraction(1), 0),
    "fp8_e4m3": (Fraction(1), 0),
    "fp8_e5m2": (Fraction(1), 0),
    "fp8_inc": (Fraction(1), 0),
    "int8": (Fraction(1), 0),
    # 4 bits of data and one FP8 scale for each block of 16 elements
    "nvfp4": (Fraction(9, 16), 0),
    "nvfp4_4over6": (Fraction(9, 16), 0),
    # one FP32 scale for each token and head
    "fp8_per_token_head": (Fraction(1), 4),
    "int8_per_token_head": (Fraction(1), 4),
    "int4_per_token_head": (Fraction(1, 2), 4),
}

#: Layouts that only exist for latent attention; bytes per token and layer are fixed by the layout:
#: 512 FP8 latents + 4 FP32 scales + 64 BF16 rotary elements, and the same with 4-bit latents.
_MLA_LAYOUTS = {"fp8_ds_mla": 512 + 16 + 128, "nvfp4_ds_mla": 288 + 128}


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


def _by_rank(variable: str, value: Any, world: int, hosts: int = 0) -> list[int]:
    """One integer for all ranks, or a list with one entry a rank, or a host, whose ranks share it."""
    if isinstance(value, (list, tuple)):
        numbers = [as_int(f"{variable}[{index}]", item) for index, item in enumerate(value)]
        if len(numbers) == hosts and world % hosts == 0:
            each = world // hosts
            return [number // each for number in numbers for _index in range(each)]
        if len(numbers) == 1:
            return numbers * world
        if len(numbers) != world:
            raise SizingError(
                variable,
                value,
                f"has {len(numbers)} entries for {world} ranks",
                f"Give one number, or one for each of the {world} ranks (pipeline stage by stage), or of the hosts.",
            )
        return numbers
    return [as_int(variable, value)] * world


# --------------------------------------------------------------------------------------------------------------
# Splitting over ranks


def split_layers(num_layers: int, pipeline_parallel: int, partition: Sequence[int] | str | None = None) -> list[int]:
    """Layers of each pipeline stage, by vLLM's rule.

    What does not divide goes, one layer each, to the stages before the last one, backwards: the last stage
    already carries the output head. VLLM_PP_LAYER_PARTITION overrides the rule; pass it as `partition`.
    """
    layers = as_int("num_hidden_layers", num_layers)
    stages = as_int("pipeline_parallel", pipeline_parallel)
    if partition not in (None, "", []):
        parts = partition.split(",") if isinstance(partition, str) else list(partition)
        counts = [as_int("layer_partition", part, minimum=0) for part in parts]
        if len(counts) != stages or sum(counts) != layers:
            raise SizingError(
                "layer_partition",
                partition,
                f"does not name {stages} stages with {layers} layers in all",
                f"Give {stages} numbers that add up to {layers}.",
            )
        return counts
    if stages > layers:
        raise SizingError(
            "pipeline_parallel",
            stages,
            f"is more than the model's {layers} layers",
            f"Choose at most {layers} stages.",
        )
    counts = [layers // stages] * stages
    for back in range(2, layers % stages + 2):
        counts[-back] += 1
    return counts


def check_split(shape: Shape, tensor_parallel: int) -> None:
    """Stop a tensor split that vLLM would refuse after its imports: heads and KV heads must divide."""
    size = tensor_parallel
    if shape.heads and shape.heads % size:
        raise SizingError(
            "tensor_parallel",
            size,
            f"does not divide the model's {shape.heads} attention heads",
            f"Possible: {_divisors_text(shape.heads)}; or use pipeline_parallel={size}.",
        )
    for kv_heads in sorted({layer.kv_heads for layer in shape.layers if layer.kv_heads and not layer.latent}):
        if kv_heads % size and size % kv_heads:
            raise SizingError(
                "tensor_parallel",
                size,
                f"neither divides the model's {kv_heads} KV heads nor is a multiple of them",
                f"Use a divisor or a multiple of {kv_heads}, or pipeline_parallel={size}.",
            )


def _divisors_text(number: int, limit: int = 64) -> str:
    return ", ".join(str(value) for value in range(1, min(number, limit) + 1) if number % value == 0)


def kv_element(kv_cache_dtype: str, shape: Shape) -> tuple[Fraction, int, str]:
    """(bytes per element, extra bytes per head vector, the dtype's name) for a `--kv-cache-dtype` value."""
    name = str(kv_cache_dtype).strip().lower().removeprefix("torch.")
    if name == "auto":
        name = shape.kv_auto
    if name in _MLA_LAYOUTS:
        if not shape.latent:
            raise SizingError(
                "kv_cache_dtype",
                kv_cache_dtype,
                "exists only for models with latent attention (MLA)",
                "Use auto or fp8.",
            )
        return Fraction(0), 0, name
    if name not in _KV_DTYPES:
        known = sorted({"auto", *_KV_DTYPES, *_MLA_LAYOUTS})
        raise SizingError("kv_cache_dtype", kv_cache_dtype, "has no known size", f"Known: {', '.join(known)}.")
    size, extra = _KV_DTYPES[name]
    return size, extra, name


def layer_kv_bytes(layer: Layer, element: tuple[Fraction, int, str], tensor_parallel: int = 1) -> int:
    """Bytes that one token adds to one layer's cache on one rank. KV heads are replicated when TP exceeds them."""
    if layer.cache not in (FULL, WINDOW):
        return 0
    size, extra, name = element
    if layer.latent:
        if name in _MLA_LAYOUTS:
            return layer.caches_per_layer * (_MLA_LAYOUTS[name] + layer.extra_bytes)
        # the latent is not split: every rank needs all of it
        return layer.caches_per_layer * (int(layer.key_dim * size) + extra + layer.extra_bytes)
    heads = max(1, layer.kv_heads // tensor_parallel)
    return heads * (int(layer.key_dim * size) + int(layer.value_dim * size) + 2 * extra)


def layer_state_bytes(layer: Layer, shape: Shape, tensor_parallel: int = 1, ssm_dtype: str | None = None) -> int:
    """Bytes of a hybrid layer's state for one sequence on one rank, the same at any length."""
    conv = layer.conv_state * dtype_bytes("dtype", shape.dtype)
    recurrent = layer.ssm_state * dtype_bytes("mamba_ssm_cache_dtype", ssm_dtype or shape.ssm_dtype)
    return -(-(conv + recurrent) // tensor_parallel)


# --------------------------------------------------------------------------------------------------------------
# Weights


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
    kv: Fraction  # divides by min(TP, KV heads)
    whole: Fraction  # the same on each rank of the stage
    active: Fraction  # read for each token of one stream


def _layer_bytes(shape: Shape) -> list[_LayerBytes]:
    full = Fraction(dtype_bytes("dtype", shape.dtype))
    packed = _QUANT_BYTES.get(shape.quantization, full)
    ignored = _ignored(shape)
    attention_full = packed if not (ignored("self_attn") or ignored("mixer")) else full
    attention_state = packed if not (ignored("linear_attn") or ignored("mamba") or ignored("mixer.in_proj")) else full
    if shape.quantization in ("mxfp4",):
        attention_full = attention_state = full  # only experts are packed
    dense = packed if not ignored("shared_expert") else full
    result = []
    for layer in shape.layers:
        attention = attention_state if layer.cache == STATE else attention_full
        ffn = dense if layer.expert_params else packed
        split = layer.attention_params * attention + layer.dense_params * ffn + layer.expert_params * packed
        keys = layer.kv_params * attention
        whole = layer.replicated_params * full + 2 * shape.hidden * full
        active = (
            layer.attention_params * attention
            + keys
            + layer.dense_params * ffn
            + layer.active_expert_params * packed
            + whole
        )
        result.append(_LayerBytes(split=split, kv=keys, whole=whole, active=active))
    return result


@dataclass(frozen=True)
class Weights:
    """Bytes of weights by rank, of the whole model, and what one token of one stream reads."""

    by_rank: list[int]
    total: int
    active: int
    source: str


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
    vision = Fraction(0) if language_model_only else shape.vision_params * full
    head = Fraction(0) if shape.tied else embedding
    total = sum((item.split + item.kv + item.whole for item in layers), Fraction(0)) + embedding + head
    total += shape.vision_params * full
    # a head that shares the embedding's table is read all the same
    active = sum((item.active for item in layers), Fraction(0)) + embedding
    scale = Fraction(1)
    source = "estimated from the shape in config.json"
    if weights_bytes is not None and total:
        scale = Fraction(weights_bytes) / total
        source = "the checkpoint's size, divided by the shape in config.json"
    kv_heads = max(shape.kv_heads, 1)
    by_rank: list[int] = []
    start = 0
    for stage, count in enumerate(stages):
        part = layers[start : start + count]
        start += count
        amount = Fraction(0)
        for item in part:
            amount += item.split / tensor_parallel + item.kv / min(tensor_parallel, kv_heads) + item.whole
        last = stage == len(stages) - 1
        if stage == 0 or (last and shape.tied):
            amount += embedding / tensor_parallel
        if last:
            amount += head / tensor_parallel
        if stage == 0:
            amount += vision
        by_rank.extend([int(amount * scale)] * tensor_parallel)
    return Weights(by_rank=by_rank, total=int(total * scale), active=int(active * scale), source=source)


_LAYER_NUMBER = re.compile(r"(?:^|\.)(?:layers|h|blocks|layer)\.(\d+)\.")
_REPLICATED = re.compile(
    r"(norm|router|\.gate\.|shared_expert_gate|kv_a_proj|q_a_proj|input_scale|weight_scale_2|k_scale|v_scale|"
    r"e_score_correction_bias|A_log|dt_bias)"
)
_DRAFT = re.compile(r"(^|\.)(mtp|nextn|draft_model)\.")
_VISION = re.compile(r"(^|\.)(visual|vision_tower|vision_model|multi_modal_projector|audio_tower)\.")


def weights_from_tensors(
    shape: Shape,
    tensors: Mapping[str, int],
    stages: Sequence[int],
    tensor_parallel: int,
    language_model_only: bool = False,
) -> Weights:
    """Weights by rank from the tensors of the checkpoint itself: name -> bytes."""
    stage_of: list[int] = []
    for stage, count in enumerate(stages):
        stage_of.extend([stage] * count)
    ranks = [Fraction(0)] * len(stages)
    last = len(stages) - 1
    total = 0
    kv_heads = max(shape.kv_heads, 1)
    active = Fraction(0)
    for name, size in tensors.items():
        if _DRAFT.search(name):
            continue  # loaded only by speculative decoding
        number = _LAYER_NUMBER.search(name)
        vision = _VISION.search(name) is not None
        if number and not vision and int(number.group(1)) >= len(stage_of):
            continue  # a multi-token-prediction layer, numbered after the decoder's own
        total += size
        if vision:
            if not language_model_only:
                ranks[0] += size
            continue
        if _REPLICATED.search(name):
            share = Fraction(size)
        elif re.search(r"\.(k_proj|v_proj)\.", name):
            share = Fraction(size, min(tensor_parallel, kv_heads))
        else:
            share = Fraction(size, tensor_parallel)
        if number:
            ranks[stage_of[int(number.group(1))]] += share
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
        if re.search(r"\.experts\.", name) and shape.experts:
            active += Fraction(size * (shape.experts_per_token or shape.experts), shape.experts)
        else:
            active += size
    by_rank = [int(amount) for amount in ranks for _index in range(tensor_parallel)]
    return Weights(by_rank=by_rank, total=total, active=int(active), source="the checkpoint's safetensors headers")


_SAFETENSORS_HEADER_LIMIT = 100 * 1024 * 1024


def read_safetensors_header(path: str) -> dict[str, int]:
    """Tensor name -> bytes of one safetensors file, from its header alone; refuses a file cut short."""
    size = os.path.getsize(path)
    with open(path, "rb") as stream:
        raw = stream.read(8)
        if len(raw) < 8:
            raise SizingError("model_path", path, "is not a whole safetensors file", "Fetch the model again.")
        length = struct.unpack("<Q", raw)[0]
        if length > min(size - 8, _SAFETENSORS_HEADER_LIMIT):
            raise SizingError("model_path", path, "is cut short inside its header", "Fetch the model again.")
        try:
            header = json.loads(stream.read(length))
        except ValueError:
            raise SizingError("model_path", path, "has an unreadable header", "Fetch the model again.") from None
    tensors: dict[str, int] = {}
    end = 0
    try:
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            first, past = entry["data_offsets"]
            tensors[name] = past - first
            end = max(end, past)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise SizingError("model_path", path, "has an unreadable header", "Fetch the model again.") from None
    if 8 + length + end > size:
        raise SizingError(
            "model_path",
            path,
            f"has {size} bytes and should have {8 + length + end}",
            "The file was not copied whole: fetch the model again.",
        )
    return tensors


def _read_mapping(path: str) -> dict[str, Any]:
    """What a JSON file of the model holds; a file that was cut short is an error that says to fetch it again."""
    try:
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream)
    except ValueError as error:
        raise SizingError("model_path", path, f"is not JSON ({error})", "Fetch the model again.") from None
    if not isinstance(data, dict):
        raise SizingError("model_path", path, "does not hold a mapping", "Fetch the model again.")
    return data


def read_model_folder(path: str) -> tuple[dict[str, Any], dict[str, int]]:
    """(config, tensors) of a local model folder; half a set of safetensors is an error that names what lacks."""
    config_path = os.path.join(path, "config.json")
    if not os.path.isdir(path):
        raise SizingError("model_path", path, "is not a folder on this host", "Let model_store place the model first.")
    try:
        config = _read_mapping(config_path)
    except FileNotFoundError:
        raise SizingError("model_path", path, "has no config.json", "Fetch the model again.") from None
    if not config.get("quantization_config"):
        # ModelOpt writes its quantization beside the config in older exports
        side = os.path.join(path, "hf_quant_config.json")
        if os.path.isfile(side):
            config["quantization_config"] = {"quant_method": "modelopt", **_read_mapping(side)}
    tensors: dict[str, int] = {}
    for name in _weight_files(path):
        tensors.update(read_safetensors_header(os.path.join(path, name)))
    return config, tensors


def _weight_files(path: str) -> list[str]:
    index_path = os.path.join(path, "model.safetensors.index.json")
    present = {name for name in os.listdir(path) if name.endswith(".safetensors")}
    if os.path.isfile(index_path):
        try:
            wanted = set(_read_mapping(index_path)["weight_map"].values())
            if not all(isinstance(name, str) for name in wanted):
                raise TypeError
        except (SizingError, KeyError, AttributeError, TypeError):
            raise SizingError(
                "model_path", index_path, "is not a safetensors index", "Fetch the model again."
            ) from None
    else:
        wanted = present
        numbered = sorted(present)
        for name in numbered:
            match = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.safetensors", name)
            if match:
                prefix, total = match.group(1), int(match.group(3))
                wanted = wanted | {
                    f"{prefix}-{number:05d}-of-{total:05d}.safetensors" for number in range(1, total + 1)
                }
    missing = sorted(name for name in wanted if not os.path.exists(os.path.join(path, name)))
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise SizingError(
            "model_path",
            path,
            f"lacks {len(missing)} of {len(wanted)} safetensors files ({shown})",
            "The model is not complete on this host: let model_store fetch it again.",
        )
    if not wanted:
        raise SizingError(
            "model_path", path, "has no safetensors files", "Only safetensors checkpoints can be planned."
        )
    return sorted(wanted)


# --------------------------------------------------------------------------------------------------------------
# The plan


def gib(number: float) -> str:
    return f"{number / GIB:.1f} GiB"


def _overhead(shape: Shape, tensor_parallel: int, batched: int, sequences: int, eager: bool) -> int:
    """Memory beside weights and cache: the runtime's own, and the largest activations of one step."""
    width = max(dtype_bytes("dtype", shape.dtype), 2)
    ffn = max(shape.intermediate, shape.moe_intermediate * max(shape.experts_per_token, 1))
    activations = batched * width * (10 * shape.hidden + 3 * ffn // tensor_parallel)
    logits = min(sequences, batched) * shape.vocab * 4 * 2 // tensor_parallel
    return BASE_OVERHEAD + (0 if eager else GRAPH_OVERHEAD) + activations + logits


@dataclass(frozen=True)
class _Rank:
    """All numbers of one rank."""

    stage: int
    layers: int
    kv: int  # per token, whole context
    window: int  # per sequence, at the asked length
    window_token: int
    state: int  # per sequence
    weights: int
    memory: int | None
    available: int | None
    budget: int | None
    overhead: int

    @property
    def free(self) -> int | None:
        return None if self.budget is None else self.budget - self.weights - self.overhead

    def sequence(self, length: int) -> int:
        return self.kv * length + self.window + self.state

    def tokens(self) -> int | None:
        """Tokens of one sequence that the free memory holds; a cache that does not grow has no such limit."""
        if self.free is None or not self.kv:
            return None
        return max(0, (self.free - self.window - self.state) // self.kv)


def plan(
    config: Mapping[str, Any],
    *,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    kv_cache_dtype: str = "auto",
    max_model_len: int | str | None = None,
    memory_bytes: int | Sequence[int] | None = None,
    gpu_memory_utilization: float = USUAL_UTILIZATION,
    weights_bytes: int | None = None,
    memory_available_bytes: int | Sequence[int] | None = None,
    max_num_seqs: int = 1,
    max_num_batched_tokens: int = 8192,
    overhead_bytes: int | None = None,
    kv_cache_memory_bytes: int | str | None = None,
    enforce_eager: bool = False,
    language_model_only: bool = False,
    mamba_ssm_cache_dtype: str = "auto",
    memory_bandwidth: float = SPARK_BANDWIDTH,
    active_bytes: int | None = None,
    layer_partition: Sequence[int] | str | None = None,
    tensors: Mapping[str, int] | None = None,
    hosts: Sequence[str] | None = None,
    hf_overrides: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The memory plan of one model on one set of ranks; see the `memory_plan` filter for the meaning of each."""
    shape = read_shape(with_overrides(config, hf_overrides) if hf_overrides else config)
    tensor = as_int("tensor_parallel", tensor_parallel)
    pipeline = as_int("pipeline_parallel", pipeline_parallel)
    world = tensor * pipeline
    check_split(shape, tensor)
    stages = split_layers(shape.num_layers, pipeline, layer_partition)
    element = kv_element(kv_cache_dtype, shape)
    utilization = as_fraction("gpu_memory_utilization", gpu_memory_utilization)
    batched = as_int("max_num_batched_tokens", max_num_batched_tokens)
    asked = as_int("max_num_seqs", max_num_seqs)
    length = _length(shape, max_model_len)
    ssm = None if mamba_ssm_cache_dtype in (None, "auto") else str(mamba_ssm_cache_dtype)
    if tensors is not None:
        weights = weights_from_tensors(shape, tensors, stages, tensor, language_model_only)
    else:
        size = None if weights_bytes is None else as_int("weights_bytes", weights_bytes)
        weights = estimate_weights(shape, stages, tensor, size, language_model_only)
    memory: list[int | None] = [None] * world
    if memory_bytes is not None:
        memory = list(_by_rank("memory_bytes", memory_bytes, world, len(hosts or ())))
    available: list[int | None] = [None] * world
    if memory_available_bytes is not None:
        available = list(_by_rank("memory_available_bytes", memory_available_bytes, world, len(hosts or ())))
    names = _names(hosts, world)
    if overhead_bytes is None:
        overhead = _overhead(shape, tensor, batched, asked, bool(enforce_eager))
    else:
        overhead = as_int("overhead_bytes", overhead_bytes, minimum=0)
    pinned = None
    if kv_cache_memory_bytes not in (None, "", 0):
        pinned = parse_length("kv_cache_memory_bytes", kv_cache_memory_bytes)

    ranks: list[_Rank] = []
    start = 0
    for stage, count in enumerate(stages):
        part = shape.layers[start : start + count]
        start += count
        grows = [layer for layer in part if _grows(layer, length)]
        slides = [layer for layer in part if layer.cache == WINDOW and not _grows(layer, length)]
        per_token = sum(layer_kv_bytes(layer, element, tensor) for layer in grows)
        slide_token = sum(layer_kv_bytes(layer, element, tensor) for layer in slides)
        # while a chunk is processed, a window holds the chunk as well
        window = sum(layer_kv_bytes(layer, element, tensor) * min(layer.window + batched, length) for layer in slides)
        state = sum(layer_state_bytes(layer, shape, tensor, ssm) for layer in part)
        for lane in range(tensor):
            rank = stage * tensor + lane
            total = memory[rank]
            budget = None if total is None else int(total * utilization)
            if budget is not None and pinned is not None:
                budget = weights.by_rank[rank] + overhead + pinned
            ranks.append(
                _Rank(
                    stage=stage,
                    layers=count,
                    kv=per_token,
                    window=window,
                    window_token=slide_token,
                    state=state,
                    weights=weights.by_rank[rank],
                    memory=total,
                    available=available[rank],
                    budget=budget,
                    overhead=overhead,
                )
            )
    full = [layer for layer in shape.layers if _grows(layer, length)]
    slides = [layer for layer in shape.layers if layer.cache == WINDOW and not _grows(layer, length)]
    kv_whole = sum(layer_kv_bytes(layer, element) for layer in full)
    within = kv_whole + sum(layer_kv_bytes(layer, element) for layer in slides)
    if not kv_whole and slides:
        # nothing but windows: a token costs this much until the window is full
        kv_whole = within
    rank_kv = [rank.kv or (rank.window_token if not any(item.kv for item in ranks) else 0) for rank in ranks]
    limits = [tokens for tokens in (rank.tokens() for rank in ranks) if tokens is not None]
    max_tokens: int | None = None
    if memory_bytes is not None:
        room = all(rank.free is None or rank.free > 0 for rank in ranks)
        # a stage without a growing cache sets no limit, and none of its own weights fit all the same
        max_tokens = 0 if not room else min(limits) if limits else length
    verdict, reasons, suggestions = _judge(
        shape, ranks, names, length, asked, utilization, tensor, pipeline, element[2], pinned, weights
    )
    concurrent = _concurrent(ranks, length)
    active = as_int("active_bytes", active_bytes) if active_bytes is not None else weights.active
    bound = tensor * float(memory_bandwidth) / active if active else None
    return {
        "model_type": shape.model_type,
        "verdict": verdict,
        "reasons": reasons,
        "suggestions": suggestions,
        "kv_cache_dtype": element[2],
        "kv_bytes_per_token": kv_whole,
        "kv_bytes_per_token_within_window": within,
        "kv_bytes_per_token_per_rank": max(rank_kv),
        "window_bytes_per_sequence_per_rank": max(rank.window for rank in ranks),
        "state_bytes_per_sequence": sum(layer_state_bytes(layer, shape, 1, ssm) for layer in shape.layers),
        "state_bytes_per_sequence_per_rank": max(rank.state for rank in ranks),
        "weights_bytes": weights.total,
        "weights_bytes_per_rank": max(rank.weights for rank in ranks),
        "weights_source": weights.source,
        "active_bytes": active,
        "overhead_bytes_per_rank": overhead,
        "max_model_len": length,
        "model_max_len": shape.max_position,
        "max_tokens": max_tokens,
        "max_concurrent_sequences": concurrent,
        "gpu_memory_utilization": utilization,
        "decode_tokens_per_second_bound": None if bound is None else round(bound, 1),
        "layers": shape.num_layers,
        "full_attention_layers": shape.count(FULL),
        "window_layers": shape.count(WINDOW),
        "state_layers": shape.count(STATE),
        "tensor_parallel": tensor,
        "pipeline_parallel": pipeline,
        "ranks": {
            "host": names,
            "stage": [rank.stage for rank in ranks],
            "layers": [rank.layers for rank in ranks],
            "kv_bytes_per_token_per_rank": rank_kv,
            "weights_bytes_per_rank": [rank.weights for rank in ranks],
            "state_bytes_per_sequence_per_rank": [rank.state for rank in ranks],
            "memory_bytes": [rank.memory for rank in ranks],
            "memory_available_bytes": [rank.available for rank in ranks],
            "budget_bytes": [rank.budget for rank in ranks],
            "kv_cache_bytes": [None if rank.free is None else max(0, rank.free) for rank in ranks],
            "max_tokens": [rank.tokens() for rank in ranks],
        },
    }


def _grows(layer: Layer, length: int) -> bool:
    """A window as long as the context is no window at all."""
    return layer.cache == FULL or (layer.cache == WINDOW and layer.window >= length)


def _names(hosts: Sequence[str] | None, world: int) -> list[str]:
    if not hosts:
        return [f"rank {number}" for number in range(world)]
    names = [str(name) for name in hosts]
    if len(names) == world:
        return names
    if world % len(names) == 0:
        each = world // len(names)
        return [name for name in names for _index in range(each)]
    raise SizingError("hosts", names, f"does not match {world} ranks", "Name one host a rank.")


def _length(shape: Shape, asked: Any) -> int:
    limit = shape.max_position
    if asked in (None, "", "auto", -1, "-1"):
        if limit is None:
            raise SizingError(
                "max_model_len",
                asked,
                "is not given and the model's config names no limit",
                "Give the context length in tokens.",
            )
        return limit
    length = parse_length("max_model_len", asked)
    if limit is not None and length > limit:
        raise SizingError(
            "max_model_len",
            length,
            f"is longer than the model's own {limit} tokens",
            f"Ask for at most {limit}, or extend the positions by hf-overrides with {{rope_parameters: ...}} (under "
            "text_config where the model's config.json has it there).",
        )
    return length


def _concurrent(ranks: Sequence[_Rank], length: int) -> float | None:
    counts = []
    for rank in ranks:
        if rank.free is None:
            return None
        each = rank.sequence(length)
        if each:
            counts.append(max(0, rank.free) / each)
    return round(min(counts), 2) if counts else None


def _judge(
    shape: Shape,
    ranks: Sequence[_Rank],
    names: Sequence[str],
    length: int,
    sequences: int,
    utilization: float,
    tensor: int,
    pipeline: int,
    kv_name: str,
    pinned: int | None,
    weights: Weights,
) -> tuple[str, list[str], list[str]]:
    """The verdict, its numbers, and the nearest changes that would make it fit."""
    if any(rank.budget is None for rank in ranks):
        return "unknown", ["memory_bytes is not given: sizes only, no verdict."], []
    reasons: list[str] = []
    bad = False
    tight = False
    worst = min(ranks, key=lambda rank: (rank.free or 0) - rank.sequence(length))
    for rank, name in zip(ranks, names, strict=True):
        budget, free, memory = rank.budget or 0, rank.free or 0, rank.memory or 0
        if pinned is not None and budget > memory * EDGE_UTILIZATION:
            bad = True
            reasons.append(
                f"{name}: weights {gib(rank.weights)}, overhead {gib(rank.overhead)} and the pinned KV cache "
                f"{gib(pinned)} exceed {EDGE_UTILIZATION:.2f} of {gib(memory)}."
            )
        elif free <= 0:
            bad = True
            reasons.append(
                f"{name}: weights {gib(rank.weights)} and overhead {gib(rank.overhead)} exceed "
                f"{utilization:.2f} of {gib(memory)} ({gib(budget)})."
            )
        elif rank.sequence(length) > free:
            bad = True
            reasons.append(
                f"{name}: one sequence of {length} tokens needs {gib(rank.sequence(length))} of cache and "
                f"{gib(free)} is left after weights {gib(rank.weights)} and overhead {gib(rank.overhead)}."
            )
        wanted = int(memory * utilization) if pinned is None else budget
        if rank.available is not None and rank.available < wanted:
            bad = True
            reasons.append(
                f"{name}: {gib(rank.available)} of memory is available now and vLLM wants {gib(wanted)} "
                f"({utilization:.2f} of {gib(memory)}): stop what holds memory, or drop the page cache."
            )
    if bad:
        return "does_not_fit", reasons, _suggest(shape, ranks, worst, length, utilization, tensor, pipeline, kv_name)
    left = (worst.free or 0) - worst.sequence(length)
    name = names[list(ranks).index(worst)]
    reasons.append(
        f"{name} is the fullest: weights {gib(worst.weights)}, overhead {gib(worst.overhead)}, "
        f"cache {gib(worst.free or 0)} of {gib(worst.budget or 0)}; one sequence of {length} tokens takes "
        f"{worst.sequence(length) / 2**20:.0f} MiB of it."
    )
    if pinned is None and left < 0.05 * (worst.budget or 0):
        tight = True
        reasons.append(f"Less than 5 % of the budget is left after one full-length sequence ({gib(left)}).")
    concurrent = _concurrent(ranks, length)
    if sequences > 1 and concurrent is not None and concurrent < sequences:
        reasons.append(
            f"{concurrent:g} sequences of {length} tokens fit at once; the {sequences} asked for (max_num_seqs) share "
            "the cache and wait or are preempted when all are that long."
        )
    if utilization > USUAL_UTILIZATION and pinned is None:
        tight = True
        edge = "is above the edge seen on unified memory" if utilization > EDGE_UTILIZATION else "is above the usual"
        reasons.append(f"gpu_memory_utilization {utilization:.2f} {edge} {USUAL_UTILIZATION:.2f}.")
    return ("tight" if tight else "fits"), reasons, []


def _suggest(
    shape: Shape,
    ranks: Sequence[_Rank],
    worst: _Rank,
    length: int,
    utilization: float,
    tensor: int,
    pipeline: int,
    kv_name: str,
) -> list[str]:
    """The nearest things that would fit, cheapest first."""
    suggestions: list[str] = []
    tokens = [rank.tokens() for rank in ranks]
    numbers = [number for number in tokens if number is not None]
    if numbers and min(numbers) >= 1024 and min(numbers) < length:
        fitting = min(numbers) // 1024 * 1024
        suggestions.append(f"max_model_len={fitting} fits this split.")
    if (worst.free or 0) > 0 and kv_name in ("bfloat16", "float16", "bf16", "fp16", "half") and worst.kv:
        # half the bytes for each token
        halves = (worst.free or 0) - worst.window // 2 - worst.state
        if halves // max(worst.kv // 2, 1) >= length:
            suggestions.append(f"kv_cache_dtype=fp8 makes {length} tokens fit.")
    for better in (0.80, 0.85, 0.90):
        if better > utilization and all(
            int((rank.memory or 0) * better) - rank.weights - rank.overhead >= rank.sequence(length) for rank in ranks
        ):
            if all(rank.available is None or rank.available >= int((rank.memory or 0) * better) for rank in ranks):
                suggestions.append(f"gpu_memory_utilization={better:.2f} fits.")
            break
    lower = [rank.available / rank.memory for rank in ranks if rank.available is not None and rank.memory]
    if lower and min(lower) < utilization:
        fraction = int(min(lower) * 100) / 100
        if all(
            int((rank.memory or 0) * fraction) - rank.weights - rank.overhead >= rank.sequence(length) for rank in ranks
        ):
            suggestions.append(f"gpu_memory_utilization={fraction:.2f} fits what is available now.")
    more = _more_hosts(shape, ranks, length, utilization, tensor, pipeline)
    if more:
        suggestions.append(more)
    if not suggestions:
        suggestions.append("A smaller checkpoint (a stronger quantization) is needed.")
    return suggestions


def _more_hosts(
    shape: Shape, ranks: Sequence[_Rank], length: int, utilization: float, tensor: int, pipeline: int
) -> str | None:
    """The smallest number of further pipeline stages like these that would hold the model."""
    smallest = min(rank.memory or 0 for rank in ranks)
    stages = [ranks[index] for index in range(0, len(ranks), tensor)]
    weights = sum(rank.weights for rank in stages)
    cache = sum(rank.sequence(length) for rank in stages)
    overhead = ranks[0].overhead
    for count in range(pipeline + 1, min(shape.num_layers, pipeline + 64) + 1):
        if -(-(weights + cache) // count) * 1.03 + overhead <= int(smallest * utilization):
            total = count * tensor
            split = f"pipeline_parallel={count}" + (f" with tensor_parallel={tensor}" if tensor > 1 else "")
            return f"{total} GPUs of {gib(smallest)} would hold it ({split})."
    return None
