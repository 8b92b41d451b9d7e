# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adapters' buffers, and what an engine keeps in host memory: on unified memory it is the same memory."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import beside
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

from tests.unit.published_models import model

GIB = 2**30
SPARK: dict[str, Any] = {"memory_bytes": int(121.69 * GIB), "max_model_len": 32768}
LLAMA = model("llama-3.1-8b")


def adapters(name: str = "llama-3.1-8b", tensor: int = 1, stages: tuple[int, ...] = (), **given: Any) -> int:
    shape = read_shape(model(name))
    options = {option.replace("_", "-"): value for option, value in {"enable_lora": True, **given}.items()}
    return beside.adapters(options, shape, stages or (shape.num_layers,), tensor)


def test_adapters_have_buffers_for_every_matrix() -> None:
    # q, k, v, o, gate, up, down of 32 layers: rank x (in + out), 16 bits
    layer = (4096 + 4096) + 2 * (4096 + 1024) + (4096 + 4096) + 2 * (4096 + 14336) + (14336 + 4096)
    assert adapters() == 32 * 16 * layer * 2
    assert adapters(max_loras=4, max_lora_rank=64) == 16 * adapters()
    # what reads is whole on each rank, unless it is asked to divide as well
    halves = (4096 + 2048) + 2 * (4096 + 512) + (2048 + 4096) + 2 * (4096 + 7168) + (7168 + 4096)
    assert adapters(tensor=2) == 32 * 16 * halves * 2
    assert adapters(tensor=2, fully_sharded_loras=True) < adapters(tensor=2)
    # the fullest stage's
    assert adapters(stages=(12, 20)) == 20 * 16 * layer * 2
    assert beside.adapters({"max-loras": 4}, read_shape(LLAMA), (32,), 1) == 0


def test_adapters_of_experts_are_large() -> None:
    assert adapters("qwen3.6-35b-a3b") > 10 * adapters()


def test_the_plan_leaves_the_adapters_room() -> None:
    plain = plan(LLAMA, **SPARK)
    given = {"enable-lora": True, "max-loras": 8, "max-lora-rank": 64}
    found = plan(LLAMA, beside=given, **SPARK)
    size = 8 * 4 * adapters()
    assert found["overhead_parts"] == {**plain["overhead_parts"], "adapters": size}
    assert plain["ranks"]["kv_cache_bytes"][0] - found["ranks"]["kv_cache_bytes"][0] == size


@pytest.mark.parametrize(
    ("name", "given", "parts", "verdict"),
    [
        ("llama-3.1-8b", {}, {}, "fits"),
        ("llama-3.1-8b", {"kv-offloading-size": 8}, {"KV offloading": 8}, "fits"),
        ("llama-3.1-8b", {"kv-offloading-size": 16}, {"KV offloading": 16}, "tight"),
        ("llama-3.1-8b", {"kv-offloading-size": "32"}, {"KV offloading": 32}, "does_not_fit"),
        ("llama-3.1-8b", {"kv-cache-config.host_cache_size": 8 * GIB}, {"host cache (host_cache_size)": 8}, "fits"),
        (
            "llama-3.1-8b",
            {"kv-cache-config.host_cache_size": 32 * GIB},
            {"host cache (host_cache_size)": 32},
            "does_not_fit",
        ),
        ("qwen3.6-35b-a3b", {"mm-processor-cache-gb": 4}, {"processed images": 8}, "fits"),
        ("qwen3.6-35b-a3b", {}, {"processed images": 8}, "fits"),
        ("qwen3.6-35b-a3b", {"mm-processor-cache-gb": 10}, {"processed images": 20}, "does_not_fit"),
        ("qwen3.6-35b-a3b", {"mm-processor-cache-gb": 0}, {}, "fits"),
    ],
)
def test_host_memory_is_what_the_share_leaves(
    name: str, given: dict[str, Any], parts: dict[str, int], verdict: str
) -> None:
    found = plan(model(name), beside=given, weights_bytes=16 * GIB, **SPARK)
    assert found["host_memory_parts"] == {cause: size * GIB for cause, size in parts.items()}
    assert found["verdict"] == verdict
    told = [reason for reason in found["reasons"] if "in host memory, which is the same memory" in reason]
    assert len(told) == (verdict != "fits")
    if verdict == "does_not_fit":
        # a smaller share leaves more
        smaller = plan(model(name), beside=given, weights_bytes=16 * GIB, gpu_memory_utilization=0.5, **SPARK)
        assert smaller["verdict"] == "fits"


