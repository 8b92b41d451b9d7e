# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: declared_paths
short_description: Paths of the files that a role's own task flags
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - A role says what it puts on a host in one task of M(sparkthor.cluster.host_state). This lookup answers which of its
    files have a flag, so that no second list is needed.
  - Private to the roles of this collection, and to be asked from within the role.
options:
  _terms:
    description: Flags of O(sparkthor.cluster.host_state#module:files).
    required: true
    type: list
    elements: str
    choices: [kept, restarts]
  item:
    description: Value of the task's loop for which to answer; all of them if not given.
    type: raw
"""

EXAMPLES = r"""
- name: Keep what serves
  sparkthor.cluster.vllm_service:
    state: kept
    paths: "{{ lookup('sparkthor.cluster.declared_paths', 'kept') }}"
"""

RETURN = r"""
_raw:
  description: For each flag the list of paths, in the order of the task.
  type: list
  elements: list
"""

from typing import Any

from ansible.plugins.lookup import LookupBase
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import role_tasks


class LookupModule(LookupBase):
    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        own = variables or {}
        role = str(own.get("ansible_role_name") or "").rpartition(".")[2]
        return [role_tasks.flagged(role, term, self._templar, own, kwargs.get("item")) for term in terms]
