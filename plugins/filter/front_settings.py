# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: front_settings
short_description: Checked values for the front's configuration
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Checks addresses, deadlines, sizes and certificate names before they are written into an nginx configuration.
positional: _input
options:
  _input:
    description: Addresses on which the front listens.
    type: list
    elements: str
    required: true
  port:
    description: Port of the API.
    type: int
    required: true
  durations:
    description: Durations by the name of the variable that holds them.
    type: dict
    default: {}
  sizes:
    description: Sizes by the name of the variable that holds them.
    type: dict
    default: {}
  names:
    description: Host names and addresses of a self-made certificate.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Where the front listens
  ansible.builtin.debug:
    msg: "{{ (['0.0.0.0', '::'] | sparkthor.cluster.front_settings(port=8000)).listen }}"
"""

RETURN = r"""
_value:
  description: RV(_value.listen) as nginx writes it, RV(_value.values) by variable, RV(_value.subject_names).
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front


def front_settings(addresses, port, durations=None, sizes=None, names=None):
    try:
        values = {name: front.checked_duration(value, name) for name, value in (durations or {}).items()}
        values.update({name: front.checked_size(value, name) for name, value in (sizes or {}).items()})
        return {
            "listen": front.listen_addresses(addresses, port),
            "values": values,
            "subject_names": front.subject_names(names or []),
        }
    except front.FrontError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self):
        return {"front_settings": front_settings}
