# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: role_plan
short_description: What one of the roles puts on this host, computed from the plan and the role's variables
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Private to the roles below, whose tasks declare what it returns.
  - Reads the role's variables, the facts of the host, and the plan that preflight made (C(sparkthor_cluster) and
    C(sparkthor_fabric)).
options:
  _terms:
    description: Name of the role.
    required: true
    type: list
    elements: str
    choices: [engine, ray_node, vllm_serve]
"""

EXAMPLES = r"""
- name: Declare the engine's files on this host
  sparkthor.cluster.host_state: "{{ lookup('sparkthor.cluster.role_plan', 'engine').state }}"
"""

RETURN = r"""
_raw:
  description:
    - A mapping of values, in which C(state), if there is one, holds the arguments of M(sparkthor.cluster.host_state).
  type: list
  elements: raw
"""

from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import Declared, Templated


class LookupModule(LookupBase):
    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        # a run without serving has no use for what plans it
        from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import roles

        known = Declared(Templated(variables or {}, self._templar))
        try:
            return [roles.plan(term, known) for term in terms]
        except (ValueError, KeyError) as error:
            raise AnsibleLookupError(f"role_plan: {roles.explained(error)}") from error
