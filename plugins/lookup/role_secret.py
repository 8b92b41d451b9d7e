# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: role_secret
short_description: The text of a file with a secret that one of the roles puts on this host
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - What O(sparkthor.cluster.host_state#module:files[].from_secret) names. It is read when the file is compared or
    written, and is no variable and no fact.
  - Private to the roles of this collection.
options:
  _terms:
    description: Names of secrets.
    required: true
    type: list
    elements: str
    choices:
      - api_key
      - front_keys
      - hf_token
      - peer_certificate
      - peer_key
      - peer_secret
      - ray_tls_certificate
      - ray_tls_key
      - ray_token
      - tls_key
"""

EXAMPLES = r"""
- name: A file that only root reads
  sparkthor.cluster.host_state:
    files:
      - {path: /etc/sparkthor/secrets/ray_token, from_secret: ray_token}
"""

RETURN = r"""
_raw:
  description: The texts, each with the end of its last line.
  type: list
  elements: str
"""

import os
from typing import Any

from ansible.errors import AnsibleError, AnsibleLookupError
from ansible.plugins.loader import lookup_loader
from ansible.plugins.lookup import LookupBase
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import secrets_dir
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import Declared, Templated


class LookupModule(LookupBase):
    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[str]:
        # a run without serving has no use for what plans it
        from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import role_secrets, roles

        raw = variables or {}
        known = Declared(Templated(raw, self._templar))

        def read_secret(name: str) -> str:
            return self._secret(name, raw)

        try:
            return [role_secrets.secret(term, known, read_secret) for term in terms]
        except (ValueError, KeyError) as error:
            raise AnsibleLookupError(f"role_secret: {roles.explained(error)}") from error

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
