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
    choices: [engine, ray_node, roce_network, vllm_serve]
  part:
    description:
      - V(plan) is all but secrets, V(secret_files) the files that hold secrets, for C(host_state), which keeps them out
        of every result.
    type: str
    choices: [plan, secret_files]
    default: plan
"""

EXAMPLES = r"""
- name: Declare the engine's files on this host
  sparkthor.cluster.host_state: "{{ lookup('sparkthor.cluster.role_plan', 'engine').state }}"
"""

RETURN = r"""
_raw:
  description:
    - For V(part=plan) a mapping, in which C(state) holds the arguments of M(sparkthor.cluster.host_state); for
      V(part=secret_files) a list of its O(sparkthor.cluster.host_state#module:files).
  type: list
  elements: raw
"""

import os
from typing import Any

from ansible.errors import AnsibleError, AnsibleLookupError
from ansible.plugins.loader import lookup_loader
from ansible.plugins.lookup import LookupBase
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import secrets_dir
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import Declared, Templated


class LookupModule(LookupBase):
    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        # a run without serving has no use for what plans it
        from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import roles

        raw = variables or {}
        known = Declared(Templated(raw, self._templar))
        part = kwargs.get("part", "plan")
        if part not in ("plan", "secret_files"):
            raise AnsibleLookupError(f"role_plan: part {part!r} is unknown; choose plan or secret_files")

        def read_secret(name: str) -> str:
            return self._secret(name, raw)

        try:
            if part == "plan":
                return [roles.plan(term, known) for term in terms]
            return [roles.secret_files(term, known, read_secret) for term in terms]
        except (ValueError, KeyError) as error:
            raise AnsibleLookupError(f"role_plan: {roles.explained(error)}") from error

    def _secret(self, name: str, raw: dict[str, Any]) -> str:
        """A secret by name; that of a key which playbooks/rotate_api_key.yml replaced may be absent, and is empty."""
        if name != "api_key.previous":
            lookup = lookup_loader.get("sparkthor.cluster.secret", loader=self._loader, templar=self._templar)
            return str(lookup.run([name], variables=raw)[0])
        if "vllm_serve_api_key" in raw:
            return ""
        path = os.path.join(secrets_dir(raw, self._templar.template), name)
        try:
            return str(self._loader.get_text_file_contents(path)).rstrip() if os.path.exists(path) else ""
        except AnsibleError as error:
            raise AnsibleLookupError(f"{path} cannot be read: {error}") from error
