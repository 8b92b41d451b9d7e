# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.parallel import plan_parallel, tensor_problems
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.published_models import model

AUTOMATIC = [
    # model, hosts, topology, TP, PP, EP, a piece of why
    ("qwen3.5-397b-a17b-fp8", 4, "switch", 4, 1, False, "over RoCE (switch)"),
    ("qwen3.5-397b-a17b-nvfp4", 3, "switch", 1, 3, False, "32 attention heads do not divide by 3"),
    ("qwen3.5-397b-a17b-nvfp4", 3, "ring", 1, 3, False, "32 attention heads do not divide by 3"),
    ("nemotron-3-super-120b-a12b-nvfp4", 4, "lan", 1, 4, False, "PP needs little network"),
    ("nemotron-3-super-120b-a12b-nvfp4", 2, "direct", 2, 1, False, "over RoCE (direct)"),
    ("nemotron-3-super-120b-a12b-nvfp4", 2, "lan", 1, 2, False, "TCP (lan)"),
    ("qwen3.5-122b-a10b-fp8", 4, "lan", 1, 4, False, "TCP"),
    ("qwen3-30b-a3b-thinking-2507-fp8", 2, "direct", 2, 1, False, "each layer divides by 2"),
    # 768/4 = 192 is not a multiple of 128: whole experts
    ("qwen3-30b-a3b-thinking-2507-fp8", 4, "switch", 4, 1, True, "768/4 = 192 is not a multiple of the FP8 block 128"),
    ("llama-3.1-405b-awq-int4", 3, "switch", 1, 3, False, "128 attention heads do not divide by 3"),
    ("tiny-qwen3", 3, "ring", 3, 1, False, "over RoCE (ring)"),
    ("tiny-qwen3", 1, "lan", 1, 1, False, "One GPU"),
    ("llama-3.1-8b", 4, "ring", 4, 1, False, "every all-reduce takes 6 steps from host to host round the ring"),
    # neither 5 nor two pairs: the stages follow the cables
    ("llama-3.1-8b", 5, "ring", 1, 5, False, "a token passes 5 stages"),
    ("llama-3.1-8b", 6, "ring", 1, 6, False, "a token passes 6 stages"),
    ("llama-3.1-8b", 4, "line", 1, 4, False, "the links are TCP (line)"),
    # six hosts: two of the factors divide
    ("llama-3.1-8b", 6, "switch", 2, 3, False, "32 attention heads do not divide by 6"),
]


@pytest.mark.parametrize(("name", "hosts", "topology", "tensor", "pipeline", "experts", "why"), AUTOMATIC)
def test_the_choice(name: str, hosts: int, topology: str, tensor: int, pipeline: int, experts: bool, why: str) -> None:
    plan = plan_parallel(hosts, 1, topology, model(name))
    assert (plan["tensor_parallel"], plan["pipeline_parallel"], plan["expert_parallel"]) == (tensor, pipeline, experts)
    assert why in plan["why"]
    assert plan["why"].count("\n") == 0


def test_several_gpus_share_a_host_before_the_network() -> None:
    plan = plan_parallel(["a", "b"], {"a": 2, "b": 2}, "lan", model("llama-3.1-8b"))
    assert (plan["tensor_parallel"], plan["pipeline_parallel"]) == (2, 2)
    assert plan_parallel(["a", "b"], [4, 4], "switch", model("llama-3.1-8b"))["tensor_parallel"] == 8


def test_rdma_that_is_down_is_tcp() -> None:
    assert plan_parallel(2, 1, "direct", model("llama-3.1-8b"), rdma=False)["pipeline_parallel"] == 2


EXPLICIT = [
    ({"tensor_parallel": 2}, 4, (2, 2)),
    ({"pipeline_parallel": 4}, 4, (1, 4)),
    ({"tensor_parallel": "2", "pipeline_parallel": "2"}, 4, (2, 2)),
    ({"tensor_parallel": 0, "pipeline_parallel": 2}, 2, (1, 2)),
]


