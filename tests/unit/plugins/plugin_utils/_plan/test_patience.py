# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import memory
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.patience import WORKING, allowed
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import patience

SPARKS = {"a": "spark", "b": "spark", "c": "spark"}
LLAMA_405B = {
    **{"model_type": "llama", "hidden_size": 16384, "num_hidden_layers": 126, "num_attention_heads": 128},
    **{"num_key_value_heads": 8, "intermediate_size": 53248, "vocab_size": 128256, "torch_dtype": "bfloat16"},
    "max_position_embeddings": 131072,
}


def planned(batched: int = 4096, length: int = 8192, **more: Any) -> dict[str, Any]:
    sizes = memory.plan(LLAMA_405B, pipeline_parallel=3, max_model_len=length, max_num_batched_tokens=batched)
    return {"memory": sizes, "max_model_len": length, **more}


def small(seconds: float = 1.0) -> dict[str, Any]:
    flops = seconds * patience.GPU_FLOPS / 1000
    return {"memory": {"prefill_flops_per_token": flops, "max_num_batched_tokens": 1000}}


def test_a_405b_chunk_of_4096_tokens_over_three_sparks_takes_a_minute_by_owners_reports() -> None:
    assert memory.plan(LLAMA_405B, max_model_len=1)["prefill_flops_per_token"] == pytest.approx(2 * 405e9, rel=0.02)
    assert 60 <= patience.step_seconds(planned()) <= 100
    found = patience.plan_patience({}, planned(), SPARKS)
    assert 240 <= found["step_patience"] <= 300
    assert 160 <= found["wedge_bound"] <= 200
    assert found["working_power"] == 30


def test_what_makes_a_step_longer_and_shorter() -> None:
    base = patience.step_seconds(planned())
    assert patience.step_seconds(planned(batched=65536)) == pytest.approx(16 * base)
    assert patience.step_seconds(planned(tensor_parallel=2)) == pytest.approx(base / 2)
    # at the end of a long context attention costs more than the parameters do
    assert patience.step_seconds(planned(length=131072)) > 2 * base
    # a prompt that is not cut into chunks is one step
    whole = planned(length=32768)
    assert patience.step_seconds({**whole, "args": {"enable-chunked-prefill": False}}) == pytest.approx(
        8 * patience.step_seconds(whole)
    )


def test_small_and_unknown_models() -> None:
    assert patience.plan_patience({}, small(), {"a": "thor"}) == {
        "step_patience": 110,
        "wedge_bound": 60,
        "working_power": 0,
    }
    assert patience.plan_patience({}, {}, {}) == {"step_patience": 180, "wedge_bound": 120, "working_power": 0}


def test_a_mixed_cluster_has_no_working_power_for_all() -> None:
    assert patience.plan_patience({}, small(), {"a": "spark", "b": "thor"})["working_power"] == 0


def test_own_values_win() -> None:
    own = {"vllm_serve_watchdog_step_patience": "400", "vllm_serve_watchdog_wedge_bound": 90}
    found = patience.plan_patience(own, small(), SPARKS)
    assert (found["step_patience"], found["wedge_bound"]) == (400, 90)
    # the bound never exceeds the patience, unless somebody asks for that
    found = patience.plan_patience({"vllm_serve_watchdog_step_patience": 45}, small(), SPARKS)
    assert (found["step_patience"], found["wedge_bound"]) == (45, 45)


@pytest.mark.parametrize("step_patience", [110, 180, 260, 1800])
def test_vllm_gives_up_no_step_that_the_watchdog_still_waits_for(step_patience: float) -> None:
    longest = allowed(WORKING, step_patience, 60)
    assert max(900, longest) <= patience.step_timeout(step_patience) <= max(900, longest + 1)


@pytest.mark.parametrize(
    ("variable", "value", "plan", "words"),
    [
        ("step_patience", 20, small(), "planned at 1 s, so a healthy engine would be restarted. Give 30, or auto"),
        ("step_patience", 100, planned(), "so a healthy engine would be restarted. Give 1"),
        ("step_patience", 3600, small(), "an engine that hangs would go unnoticed. Give 110, or auto"),
        ("step_patience", "soon", small(), "'soon' is not a number of seconds"),
        ("step_patience", "nan", small(), "'nan' is not a number of seconds"),
        ("wedge_bound", 10, small(), "Give 20, or auto"),
        ("wedge_bound", 60, planned(), "so a healthy engine would be restarted"),
        ("wedge_bound", 500, small(), "Give at most 110, or auto"),
        ("interval", 0, small(), "interval=0: the probes would keep the engine busy. Give 1 to 120"),
        ("interval", 3600, small(), "faults would go unnoticed. Give 1 to 120"),
        ("deadline", 1, small(), "a healthy engine would be restarted. Give 2 to 600"),
        ("first_deadline", 5, small(), "Give 10 to 3600"),
        ("failures", 0, small(), "no failure would be needed. Give 1 to 10"),
        ("failures", True, small(), "Give 1 to 10"),
        ("load_stall", 10, small(), "a load would be restarted between two lines"),
        ("backoff_max", 1, small(), "restarts would follow each other"),
    ],
)
def test_blind_and_trigger_happy_values_are_refused(variable: str, value: Any, plan: Any, words: str) -> None:
    name = f"vllm_serve_watchdog_{variable}"
    with pytest.raises(patience.PatienceError) as refused:
        patience.plan_patience({name: value}, plan, SPARKS)
    assert str(refused.value).startswith(name)
    assert words in str(refused.value)
