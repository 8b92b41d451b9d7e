# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: onhost
short_description: The package that runs on hosts without Ansible
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - For the roles of this collection. What is to be installed for gate, watchdog, ranks, containers and the exporter,
    and which of these files a program is made of.
options:
  _terms:
    description:
      - V(package), or V(program_files) or V(program_digest) followed by a verb of the package.
    required: true
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Install what runs on hosts
  sparkthor.cluster.host_state: "{{ lookup('sparkthor.cluster.onhost', 'package') }}"

- name: Show which files the watchdog is made of
  ansible.builtin.debug:
    msg: "{{ lookup('sparkthor.cluster.onhost', 'program_files', 'watchdog') }}"
"""

RETURN = r"""
_raw:
  description:
    - V(package) has the directories and files as M(sparkthor.cluster.host_state) takes them, V(program_files) are
      paths, and V(program_digest) is a text that changes with the program's code.
  type: list
  elements: raw
"""

from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import onhost

ANSWERS = {
    ("package", 1): onhost.package_state,
    ("program_files", 2): onhost.program_files,
    ("program_digest", 2): onhost.program_digest,
}


class LookupModule(LookupBase):
    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[Any]:
        answer = ANSWERS.get((terms[0], len(terms))) if terms else None
        if answer is None:
            raise AnsibleLookupError(f"onhost: {terms!r} asks for nothing that this lookup has")
        try:
            return [answer(*terms[1:])]
        except KeyError as error:
            raise AnsibleLookupError(f"onhost: there is no program {error} in the package") from error