@pytest.mark.parametrize(("options", "hosts", "expected"), EXPLICIT)
def test_an_explicit_choice_is_kept(options: dict[str, Any], hosts: int, expected: tuple[int, int]) -> None:
    plan = plan_parallel(hosts, 1, "switch", model("llama-3.1-8b"), **options)
    assert (plan["tensor_parallel"], plan["pipeline_parallel"]) == expected
    assert "as asked" in plan["why"]


def test_tp_on_tcp_is_kept_and_called_slow() -> None:
    assert "slows a single stream" in plan_parallel(2, 1, "lan", model("llama-3.1-8b"), tensor_parallel=2)["why"]


def test_expert_parallelism_as_asked_or_as_needed() -> None:
    config = model("qwen3-30b-a3b-thinking-2507-fp8")
    needed = plan_parallel(4, 1, "switch", config)
    assert (needed["tensor_parallel"], needed["expert_parallel"]) == (4, True)
    assert "192" in needed["why"]
    asked = plan_parallel(4, 1, "switch", config, tensor_parallel=4, expert_parallel=True)
    assert (asked["tensor_parallel"], asked["expert_parallel"]) == (4, True)
    assert plan_parallel(2, 1, "direct", config, expert_parallel=True)["expert_parallel"] is True


BAD = [
    # TP=3 with 32 heads
    ("llama-3.1-8b", 3, {"tensor_parallel": 3}, "vllm_serve_tensor_parallel_size", "32 attention heads", "TP=1 PP=3"),
    # TP=4 for a block-FP8 MoE with intermediate 768: asked for by hand, with and without a word on experts
    (
        "qwen3-30b-a3b-thinking-2507-fp8",
        4,
        {"tensor_parallel": 4},
        "vllm_serve_tensor_parallel_size",
        "768/4 = 192",
        "set enable-expert-parallel: true in vllm_serve_args",
    ),
    (
        "qwen3-30b-a3b-thinking-2507-fp8",
        4,
        {"tensor_parallel": 4, "expert_parallel": False},
        "vllm_serve_tensor_parallel_size",
        "768/4 = 192",
        "enable-expert-parallel",
    ),
    # TP x PP is not the number of GPUs
    (
        "llama-3.1-8b",
        4,
        {"tensor_parallel": 2, "pipeline_parallel": 3},
        "vllm_serve_tensor_parallel_size x vllm_serve_pipeline_parallel_size",
        "4 GPUs (4 hosts with 1 each)",
        "must be 4",
    ),
    ("llama-3.1-8b", 3, {"tensor_parallel": 2}, "vllm_serve_tensor_parallel_size", "does not divide", "one of 1, 3"),
    ("llama-3.1-8b", 2, {"max_model_len": 200_000}, "vllm_serve_max_model_len", "131072", "at most 131072"),
    ("llama-3.1-8b", 2, {"expert_parallel": True}, "expert_parallel", "without experts", "Leave"),
    (
        "llama-3.1-8b",
        2,
        {"expert_parallel": True, "tensor_parallel": 2},
        "expert_parallel",
        "without experts",
        "Leave",
    ),
    ("llama-3.1-8b", 4, {"replicas": 2}, "replicas", "one serving group", "serving group of each replica"),
    ("llama-3.1-8b", 0, {}, "hosts", "below 1", "whole number"),
    ("llama-3.1-8b", [], {}, "hosts", "is empty", "group cluster"),
    ("tiny-qwen3", 8, {"pipeline_parallel": 8}, "pipeline_parallel", "6 layers", "at most 6"),
    ("llama-3.1-8b", ["a", "b"], {"gpus_per_host": [1, 2]}, "gpus_per_host", "differs", "same number"),
]


@pytest.mark.parametrize(("name", "hosts", "options", "variable", "problem", "fix"), BAD)
def test_bad_splits(name: str, hosts: Any, options: dict[str, Any], variable: str, problem: str, fix: str) -> None:
    with pytest.raises(SizingError) as caught:
        plan_parallel(hosts, topology="switch", config=model(name), **options)
    assert caught.value.variable == variable
    assert problem in str(caught.value)
    assert fix in caught.value.fix


