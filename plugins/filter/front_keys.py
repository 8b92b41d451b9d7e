# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: front_keys
short_description: The API keys as nginx compares them
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Turns API keys into the lines of an nginx map from the Authorization header, compared with regard to case.
  - Use it only in fields that are marked secret.
positional: _input
options:
  _input:
    description: Keys of at least 16 characters out of letters, digits and C(._~+/-).
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Keys of the front
  ansible.builtin.copy:
    content: "{{ [lookup('sparkthor.cluster.secret', 'api_key')] | sparkthor.cluster.front_keys }}"
    dest: /etc/sparkthor/front/keys.conf
    mode: "0600"
  no_log: true
"""

RETURN = r"""
_value:
  description: Text of the file.
  type: str
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front


def front_keys(keys):
    try:
        return front.key_map(keys)
    except front.FrontError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self):
        return {"front_keys": front_keys}
