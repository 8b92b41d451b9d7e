# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: rendered
short_description: A role's template as text, without copying all variables
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - What P(ansible.builtin.template#lookup) returns for a template that includes no other file.
  - That lookup makes a deep copy of every variable for each template. With the plan of all hosts among them, a host's
    files cost more the more hosts there are; this one reads the variables where they are.
options:
  _terms:
    description: Names of templates below a C(templates) folder of the role or play.
    required: true
    type: list
    elements: str
notes:
  - C(template_path) and the like, which M(ansible.builtin.template) adds, are not there.
seealso:
  - plugin: ansible.builtin.template
    plugin_type: lookup
"""

EXAMPLES = r"""
- name: Show a unit
  ansible.builtin.debug:
    msg: "{{ lookup('sparkthor.cluster.rendered', 'sparkthor-ray.service.j2') }}"
"""

RETURN = r"""
_raw:
  description: The texts, in the order of the names.
  type: list
  elements: str
"""

from typing import Any

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase


class LookupModule(LookupBase):
    def run(self, terms: list[str], variables: dict[str, Any] | None = None, **kwargs: Any) -> list[str]:
        # not in ansible-core before 2.19, of which the action plugins say in a sentence that it is too old
        from ansible.template import trust_as_template

        self.set_options(var_options=variables, direct=kwargs)
        texts = []
        for term in terms:
            path = self.find_file_in_search_path(variables, "templates", term)
            if not path:
                raise AnsibleLookupError(f"rendered: there is no template {term!r} in the role or play")
            # a file of the role is as trustworthy as the role's tasks
            source = trust_as_template(self._loader.get_text_file_contents(path))
            texts.append(self._templar.template(source, escape_backslashes=False))
        return texts