def test_a_topology_that_is_none() -> None:
    with pytest.raises(SizingError, match="direct, ring, switch, line, lan"):
        plan_parallel(2, topology="star")


def test_without_a_config() -> None:
    assert plan_parallel(3, 1, "lan", None)["pipeline_parallel"] == 3
    with pytest.raises(SizingError, match="no model config to choose it by"):
        plan_parallel(2, 1, "direct", None)
    assert plan_parallel(2, 1, "direct", None, tensor_parallel=2)["tensor_parallel"] == 2


def test_more_hosts_than_layers_can_use() -> None:
    with pytest.raises(SizingError, match=r"more than the model's 6 layers"):
        plan_parallel(7, 1, "lan", model("tiny-qwen3"))


def test_linear_attention_and_mamba_heads_count_too() -> None:
    config = model("qwen3.5-397b-a17b-fp8")
    config["text_config"]["linear_num_key_heads"] = 18
    assert any("18 linear-attention key heads" in text for text in tensor_problems(config, 4))
    assert tensor_problems(model("nemotron-3-super-120b-a12b-nvfp4"), 3)


@given(st.integers(1, 9), st.sampled_from(["direct", "ring", "switch", "lan"]), st.sampled_from([1, 2, 4]))
def test_every_gpu_is_used_once(hosts: int, topology: str, gpus: int) -> None:
    plan = plan_parallel(hosts, gpus, topology, model("llama-3.1-8b"))
    assert plan["tensor_parallel"] * plan["pipeline_parallel"] == hosts * gpus == plan["world"]
    assert tensor_problems(model("llama-3.1-8b"), plan["tensor_parallel"]) == []


def test_hosts_by_name_or_number() -> None:
    config = model("llama-3.1-8b")
    assert plan_parallel(config=config, hosts=["a", "b"], topology="direct")["tensor_parallel"] == 2
    with pytest.raises(SizingError, match=r"vllm_serve_tensor_parallel_size=3"):
        plan_parallel(config=config, hosts=3, tensor_parallel=3)


def test_two_pairs_on_a_ring_of_four_may_be_asked_for_and_say_what_they_cost() -> None:
    plan = plan_parallel(4, 1, "ring", model("llama-3.1-8b"), tensor_parallel=2)
    assert (plan["tensor_parallel"], plan["pipeline_parallel"]) == (2, 2)
    assert "each pair reduces in 2 steps over a cable of its own" in plan["why"]


@pytest.mark.parametrize(("hosts", "tensor", "possible"), [(6, 2, "TP=6 PP=1 or TP=1 PP=6"), (8, 4, "TP=8 PP=1 or")])
def test_a_split_that_a_ring_cannot_carry_is_refused_with_those_that_it_can(
    hosts: int, tensor: int, possible: str
) -> None:
    with pytest.raises(SizingError, match=possible):
        plan_parallel(hosts, 1, "ring", model("llama-3.1-8b"), tensor_parallel=tensor)
    # the same hosts on a switch, or with the ranks of a layer inside each host, may
    assert plan_parallel(hosts, 1, "switch", model("llama-3.1-8b"), tensor_parallel=tensor)["tensor_parallel"] == tensor
    assert (
        plan_parallel(hosts, tensor, "ring", model("llama-3.1-8b"), tensor_parallel=tensor)["world"] == hosts * tensor
    )


@pytest.mark.parametrize("asked", [{}, {"tensor_parallel": 2}, {"max_model_len": 4096}], ids=str)
def test_a_config_that_nobody_can_read_is_refused_before_a_split(asked: dict[str, Any]) -> None:
    config = {**model("llama-3.1-8b"), "rope_scaling": {"type": "yarn", "factor": "x"}}
    with pytest.raises(SizingError, match="holds a value that nobody can reckon with"):
        plan_parallel(2, config=config, **asked)
