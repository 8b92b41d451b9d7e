#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: memory_plan
short_description: Whether a model on this host's disk fits a cluster
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Reads C(config.json) and the headers of the safetensors files of a local model folder, and computes weights, KV
    cache and overhead of each rank, as the P(sparkthor.cluster.memory_plan#filter) filter does.
  - Of a model in GGUF it reads the header, and computes what llama.cpp takes of each host.
  - Only headers are read, so a folder of 400 GB takes a second. If files of the model are missing, the error names
    them.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
  - sparkthor.cluster.memory
options:
  model_path:
    description: Folder of the model on this host, or a file in GGUF (of several parts the first one).
    type: path
    required: true
  prompt_cache_mib:
    description:
      - Of a model in GGUF, the MiB of prompts that llama.cpp keeps in the head's memory (its C(--cache-ram)).
      - If not given, 8192 on one host and 0 on several, where llama.cpp cannot keep any.
    type: int
  memory_bytes:
    description:
      - C(MemTotal) of the hosts in bytes, for each rank, or for each of O(hosts), whose ranks share it. A single entry
        counts for all.
      - This host's own if not given.
    type: list
    elements: int
  memory_available_bytes:
    description:
      - C(MemAvailable) of the hosts in bytes, as O(memory_bytes).
      - Not checked if not given.
    type: list
    elements: int
seealso:
  - plugin: sparkthor.cluster.memory_plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Plan the model that lies on this host over four Sparks
  sparkthor.cluster.memory_plan:
    model_path: /var/lib/sparkthor/models/Qwen--Qwen3.5-397B-A17B-FP8
    tensor_parallel: 4
    max_model_len: 131072
  register: plan

- name: Stop with the numbers if it does not fit
  ansible.builtin.assert:
    that: plan.plan.verdict != 'does_not_fit'
    fail_msg: "{{ (plan.plan.reasons + plan.plan.suggestions) | join(' ') }}"
"""

RETURN = r"""
plan:
  description: The plan, as the filter of the same name returns it.
  returned: success
  type: dict
  sample:
    verdict: fits
    kv_bytes_per_token: 30720
    kv_bytes_per_token_per_rank: 15360
    weights_bytes_per_rank: 101737037824
    max_tokens: 433688
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import gguf, gguf_memory, memory
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.checkpoint import (
    index_remark,
    read_model_folder,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError


def mem_total_bytes(path: str = "/proc/meminfo") -> int:
    """MemTotal of this host: on unified memory the GPU's own answer is not usable."""
    with open(path, encoding="ascii") as stream:
        for line in stream:
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    raise SizingError("memory_bytes", None, f"cannot be read from {path}", "Give memory_bytes.")


def make_plan(params: dict[str, Any]) -> dict[str, Any]:
    options = dict(params)
    path = options.pop("model_path")
    if not options["memory_bytes"]:
        options["memory_bytes"] = mem_total_bytes()
    if file := gguf.model_file(path):
        return gguf_memory.plan(gguf.read_gguf(file), **options)
    options.pop("prompt_cache_mib")
    config, tensors = read_model_folder(path)
    if not options["memory_available_bytes"]:
        options["memory_available_bytes"] = None
    return memory.plan(config, tensors=tensors, **options)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "model_path": {"type": "path", "required": True},
            "prompt_cache_mib": {"type": "int"},
            "tensor_parallel": {"type": "int", "default": 1},
            "pipeline_parallel": {"type": "int", "default": 1},
            "dtype": {"type": "str", "default": "auto"},
            "kv_cache_dtype": {"type": "str", "default": "auto"},
            "max_model_len": {"type": "raw"},
            "allow_long_max_model_len": {"type": "bool", "default": False},
            "memory_bytes": {"type": "list", "elements": "int"},
            "memory_available_bytes": {"type": "list", "elements": "int"},
            "gpu_memory_utilization": {"type": "float", "default": 0.85},
            "max_num_seqs": {"type": "int"},
            "max_num_batched_tokens": {"type": "int", "no_log": False},
            "enable_chunked_prefill": {"type": "bool", "default": True},
            "performance_mode": {"type": "str"},
            "kind": {"type": "str", "default": "spark", "choices": ["spark", "thor", "generic"]},
            "kv_cache_memory_bytes": {"type": "raw"},
            "enforce_eager": {"type": "bool", "default": False},
            "language_model_only": {"type": "bool", "default": False},
            "mamba_ssm_cache_dtype": {"type": "str", "default": "auto"},
            "layer_partition": {"type": "raw"},
            "hf_overrides": {"type": "dict"},
            "speculative_config": {"type": "raw"},
            "draft_config": {"type": "dict"},
            "draft_weights_bytes": {"type": "int"},
            "enable_expert_parallel": {"type": "bool", "default": False},
            "enable_prefix_caching": {"type": "bool", "default": True},
            "load_format": {"type": "str", "default": "auto"},
            "padded_heads": {"type": "bool", "default": False},
            "image_of_others": {"type": "bool", "default": False},
            "beside": {"type": "dict"},
            "vllm_version": {"type": "str"},
            "hosts": {"type": "list", "elements": "str"},
        },
        supports_check_mode=True,
    )
    try:
        plan = make_plan(module.params)
        remark = index_remark(module.params["model_path"]) if "arguments" not in plan else ""
    except SizingError as error:
        module.fail_json(msg=str(error), variable=error.variable, fix=error.fix, mend=error.fix)
    except OSError as error:
        module.fail_json(msg=f"model_path={module.params['model_path']!r}: {error}")
    if remark:
        module.warn(remark)
    module.exit_json(changed=False, plan=plan)


if __name__ == "__main__":
    main()
