# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a model is divided over the GPUs of a cluster, and one sentence of why.

Tensor parallelism (TP) reads a part of every layer on every GPU, which multiplies memory bandwidth for a single
stream, and exchanges activations twice a layer, which wants RDMA. Pipeline parallelism (PP) gives each GPU some
layers: one small message a stage, so it is right on TCP, and it divides any model. What TP may be is decided by the
model's shape; where it cannot be, PP takes over the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import block_size, text_config
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layers import STATE
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import Shape, read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.split import split_layers
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, as_int, parse_length
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import ring

#: Topologies whose links carry RDMA; on `lan` and `line` everything is TCP.
RDMA_TOPOLOGIES = ("direct", "ring", "switch")
TOPOLOGIES = (*RDMA_TOPOLOGIES, "line", "lan")
#: what a user acknowledges whose image pads heads that do not divide, which engines themselves refuse
PADDED_HEADS = "padded-heads"


class NoConfig(SizingError):
    """There is no config.json by which a split could be chosen."""


def tensor_problems(config: Mapping[str, Any], size: int, expert_parallel: bool = False) -> list[str]:
    """Why an engine would refuse to divide each layer of this model by `size`; empty if it would not."""
    if size == 1:
        return []
    shape = read_shape(config)
    text = text_config(config)
    problems = []
    if shape.heads % size:
        problems.append(f"{shape.heads} attention heads do not divide by {size}")
    for heads in sorted({layer.kv_heads for layer in shape.layers if layer.kv_heads and not layer.latent}):
        if heads % size and size % heads:
            problems.append(f"{heads} KV heads neither divide by {size} nor divide it")
    if shape.count(STATE):
        for field, words in (
            ("linear_num_value_heads", "linear-attention value heads"),
            ("linear_num_key_heads", "linear-attention key heads"),
            ("mamba_num_heads", "Mamba heads"),
        ):
            number = text.get(field)
            if isinstance(number, int) and number % size:
                problems.append(f"{number} {words} do not divide by {size}")
    problems += _width_problems(config, shape, text, size, expert_parallel)
    return problems


