# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: recipe
short_description: A deployment by name, checked against the hosts that are to serve it
version_added: 0.1.0
author: sparkthor.cluster contributors (@sparkthor)
description:
  - Loads a recipe of this collection by name, or a recipe file by path (also one of another tool or project, which is
    translated, naming the parts that have no counterpart).
  - Applies the user's own variables, plans the split and the memory, and checks the arguments for the version of the
    recipe's engine that will serve. Anything wrong is one error, before a host is changed.
positional: _input
options:
  _input:
    description: Name of a recipe, or path of a file.
    type: str
    required: true
  hosts:
    description: Names of the hosts, the head first.
    type: list
    elements: str
    required: true
  topology:
    description: The cluster's C(fabric_topology).
    type: str
    default: switch
  gpus_per_host:
    description: GPUs of each host, as a number, a list or a dictionary by host.
    type: raw
    default: 1
  kinds:
    description: Kind of each host (C(spark), C(thor), C(generic)) by name, checked if given.
    type: dict
    default: {}
  memory_bytes:
    description: C(MemTotal) in bytes, a number or a dictionary by host. Without it there is no verdict.
    type: raw
  memory_available_bytes:
    description: C(MemAvailable) in bytes, a number or a dictionary by host.
    type: raw
  version:
    description: The engine's version that will serve; the recipe's own if not given.
    type: str
  table:
    description: The option table of the installed engine, preferred to a shipped one.
    type: dict
  config:
    description: The model's C(config.json) from disk, preferred to the recipe's fields.
    type: dict
  weights_bytes:
    description: Size of the model's weights on disk, preferred to the recipe's.
    type: int
  overrides:
    description:
      - "The user's own choice, which wins: C(model), C(revision), C(served_model_name), C(max_model_len),
        C(tensor_parallel), C(pipeline_parallel), C(expert_parallel), C(runtime), C(image), C(args), C(environment),
        C(acknowledged), C(draft_config), C(draft_weights_bytes)."
      - Empty values do not count. An argument of V(none) takes the recipe's away.
    type: dict
    default: {}
  base:
    description: Folder that a relative path starts from.
    type: str
  require_fit:
    description: Whether a model that does not fit is an error; otherwise it is only the verdict in C(memory).
    type: bool
    default: true
seealso:
  - plugin: sparkthor.cluster.memory_plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Say what would be served, and how
  ansible.builtin.debug:
    msg: "{{ plan.why }} {{ plan.command | join(' ') }}"
  vars:
    plan: "{{ vllm_serve_recipe | sparkthor.cluster.recipe(hosts=groups['cluster'], topology=fabric_topology) }}"
"""

RETURN = r"""
_value:
  description: The resolved recipe.
  type: dict
  contains:
    model:
      description: Model on the hub or on disk.
      type: str
    revision:
      description: Its revision, empty until it is recorded.
      type: str
    served_model_name:
      description: Name under which clients ask for it.
      type: raw
    max_model_len:
      description: Context length, or V(auto).
      type: raw
    runtime:
      description: V(venv) or V(container).
      type: str
    image:
      description: Image with its tag.
      type: str
    image_digest:
      description: Digest of the image, empty until it is recorded.
      type: str
    tensor_parallel:
      description: Ranks that share each layer.
      type: int
    pipeline_parallel:
      description: Stages that share the layers.
      type: int
    why:
      description: One line on the split.
      type: str
    args:
      description: Checked arguments of the engine, without those that have fields of their own.
      type: dict
    environment:
      description: Environment of the engine.
      type: dict
    acknowledged:
      description: Dangerous options that are meant.
      type: list
    answers:
      description: Whether the model can be asked something that has a right answer.
      type: bool
    memory:
      description: The memory plan, or V(none) if the model's shape is not known.
      type: dict
    sizing:
      description: >-
        Options of P(sparkthor.cluster.memory_plan#filter) that follow from arguments and environment, for a plan that
        is made elsewhere.
      type: dict
    warnings:
      description: Findings that do not stop a run.
      type: list
    untranslated:
      description: Parts of a foreign recipe that have no counterpart.
      type: list
    command:
      description: The command line that says the same, for people.
      type: list
"""

from typing import Any

from ansible.errors import AnsibleFilterError


def recipe(name: str, hosts: list[str], **options: Any) -> dict[str, Any]:
    # imported here because Ansible loads every filter of a collection to find one of them, in each host's process
    from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
    from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.registry import planned_engine
    from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe import load
    from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError

    try:
        loaded = load(name, base=options.get("base"), hosts=len(hosts))
        return planned_engine(loaded["engine"]).plan(loaded, hosts, **options)
    except (RecipeError, SizingError) as error:
        raise AnsibleFilterError(f"recipe: {error}") from error


class FilterModule:
    """The filter's door to the plan of the recipe's engine."""

    def filters(self) -> dict[str, Any]:
        return {"recipe": recipe}
