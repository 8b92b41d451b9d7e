# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: parallel_plan
short_description: How a model is divided over the GPUs of a cluster
version_added: 0.1.0
author: sparkthor.cluster contributors (@sparkthor)
description:
  - Chooses tensor and pipeline parallelism by the hosts, the kind of fabric and the model's shape, and says why.
  - Tensor parallelism over RDMA where attention heads, KV heads and quantization blocks divide; pipeline parallelism
    over TCP and where tensor parallelism cannot be; expert parallelism where FP8 blocks ask for it.
  - An explicit choice is kept and checked.
positional: _input
options:
  _input:
    description: The model's parsed C(config.json), or the same fields from a recipe; V(none) if it is not known.
    type: dict
    required: true
  hosts:
    description: Names of the hosts, the head first, or their number.
    type: raw
    required: true
  gpus_per_host:
    description: GPUs of each host, as a number, a list or a dictionary by host.
    type: raw
    default: 1
  topology:
    description: The cluster's C(fabric_topology).
    type: str
    choices: [direct, ring, switch, lan]
    default: switch
  tensor_parallel:
    description: An explicit choice.
    type: int
  pipeline_parallel:
    description: An explicit choice.
    type: int
  expert_parallel:
    description: An explicit choice.
    type: bool
  max_model_len:
    description: The asked context length, checked against the model's own.
    type: int
  replicas:
    description: Serving groups in the cluster; more than one is refused with the reason.
    type: int
    default: 1
  rdma:
    description: Whether the links carry RDMA, if O(topology) does not tell.
    type: bool
seealso:
  - plugin: sparkthor.cluster.memory_plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Say how the model is divided
  ansible.builtin.debug:
    msg: "{{ (config | sparkthor.cluster.parallel_plan(hosts=groups['cluster'], topology=fabric_topology)).why }}"
"""

RETURN = r"""
_value:
  description: The split.
  type: dict
  contains:
    tensor_parallel:
      description: Ranks that share each layer.
      type: int
    pipeline_parallel:
      description: Stages that share the layers.
      type: int
    expert_parallel:
      description: Whether each rank holds whole experts.
      type: bool
    world:
      description: Number of ranks.
      type: int
    why:
      description: One sentence.
      type: str
"""

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import parallel


def parallel_plan(config: Mapping[str, Any] | None, **options: Any) -> dict[str, Any]:
    try:
        return parallel.plan_parallel(config=config or None, **options)
    except SizingError as error:
        raise AnsibleFilterError(f"parallel_plan: {error}") from error


class FilterModule:
    """The filter's door to module_utils/_parallel."""

    def filters(self) -> dict[str, Any]:
        return {"parallel_plan": parallel_plan}