def _width_problems(
    config: Mapping[str, Any], shape: Shape, text: Mapping[str, Any], size: int, expert_parallel: bool
) -> list[str]:
    """Widths that must divide, and whose parts must be whole blocks in a block-quantized FP8 checkpoint."""
    blocks = block_size(config)
    block = blocks[0] if blocks else None
    widths: list[tuple[str, int]] = []
    if shape.experts and not expert_parallel:
        widths.append(("MoE intermediate size", shape.moe_intermediate))
    dense = any(layer.dense_params and not layer.expert_params for layer in shape.layers)
    if dense and shape.intermediate:
        widths.append(("intermediate size", shape.intermediate))
    shared = text.get("shared_expert_intermediate_size") or text.get("moe_shared_expert_intermediate_size")
    if shape.experts and isinstance(shared, int):
        widths.append(("shared expert's intermediate size", shared))
    if shape.heads and shape.heads % size == 0 and not shape.latent:
        widths.append(("width of the attention heads", shape.heads * shape.head_dim))
    problems = []
    for words, width in widths:
        if width % size:
            problems.append(f"the {words} {width} does not divide by {size}")
        elif block and (width // size) % block:
            problems.append(f"the {words} {width}/{size} = {width // size} is not a multiple of the FP8 block {block}")
    return problems


def _only_experts(config: Mapping[str, Any], size: int) -> bool:
    """Whether whole experts on each rank would fix all that stands against this TP."""
    shape = read_shape(config)
    return bool(shape.experts) and shape.experts >= size and not tensor_problems(config, size, expert_parallel=True)


def _host_names(hosts: Any) -> list[str]:
    if isinstance(hosts, (list, tuple)):
        if not hosts:
            raise SizingError("hosts", hosts, "is empty", "Put at least one host into the group cluster.")
        return [str(name) for name in hosts]
    return [f"host{number + 1}" for number in range(as_int("hosts", hosts))]


def _gpu_count(gpus_per_host: Any, hosts: Sequence[str]) -> int:
    """GPUs a host; all hosts of one serving group must have the same number."""
    if isinstance(gpus_per_host, Mapping):
        gpus_per_host = [gpus_per_host.get(name, 1) for name in hosts]
    if isinstance(gpus_per_host, (list, tuple)):
        numbers = [as_int("gpus_per_host", number) for number in gpus_per_host]
        if len(numbers) != len(hosts) or len(set(numbers)) != 1:
            raise SizingError(
                "gpus_per_host",
                dict(zip(hosts, numbers, strict=False)),
                "differs between the hosts of one group",
                "Serve on hosts with the same number of GPUs, or set vllm_serve_tensor_parallel_size and the hosts.",
            )
        return numbers[0]
    return as_int("gpus_per_host", gpus_per_host)


def plan_parallel(
    hosts: Sequence[str] | int,
    gpus_per_host: int | Sequence[int] | Mapping[str, int] = 1,
    topology: str = "switch",
    config: Mapping[str, Any] | None = None,
    *,
    tensor_parallel: int | None = None,
    pipeline_parallel: int | None = None,
    expert_parallel: bool | None = None,
    max_model_len: int | str | None = None,
    replicas: int = 1,
    rdma: bool | None = None,
    padded: bool = False,
) -> dict[str, Any]:
    """Split a model over all GPUs of the hosts; an explicit choice is kept and checked.

    `rdma` overrides what the topology implies (an RDMA link that is down, a switch without RoCE). `padded`: the engine
    pads what does not divide, so an explicit choice that does not is kept as well.
    """
    if topology not in TOPOLOGIES:
        raise SizingError("fabric_topology", topology, "is not a topology", f"Choose one of {', '.join(TOPOLOGIES)}.")
    names = _host_names(hosts)
    each = _gpu_count(gpus_per_host, names)
    world = each * len(names)
    fast = topology in RDMA_TOPOLOGIES if rdma is None else bool(rdma)
    if as_int("replicas", replicas) > 1:
        raise SizingError(
            "replicas",
            replicas,
            "is more than the one serving group that a cluster runs (a second one would collide on the rendezvous "
            "port, the Ray head and the API port)",
            "Make a serving group of each replica (serving_groups), with hosts of its own.",
        )
    if config is not None:
        _check_length(config, max_model_len)
    chosen = _explicit(tensor_parallel, pipeline_parallel, world, len(names), each)
    # the cables of a ring from host to host; ranks inside a host need none
    ringed = len(names) if fast and topology == "ring" and each == 1 else 0
    if chosen is not None:
        if problem := ring.refused(*chosen, ringed):
            raise SizingError(
                "vllm_serve_tensor_parallel_size x vllm_serve_pipeline_parallel_size",
                f"{chosen[0]} x {chosen[1]}",
                f"cannot be: {problem}",
                f"Choose {_on_a_ring(world, ringed)}, or join the hosts by a switch.",
            )
        found = _checked(chosen, expert_parallel, config, world, names, fast, topology, padded=padded)
        return {**found, "why": _with_cost(found["why"], *chosen, ringed)}
    if world == 1:
        return _checked((1, 1), expert_parallel, config, world, names, fast, topology, chosen=False)
    if config is None:
        if fast:
            raise NoConfig(
                "vllm_serve_tensor_parallel_size",
                None,
                "is not given, and there is no model config to choose it by",
                "Set it, or give the model's config (a recipe with `config`, or the model on the head's disk).",
            )
        return _result(each, world // each, False, "No model config to look at, and the links are TCP: PP over hosts.")
    return _automatic(config, expert_parallel, world, each, names, fast, topology, ringed)


def _on_a_ring(world: int, hosts: int) -> str:
    """The splits that a ring of so many hosts can carry."""
    return " or ".join(
        f"TP={size} PP={world // size}"
        for size in _divisors(world)[::-1]
        if not ring.refused(size, world // size, hosts)
    )


def _check_length(config: Mapping[str, Any], asked: Any) -> None:
    if asked in (None, "", "auto", -1, "-1", 0):
        return
    length = parse_length("vllm_serve_max_model_len", asked)
    limit = read_shape(config).max_position
    if limit is not None and length > limit:
        raise SizingError(
            "vllm_serve_max_model_len",
            length,
            f"is longer than the model's own {limit} tokens",
            f"Ask for at most {limit}, or extend the positions by hf-overrides with {{rope_parameters: ...}} (under "
            "text_config where the model's config.json has it there).",
        )


def _explicit(tensor: Any, pipeline: Any, world: int, hosts: int, each: int) -> tuple[int, int] | None:
    """The asked split with what was left open filled in, or None if nothing was asked."""
    tensor = None if tensor in (None, "", 0) else as_int("vllm_serve_tensor_parallel_size", tensor)
    pipeline = None if pipeline in (None, "", 0) else as_int("vllm_serve_pipeline_parallel_size", pipeline)
    if tensor is None and pipeline is None:
        return None
    there = f"{world} GPUs ({hosts} hosts with {each} each)"
    if tensor is not None and pipeline is not None:
        if tensor * pipeline != world:
            raise SizingError(
                "vllm_serve_tensor_parallel_size x vllm_serve_pipeline_parallel_size",
                f"{tensor} x {pipeline}",
                f"is {tensor * pipeline} and the cluster has {there}",
                f"Their product must be {world}: leave one out, or change the hosts of the group cluster.",
            )
        return tensor, pipeline
    variable, number = (
        ("vllm_serve_tensor_parallel_size", tensor)
        if tensor is not None
        else ("vllm_serve_pipeline_parallel_size", pipeline)
    )
    if number is None:  # one of the two is given; said for the type checker
        raise AssertionError(variable)
    if world % number:
        raise SizingError(
            variable,
            number,
            f"does not divide the cluster's {there}",
            f"Choose one of {', '.join(str(value) for value in _divisors(world))}.",
        )
    return (number, world // number) if tensor is not None else (world // number, number)


def _divisors(number: int) -> list[int]:
    return [value for value in range(1, number + 1) if number % value == 0]


def _checked(
    split: tuple[int, int],
    expert: bool | None,
    config: Mapping[str, Any] | None,
    world: int,
    names: Sequence[str],
    fast: bool,
    topology: str,
    chosen: bool = True,
    padded: bool = False,
) -> dict[str, Any]:
    tensor, pipeline = split
    experts = bool(expert)
    notes: list[str] = []
    if config is not None:
        shape = read_shape(config)
        if experts and not shape.experts:
            raise SizingError(
                "expert_parallel", expert, "has no meaning for a model without experts", "Leave expert parallelism out."
            )
        split_layers(shape.num_layers, pipeline)
        problems = tensor_problems(config, tensor, experts)
        if problems and padded:
            notes.append(f"padded by the engine: {'; '.join(problems)}")
        elif problems:
            possible = [value for value in _divisors(world) if not tensor_problems(config, value, experts)]
            fix = f"Possible here: {', '.join(f'TP={value} PP={world // value}' for value in possible)}."
            if not experts and _only_experts(config, tensor):
                fix += " Or set enable-expert-parallel: true in vllm_serve_args, which keeps experts whole."
            fix += f" With an image of others that pads heads, write vllm_serve_acknowledged: [{PADDED_HEADS}]."
            raise SizingError("vllm_serve_tensor_parallel_size", tensor, "; ".join(problems), fix)
    why = f"TP={tensor} PP={pipeline} as asked" if chosen else "One GPU: nothing to divide"
    if chosen and tensor > 1 and not fast and len(names) > 1:
        notes.append(f"over {topology} (TCP) TP slows a single stream, PP would not")
    why += f" ({'; '.join(notes)})." if notes else "."
    return {**_result(tensor, pipeline, experts, why), "padded": any(note.startswith("padded") for note in notes)}


def _automatic(
    config: Mapping[str, Any],
    expert: bool | None,
    world: int,
    each: int,
    names: Sequence[str],
    fast: bool,
    topology: str,
    ringed: int,
) -> dict[str, Any]:
    shape = read_shape(config)
    if expert and not shape.experts:
        raise SizingError(
            "expert_parallel", expert, "has no meaning for a model without experts", "Leave expert parallelism out."
        )
    most = world if fast else each
    refused: dict[int, str] = {}
    for tensor in sorted(_divisors(world), reverse=True):
        if tensor > most:
            continue
        pipeline = world // tensor
        problems = tensor_problems(config, tensor, bool(expert))
        experts = bool(expert)
        reason = ""
        if problems and expert is None and _only_experts(config, tensor):
            experts, reason = True, f", with whole experts on each rank because {problems[0]}"
            problems = []
        if problems:
            refused[tensor] = problems[0]
            continue
        if problem := ring.refused(tensor, pipeline, ringed):
            refused[tensor] = problem
            continue
        if pipeline > shape.num_layers:
            refused[tensor] = f"{pipeline} stages are more than the model's {shape.num_layers} layers"
            continue
        why = _sentence(tensor, pipeline, world, fast, topology, refused, reason)
        return _result(tensor, pipeline, experts, _with_cost(why, tensor, pipeline, ringed))
    problem = "; ".join(f"TP={size}: {text}" for size, text in refused.items())
    raise SizingError("hosts", list(names), f"cannot be divided for this model ({problem})", "Use fewer hosts.")


def _with_cost(why: str, tensor: int, pipeline: int, ringed: int) -> str:
    cost = ring.cost(tensor, pipeline, ringed)
    return f"{why} On this ring {cost}." if cost else why


def _sentence(
    tensor: int, pipeline: int, world: int, fast: bool, topology: str, refused: Mapping[int, str], reason: str
) -> str:
    split = f"TP={tensor} PP={pipeline}"
    if tensor == world:
        link = f"over RoCE ({topology})" if fast else "inside the host"
        return f"{split}: each layer divides by {tensor}, and TP {link} multiplies memory bandwidth{reason}."
    if not fast:
        return f"{split}: the links are TCP ({topology}), and PP needs little network{reason}."
    largest = max(refused)
    return f"{split}: {refused[largest]}, so the layers are divided into {pipeline} stages instead{reason}."


def _result(tensor: int, pipeline: int, experts: bool, why: str) -> dict[str, Any]:
    return {
        "tensor_parallel": tensor,
        "pipeline_parallel": pipeline,
        "expert_parallel": experts,
        "world": tensor * pipeline,
        "why": why,
        "padded": False,
    }
