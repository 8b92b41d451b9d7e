# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arguments and environment as the memory plan takes them."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, as_fraction
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import sizing_options
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_plan import sizing_of_arguments


def test_what_no_argument_names_is_left_to_the_plan() -> None:
    assert sizing_of_arguments({}, {}) == {
        **{"dtype": "auto", "kv_cache_dtype": "auto", "gpu_memory_utilization": as_fraction("share", 0.85)},
        **{"enforce_eager": False, "language_model_only": False, "mamba_ssm_cache_dtype": "auto"},
    }


def test_what_is_named_is_told() -> None:
    args = {"max-num-batched-tokens": "16k", "max-num-seqs": 8, "kv-cache-memory-bytes": "2G", "performance-mode": "x"}
    args |= {"enable-chunked-prefill": False, "enable-prefix-caching": False, "load-format": "auto", "seed": 1}
    found = sizing_of_arguments(args, {"VLLM_PP_LAYER_PARTITION": "1,2", "OMP_NUM_THREADS": 4})
    assert found == {
        **sizing_of_arguments({}, {}),
        **{"max_num_batched_tokens": 16_000, "max_num_seqs": 8, "kv_cache_memory_bytes": 2 * 2**30},
        **{"enable_chunked_prefill": False, "enable_prefix_caching": False, "load_format": "auto"},
        **{"performance_mode": "x", "layer_partition": "1,2"},
    }
    with pytest.raises(SizingError, match="max-num-seqs"):
        sizing_of_arguments({"max-num-seqs": "many"}, {})


def test_what_takes_memory_beside_the_engine_is_told() -> None:
    args = {"enable-lora": True, "max-loras": 4, "kv-offloading-size": 8, "engram-config": {"cpu_offload": True}}
    assert sizing_of_arguments({**args, "max-logprobs": 5}, {})["beside"] == args


def test_of_the_engine_its_version_and_the_platform_of_the_head() -> None:
    kinds = {"a": "thor", "b": "spark"}
    assert sizing_options.of_engine(["a", "b"], kinds, "0.33.0") == {"kind": "thor", "vllm_version": "0.33.0"}
    assert sizing_options.of_engine(["b", "a"], kinds, "") == {"kind": "spark"}
    assert sizing_options.of_engine(["c"], None, "") == {"kind": "spark"}
