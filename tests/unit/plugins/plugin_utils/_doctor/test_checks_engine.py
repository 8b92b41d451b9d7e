# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks of the engine's arguments."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import Case, Serve
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.checks_engine import (
    answers_wrong,
    engine_hung,
    model_absent,
    option_gone,
    utilization_high,
)

from tests.unit.plugins.plugin_utils._doctor.sound_cluster import ev, found, process, world


def token_in_process(case: Case) -> None:
    argv = ("/opt/venv/bin/python", "/opt/venv/bin/vllm", "serve", "m", "--host", "0.0.0.0")
    ev(case, "a")["processes"].append(process("vllm", *argv, api_key="empty"))


def test_odd_arguments_trip_nothing() -> None:
    case = world()
    odd = {"gpu-memory-utilization": "much", "tensor-parallel-size": [2], "reasoning-parser": None, "model": 7}
    case.serves = [Serve("a", "x", copy.deepcopy(odd), "0.x")]
    assert found(case) == []


FP4 = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}


@pytest.mark.parametrize(
    ("model", "options", "other"),
    [
        ({"num_experts": 8, **FP4}, {}, "{moe-backend: marlin} instead of auto"),
        ({"num_experts": 8, **FP4}, {"moe-backend": "marlin"}, "{moe-backend: flashinfer_cutlass} instead of marlin"),
        (FP4, {}, "{linear-backend: marlin} instead of auto"),
        ({}, {}, ""),
        (None, {}, ""),
    ],
)
def test_nonsense_names_other_kernels(model: dict[str, Any] | None, options: dict[str, Any], other: str) -> None:
    case = world()
    told = {"asked": 4, "right": 1, "wrong": "'What is 17 + 25?': '!!!'"}
    ev(case, "a").setdefault("files", {})["state.json"] = json.dumps({"state": "serving", "answers": told})
    shape = {"model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2}
    config = None if model is None else {**shape, "intermediate_size": 64, "vocab_size": 64, **model}
    ev(case, "a")["served_model"] = {"path": "/m", "present": True, "config": config}
    case.serves = [Serve("a", "x", {"model": "/m", **options}, "0.32.0")]
    assert found(case) == [("answers-wrong", ("a",))]
    (hit,) = answers_wrong(case)
    assert "1 of 4 simple tasks rightly ('What is 17" in hit.evidence[0]
    assert hit.fix.startswith(f"vllm_serve_args: {other}") if other else hit.fix == ""


def test_heads_that_the_image_pads_are_no_finding() -> None:
    case = world()
    config = {"model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 32}
    config |= {"num_key_value_heads": 8, "intermediate_size": 96, "vocab_size": 96}
    ev(case, "a")["served_model"] = {"path": "/m", "present": True, "config": config}
    case.serves = [Serve("a", "x", {"model": "/m", "tensor-parallel-size": 3, "nnodes": 3}, "0.32.0")]
    assert found(case) == [("heads-indivisible", ("a",))]
    case.acknowledged = {"b": ["padded-heads"]}
    assert found(case) == [("heads-indivisible", ("a",))], "another host's word is not this one's"
    case.acknowledged = {"a": ["trust-remote-code", "padded-heads"]}
    assert found(case) == []


def test_arguments_of_a_group_beside_are_judged_under_its_name() -> None:
    case = world()
    embed = "/etc/sparkthor/beside/embed/vllm.yaml"
    case.serves = [
        Serve("a", "/etc/sparkthor/vllm.yaml", {"model": "/m/large", "moe-backend": "marlin"}, "0.32.0"),
        Serve("a", embed, {"gpu-memory-utilization": 0.97, "swap-space": 4, "model": "/m/small"}, "0.32.0", "embed"),
    ]
    ev(case, "a")["served_model"] = {"path": "/m/large", "present": True, "config": None}
    ev(case, "b")["served_model"] = {"path": "/m/large", "present": True, "config": None}
    model = {"name": "n", "path": "/m/other", "revision": "", "broken": [], "broken_count": 0, "weights": 1}
    ev(case, "a")["models"] = [model]
    (high,) = utilization_high(case)
    assert (high.evidence, high.where) == (["group embed of serving_beside: gpu-memory-utilization 0.97"], embed)
    (gone,) = option_gone(case)
    assert gone.evidence == ["group embed of serving_beside: swap-space: 4"]
    assert gone.fix.startswith("swap-space: ")
    # host b has no such group and needs no such model
    assert [(hit.host, hit.evidence) for hit in model_absent(case)] == [
        ("a", ["group embed of serving_beside: /m/small is not there"])
    ]
    ev(case, "a")["models"].append({**model, "path": "/m/small"})
    assert list(model_absent(case)) == []


def test_nonsense_of_a_group_beside_is_said_of_that_group() -> None:
    case = world()
    told = {"asked": 4, "right": 1, "wrong": "'What is 17 + 25?': '!!!'"}
    ev(case, "a")["files"]["beside/embed/state.json"] = json.dumps({"state": "serving", "answers": told})
    (hit,) = answers_wrong(case)
    assert hit.evidence[0].startswith("group embed of serving_beside: ")
    assert (hit.where, hit.fix) == ("sparkthor-watchdog-embed.service", "")


def test_a_model_that_answers_is_no_finding() -> None:
    case = world()
    for told in ({"asked": 4, "right": 3, "wrong": "x"}, {"asked": 0, "right": 0, "wrong": ""}, {}):
        ev(case, "a").setdefault("files", {})["state.json"] = json.dumps({"state": "serving", "answers": told})
        assert found(case) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (token_in_process, [("api-key-empty", ("a",))]),
    ],
)
def test_what_a_lab_cannot_lay(change: Callable[[Case], None], expected: list[Any]) -> None:
    case = world()
    change(case)
    assert found(case) == expected


@pytest.mark.parametrize(("ago", "expected"), [(3600, [("engine-hung", ("a",))]), (30 * 86400, [])])
def test_where_the_ranks_of_a_hung_engine_were(ago: float, expected: list[Any]) -> None:
    case = world()
    ev(case, "a")["hangs"] = [
        {
            "taken": ev(case, "a")["ended"] - ago,
            "reason": "sparkthor-vllm.service: no token for 2 min",
            "processes": [
                {
                    "title": "VLLM::Worker_TP0",
                    "state": "S",
                    "waits_in": ["futex_wait"],
                    "stack": 'Thread 7 (idle): "MainThread"\n    all_reduce (pynccl.py:149)\n',
                },
                {"title": "VLLM::EngineCore", "state": "D", "waits_in": ["nvidia_ioctl"], "stack": ""},
            ],
            "nccl": "Errors\n  rank 1 does not answer",
            "gpus": [{"sm_mhz": 650.0, "watts": 14.0, "utilization": 96.0, "celsius": None, "slowed": []}],
            "late": [],
        }
    ]
    assert found(case) == expected
    if expected:
        (hit,) = engine_hung(case)
        assert hit.evidence[1:4] == [
            "VLLM::Worker_TP0 (S) was in all_reduce (pynccl.py:149)",
            "VLLM::EngineCore (D) was in nvidia_ioctl",
            "GPU: 650 MHz, 14 W, 96 %",
        ]
