# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: memory_plan
short_description: Whether a model fits a cluster, and with how many tokens of context
version_added: 0.1.0
author: sparkthor.cluster contributors (@sparkthor)
description:
  - Takes the parsed C(config.json) of a model and a split, and computes weights, KV cache and overhead of each rank.
  - Knows grouped-query and latent attention, hybrid models (linear attention, Mamba), sliding windows, nested
    C(text_config), quantized checkpoints and uneven pipeline stages.
  - A field that is missing or a split that the engine would refuse is an error that names the variable, the value and
    the fix. A model that does not fit is a verdict, not an error.
positional: _input
extends_documentation_fragment:
  - sparkthor.cluster.memory
options:
  _input:
    description: The model's parsed C(config.json), or the same fields from a recipe.
    type: dict
    required: true
  memory_bytes:
    description:
      - C(MemTotal) of the hosts in bytes, one number or a list by rank or by host.
      - Without it there is no verdict.
    type: raw
  memory_available_bytes:
    description: C(MemAvailable) of the hosts in bytes, one number or a list by rank or by host.
    type: raw
  weights_bytes:
    description: Size of the whole checkpoint in bytes; estimated from the config if not given.
    type: int
  overhead_bytes:
    description: Memory of each rank beside weights and cache; estimated if not given.
    type: int
  memory_bandwidth:
    description: Bytes per second that one GPU reads.
    type: float
    default: 273000000000.0
  active_bytes:
    description: Bytes of weights that each token reads; estimated from the config if not given.
    type: int
  tensors:
    description: Tensor names and bytes of the checkpoint, as the M(sparkthor.cluster.memory_plan) module reads them.
    type: dict
seealso:
  - module: sparkthor.cluster.memory_plan
"""

EXAMPLES = r"""
- name: Show what a 405B model with 4-bit weights needs on three Sparks
  ansible.builtin.debug:
    msg: "{{ config | sparkthor.cluster.memory_plan(pipeline_parallel=3, max_model_len=32768,
             memory_bytes=130663000000, weights_bytes=203000000000) }}"
  vars:
    config: "{{ lookup('ansible.builtin.file', 'config.json') | from_json }}"
"""

RETURN = r"""
_value:
  description: The plan.
  type: dict
  contains:
    verdict:
      description:
        - V(fits); V(tight) if a boot that takes more memory than expected would not start; V(does_not_fit).
        - V(unknown) without O(memory_bytes), or if C(unknown) names something.
      type: str
    reasons:
      description: The numbers behind the verdict, one sentence each.
      type: list
      elements: str
    suggestions:
      description: The nearest changes that would fit if it does not, or what to lower and by how much if it is tight.
      type: list
      elements: str
    unknown:
      description:
        - What in the config or the drafter changes the cache in a way that the plan does not know.
        - Then numbers of the cache are null, and so are those of the weights where the checkpoint does not tell them.
      type: list
      elements: str
    overhead_bytes_per_rank:
      description: Memory beside weights and cache that is expected; C(overhead_parts) has it by cause.
      type: int
    max_num_batched_tokens:
      description: Tokens of one step, as given or as the engine chooses them.
      type: int
    host_memory_parts:
      description: What the engine keeps in the head's memory beside its share, in bytes by cause.
      type: dict
    request_bytes_per_rank:
      description: What the engine asks of the cache for one request of O(max_model_len) tokens, padding included.
      type: int
    kv_cache_tokens:
      description: What the engine will write as C(KV cache size), as its release counts it.
      type: int
    kv_bytes_per_token:
      description: Bytes that one token adds to the cache of the whole model, before sharding.
      type: int
    kv_bytes_per_token_per_rank:
      description: The same on the rank that holds most.
      type: int
    weights_bytes_per_rank:
      description: Weights on the rank that holds most.
      type: int
    max_tokens:
      description: Tokens that the cache of the fullest rank holds.
      type: int
    max_concurrent_sequences:
      description: Sequences of O(max_model_len) tokens that fit at once.
      type: float
    state_bytes_per_sequence:
      description: State of hybrid layers for one sequence, at any length.
      type: int
    prefill_flops_per_token:
      description: Operations that the last prompt token of O(max_model_len) costs.
      type: int
    decode_tokens_per_second_bound:
      description: What memory bandwidth allows for one stream without a drafter.
      type: float
    tokens_per_second:
      description:
        - Least and most tokens per second of one stream, V(any), and with a drafter those of V(prose), V(code) and
          V(structured) text. The split's traffic over RoCE is counted.
      type: dict
    tokens_per_second_of_streams:
      description: Least and most tokens per second of so many streams together, by their number, of prose.
      type: dict
    prompts:
      description:
        - By the tokens of a prompt that the context holds, least and most of C(tokens_per_second) at which it is read
          and of C(seconds_to_first_token), for one stream with nothing cached. Traffic over RoCE is counted.
      type: dict
    traffic:
      description: C(bytes_per_token) that a rank sends for each token, and C(all_reduces) that a token waits for.
      type: dict
    ranks:
      description: The same numbers as lists, one entry a rank.
      type: dict
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def memory_plan(config: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    # imported here because Ansible loads every filter of a collection to find one of them, in each host's process
    from ansible_collections.sparkthor.cluster.plugins.module_utils._model import memory
    from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

    try:
        return memory.plan(config, **options)
    except SizingError as error:
        raise AnsibleFilterError(f"memory_plan: {error}") from error
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise AnsibleFilterError(f"memory_plan: {error}") from error


class FilterModule:
    """The filter's door to module_utils/_model/memory.py."""

    def filters(self) -> dict[str, Any]:
        return {"memory_plan": memory_plan}
