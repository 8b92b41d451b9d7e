# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role's variables make of preflight's plan, evaluated here as a run would."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import memory
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import plan_serving

ROLE = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists()) / (
    "roles/vllm_serve"
)
MEMORY = 121 * 2**30


def variables(**given: Any) -> Templar:
    """The role's variables on the head of two hosts with two GPUs each."""
    cluster: dict[str, Any] = {
        **{"head": "a", "hosts": ["a", "b"], "workers": ["b"], "world": 4, "topology": "direct"},
        **{"gpus": {"a": 2, "b": 2}, "kinds": {"a": "generic", "b": "generic"}, "head_address": "10.0.0.1"},
    }
    nodes = {host: {"mem_total_bytes": MEMORY} for host in "ab"}
    first = {"vllm_serve_tensor_parallel_size": 4, "engine_vllm_version": "0.33.0", **given}
    cluster["serving"] = plan_serving(first, cluster, nodes, ".")
    loader = DataLoader()
    values: dict[str, Any] = {}
    for part in ("defaults", "vars"):
        values.update(loader.load(trust_as_template((ROLE / part / "main.yml").read_text())) or {})
    values.update(
        inventory_hostname="a",
        sparkthor_cluster=cluster,
        sparkthor_fabric={},
        hostvars={host: {"ansible_facts": {"sparkthor_node": nodes[host]}} for host in "ab"},
        **first,
    )
    return Templar(loader=loader, variables=values)


def value(name: str, **given: Any) -> Any:
    return variables(**given).template(trust_as_template(f"{{{{ {name} }}}}"))


def test_the_model_is_named_as_whoever_fetches_it_knows_it() -> None:
    hub = "Qwen/Qwen3-8B"
    assert value("__vllm_serve_model_path", vllm_serve_model=hub) == "/var/lib/sparkthor/models/Qwen3-8B"
    assert value("__vllm_serve_model_path", vllm_serve_model=hub, vllm_serve_from_hub=True) == hub
    assert value("__vllm_serve_names", vllm_serve_model=hub, vllm_serve_from_hub=True) == ["Qwen3-8B"]
    assert value("__vllm_serve_model_elsewhere", vllm_serve_model=hub, vllm_serve_from_hub=True) is False


def test_a_model_outside_of_the_store_is_planned_by_all_that_decides_sizes() -> None:
    args = {
        "kv-cache-dtype": "fp8",
        "kv-cache-memory-bytes": "8G",
        "max-num-seqs": 8,
        "max-num-batched-tokens": "16k",
        "enforce-eager": True,
        "hf-overrides": {"max_position_embeddings": 65536},
    }
    sizing = value("__vllm_serve_sizing", vllm_serve_model="/srv/mine", vllm_serve_args=args)
    assert sizing == {
        **{"model_path": "/srv/mine", "tensor_parallel": 4, "pipeline_parallel": 1, "max_model_len": None},
        **{"memory_bytes": [MEMORY, MEMORY], "hosts": ["a", "b"], "gpu_memory_utilization": 0.85},
        **{"kv_cache_dtype": "fp8", "kv_cache_memory_bytes": 8 * 2**30, "max_num_seqs": 8},
        **{"max_num_batched_tokens": 16_000, "enforce_eager": True, "language_model_only": False},
        **{"mamba_ssm_cache_dtype": "auto", "hf_overrides": {"max_position_embeddings": 65536}},
    }
    assert set(sizing) - {"model_path"} <= set(inspect.signature(memory.plan).parameters)


def test_the_check_uses_it() -> None:
    tasks = yaml.safe_load((ROLE / "tasks" / "check.yml").read_text())
    [task] = [task for task in tasks if "sparkthor.cluster.memory_plan" in task]
    assert task["sparkthor.cluster.memory_plan"] == "{{ __vllm_serve_sizing }}"


def test_the_mark_of_degraded_mode_goes_where_it_is_switched_off() -> None:
    assert "/run/sparkthor/degraded.json" in value("__vllm_serve_absent", vllm_serve_model="/srv/mine")
