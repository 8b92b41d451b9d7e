# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: secret
short_description: The API key, the Ray token or the heads' own secret of the cluster
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Returns a secret that the user gave as a variable or, where none was given, the one that
    P(sparkthor.cluster.cluster_secrets#module) generated and keeps on the controller.
  - Use it only in tasks with C(no_log=true) or in fields that are marked secret.
options:
  _terms:
    description: Names of secrets, V(api_key), V(ray_token) or V(peer_secret).
    required: true
    type: list
    elements: str
notes:
  - In check mode, before the first run has generated a secret, a placeholder is returned.
"""

EXAMPLES = r"""
- name: Token file on a host
  ansible.builtin.copy:
    content: "{{ lookup('sparkthor.cluster.secret', 'ray_token') }}"
    dest: /etc/sparkthor/secrets/ray_token
    mode: "0600"
  no_log: true
"""

RETURN = r"""
_raw:
  description: The secrets, in the order of the names.
  type: list
  elements: str
"""

import os

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import SECRETS, secrets_dir

PLACEHOLDER = "generated-at-the-first-real-run"


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        variables = variables or {}
        names = {secret: variable for variable, secret in SECRETS.items()}
        found = []
        for term in terms:
            if term not in names:
                raise AnsibleLookupError(f"secret {term!r} is unknown; known: {', '.join(sorted(names))}")
            found.append(self._secret(term, names[term], variables))
        return found

    def _secret(self, name, variable, variables):
        if variable in variables:
            return str(self._templar.template(variables[variable])).strip()
        path = os.path.join(secrets_dir(variables, self._templar.template), name)
        try:
            with open(path, encoding="utf-8") as handle:
                value = handle.read().strip()
        except FileNotFoundError:
            if variables.get("ansible_check_mode"):
                return PLACEHOLDER
            raise AnsibleLookupError(
                f"{path} is not there: run the preflight role first (it generates {name}), or set {variable}"
            ) from None
        if not value:
            raise AnsibleLookupError(f"{path} is empty: remove it and run again (one is generated), or set {variable}")
        return value