@pytest.mark.parametrize(
    ("given", "times", "gb"),
    [({}, 2, 0), ({"hicache-ratio": "0.5"}, 0.5, 0), ({"hicache-size": 5, "hicache-ratio": 3}, 0, 5)],
)
def test_a_hierarchical_cache_is_a_multiple_of_the_cache_or_a_size(
    given: dict[str, Any], times: float, gb: int
) -> None:
    found = plan(LLAMA, tensor_parallel=2, beside={"enable-hierarchical-cache": True, **given}, **SPARK)
    cache = found["ranks"]["kv_cache_bytes"][0]
    assert found["host_memory_parts"] == {
        "hierarchical cache (hicache-ratio, hicache-size)": int(cache * times) + gb * 10**9
    }
    assert found["verdict"] == ("fits" if gb else "does_not_fit")
    # without its switch it is not made
    assert plan(LLAMA, beside=given, **SPARK)["host_memory_parts"] == {}


def test_the_ranks_share_what_is_offloaded_and_adapters_are_kept_whole() -> None:
    found = plan(LLAMA, tensor_parallel=2, beside={"kv-offloading-size": 8}, **SPARK)
    assert found["host_memory_parts"] == {"KV offloading": 4 * GIB}
    found = plan(LLAMA, tensor_parallel=2, beside={"enable-lora": True, "max-cpu-loras": 10}, **SPARK)
    assert found["host_memory_parts"] == {"adapters kept": 10 * adapters()}


def test_what_is_not_known_or_frees_nothing_is_named() -> None:
    found = plan(LLAMA, beside={"cpu-offload-gb": 10, "engram-config": {"cpu_offload": True}}, **SPARK)
    assert found["verdict"] == "fits"
    assert "frees nothing: leave it out" in found["reasons"][-2]
    assert found["reasons"][-1].startswith("engram-config keeps the n-gram tables in host memory")
    assert (
        plan(LLAMA, beside={"engram-config": {"cpu_offload": False}}, **SPARK)["reasons"]
        == plan(LLAMA, **SPARK)["reasons"]
    )


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("kv-offloading-size", "is no number of GiB"),
        ("cpu-offload-gb", "is no number of GiB"),
        ("hicache-ratio", "is no number"),
        ("hicache-size", "is not an integer|is below 0"),
        ("kv-cache-config.host_cache_size", "is not an integer|is below 0"),
    ],
)
@pytest.mark.parametrize("value", ["much", -1, float("nan")])
def test_what_is_no_size_is_refused(name: str, problem: str, value: Any) -> None:
    with pytest.raises(SizingError, match=f"{name}=.* ({problem})"):
        plan(LLAMA, beside={"enable-hierarchical-cache": True, name: value}, **SPARK)


HYBRID = "qwen3.6-35b-a3b"


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("llama-3.1-8b", {"decode-context-parallel-size": 2}),
        (HYBRID, {"mamba-cache-mode": "all"}),
        ("llama-3.1-8b", {"num-gpu-blocks-override": 4096}),
    ],
)
@pytest.mark.parametrize("length", [8192, 10**9])
def test_a_cache_of_no_known_size_is_neither_planned_nor_refused(name: str, given: dict[str, Any], length: int) -> None:
    config, long = model(name), {"max_position_embeddings": 10**9}
    config |= {"text_config": {**config["text_config"], **long}} if "text_config" in config else long
    asked = {**SPARK, "max_model_len": length, "tensor_parallel": 2}
    assert plan(config, **asked)["verdict"] == ("fits" if length == 8192 else "does_not_fit")
    found = plan(config, beside=given, **asked)
    assert (found["verdict"], found["max_tokens"]) == ("unknown", None)
    assert next(iter(given)) in found["unknown"][0]
    assert found["weights_bytes_per_rank"] == plan(config, **asked)["weights_bytes_per_rank"]


def test_what_changes_no_cache_is_planned_as_ever() -> None:
    given = {"decode-context-parallel-size": 1, "mamba-cache-mode": "all", "num-gpu-blocks-override": None}
    assert plan(LLAMA, beside=given, **SPARK) == plan(LLAMA, **SPARK)
    assert plan(model(HYBRID), beside={"mamba-cache-mode": "align"}, **SPARK) == plan(model(HYBRID), **SPARK)
