# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    # How a model is split and run, as far as its memory depends on it.
    DOCUMENTATION = r"""
options:
  tensor_parallel:
    description: Ranks that share each layer.
    type: int
    default: 1
  pipeline_parallel:
    description: Stages that share the layers.
    type: int
    default: 1
  dtype:
    description:
      - The value of C(--dtype).
      - V(auto) is the model's own, but V(bfloat16) for a model in 32 bits.
    type: str
    default: auto
  kv_cache_dtype:
    description:
      - The value of C(--kv-cache-dtype).
      - V(auto) is the dtype that the checkpoint asks for, else the model's own.
    type: str
    default: auto
  max_model_len:
    description:
      - Context length in tokens; the model's own limit if not given.
      - V(auto) or V(-1) is the longest that fits.
    type: raw
  allow_long_max_model_len:
    description: O(max_model_len) may be longer than the model's own limit, where the engine's environment allows it.
    type: bool
    default: false
  gpu_memory_utilization:
    description: The share of C(MemTotal) that the engine may take.
    type: float
    default: 0.85
  max_num_seqs:
    description:
      - Sequences that run at once (C(--max-num-seqs)).
      - If not given, the verdict asks for one, and graphs are planned as for the engine's default on this O(kind).
    type: int
  max_num_batched_tokens:
    description:
      - Tokens of one step, which decide the size of activations.
      - If not given, the engine's default on this O(kind), 2048 on a Spark and 8192 on a Thor.
    type: int
  enable_chunked_prefill:
    description: A prompt may be read in several steps. If not, one step takes at least O(max_model_len).
    type: bool
    default: true
  performance_mode:
    description: The value of C(--performance-mode); V(throughput) doubles what is not given of a step.
    type: str
  kind:
    description: The platform that serves, by which the engine chooses O(max_num_batched_tokens) and O(max_num_seqs).
    type: str
    default: spark
    choices: [spark, thor, generic]
  kv_cache_memory_bytes:
    description:
      - A pinned KV cache (C(--kv-cache-memory-bytes)) instead of O(gpu_memory_utilization).
      - A number of bytes, or as the engine takes it, such as V(8G).
    type: raw
  enforce_eager:
    description: No captured graphs, so less overhead.
    type: bool
    default: false
  language_model_only:
    description: The vision tower is not loaded.
    type: bool
    default: false
  mamba_ssm_cache_dtype:
    description: The dtype of recurrent states; V(auto) takes the model's.
    type: str
    default: auto
  layer_partition:
    description: Layers of each stage, where the engine is told them, instead of its rule.
    type: raw
  hf_overrides:
    description: Changes to the model's C(config.json) (C(--hf-overrides)), such as a longer context.
    type: dict
  speculative_config:
    description:
      - The value of C(--speculative-config), a mapping or its JSON.
      - Layers of multi-token prediction are those of the model, as is DeepSeek V4's DSpark. Without O(draft_config) a
        drafter of its own is named and not counted.
    type: raw
  draft_config:
    description: The parsed C(config.json) of the model that drafts.
    type: dict
  draft_weights_bytes:
    description: Size of the weights of the model that drafts; estimated from O(draft_config) if not given.
    type: int
  enable_expert_parallel:
    description: Whole experts on each rank.
    type: bool
    default: false
  enable_prefix_caching:
    description: Prefix caching, which keeps a copy of each state of a hybrid model.
    type: bool
    default: true
  load_format:
    description: The value of C(--load-format); V(instanttensor) stages weights in memory that stays taken.
    type: str
    default: auto
  padded_heads:
    description:
      - The engine pads heads to a multiple of O(tensor_parallel), as some images do and engines themselves do not.
      - Each rank is then counted with the heads of the fullest one.
    type: bool
    default: false
  image_of_others:
    description:
      - The engine's image is neither its project's nor NVIDIA's, and may store a cache in ways of its own.
      - A O(kv_cache_dtype) of no known size then leaves the verdict V(unknown), instead of an error.
    type: bool
    default: false
  beside:
    description:
      - Arguments of the engine, by their names, that take memory beside weights and cache.
      - These are C(enable-lora) with C(max-loras), C(max-lora-rank), C(max-cpu-loras) and C(fully-sharded-loras),
        C(kv-offloading-size), C(cpu-offload-gb), C(mm-processor-cache-gb) and C(engram-config).
      - With C(decode-context-parallel-size), a C(mamba-cache-mode) of V(all) and C(num-gpu-blocks-override) the size of
        the cache is not known, and the verdict at best V(unknown).
      - Of SGLang they are C(enable-hierarchical-cache) with C(hicache-ratio) or C(hicache-size), and C(cpu-offload-gb),
        of TensorRT-LLM C(kv-cache-config.host_cache_size), of llama.cpp C(swa-full) and C(ctx-checkpoints).
    type: dict
  vllm_version:
    description: The engine's release, where its way to count differs; the newest if not given.
    type: str
  hosts:
    description: Names of the hosts in the order of ranks, for messages and for memory that is given by host.
    type: list
    elements: str
"""
