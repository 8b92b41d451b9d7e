# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: role_value
short_description: A variable of one of the roles, or its default, outside of that role
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - For playbooks and for roles that need the value of another role which the play may not have. A default is written in
    one place, the C(defaults/main.yml) of its role.
options:
  _terms:
    description: Names of the variables.
    required: true
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Wait as long as the role does
  sparkthor.cluster.vllm_service:
    timeout: "{{ lookup('sparkthor.cluster.role_value', 'vllm_serve_ready_timeout') }}"
"""

RETURN = r"""
_raw:
  description: The values by their declared types; null for a variable that is not set and has no default.
  type: list
  elements: raw
"""

from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible.template import trust_as_template
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import role_specs


class LookupModule(LookupBase):
    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        return [self._value(term, variables or {}) for term in terms]

    def _value(self, name: str, raw: dict[str, Any]) -> Any:
        specs, known = role_specs.of_collection(), role_specs.defaults()
        if name not in specs.names and name not in known:
            raise AnsibleLookupError(f"role_value: no role has a variable {name}")
        given = raw[name] if name in raw else known.get(name)
        if name not in raw and isinstance(given, str):
            given = trust_as_template(given)
        try:
            return specs.value(name, self._templar.template(given)) if given is not None or name in raw else None
        except role_specs.ValueRefused as error:
            raise AnsibleLookupError(f"role_value: {error}") from error
