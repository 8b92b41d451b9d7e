# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: vllm_config
short_description: The content of vLLM's configuration file
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Turns arguments under vLLM's own flag names, with what the role decides itself, into the dictionary that
    C(vllm serve --config) reads.
  - V(false) becomes the negated flag, because vLLM's file reader drops it silently; structured values become JSON.
positional: _input
options:
  _input:
    description: Arguments by vLLM's flag names, with or without leading dashes, with dashes or underscores.
    type: dict
    required: true
  model:
    description: Folder of the model on the hosts, or its name.
    type: str
    required: true
  served_model_name:
    description: Name or names under which clients ask for the model.
    type: raw
    default: ""
  max_model_len:
    description: Longest context; the model's own by default.
    type: int
  tensor_parallel_size:
    description: Ranks that share each layer.
    type: int
    default: 1
  pipeline_parallel_size:
    description: Stages that the layers are divided into.
    type: int
    default: 1
  executor:
    description: How the ranks of the hosts are started.
    type: str
    choices: [ray, mp]
    default: ray
  socket:
    description: UNIX socket on which the head's vLLM listens.
    type: str
    default: ""
  hosts:
    description: Number of hosts.
    type: int
    default: 1
  rank:
    description: Number of this host, the head is 0.
    type: int
    default: 0
  master_address:
    description: Control address of the head, for O(executor=mp).
    type: str
    default: ""
  master_port:
    description: Port of the ranks' rendezvous, for O(executor=mp).
    type: int
    default: 29501
"""

EXAMPLES = r"""
- name: Show the file
  ansible.builtin.debug:
    msg: "{{ {'enable-prefix-caching': true} | sparkthor.cluster.vllm_config(model='/srv/model', executor='mp') }}"
"""

RETURN = r"""
_value:
  description: The content of the file.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_config as _serve_config


def vllm_config(args, **options):
    try:
        return _serve_config.serve_config(args or {}, **options)
    except _serve_config.ServeConfigError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self):
        return {"vllm_config": vllm_config}
