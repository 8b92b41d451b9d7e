# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of the fabric's netplan file."""

from __future__ import annotations

DOCUMENTATION = r"""
name: netplan_yaml
short_description: The netplan file for a host's fabric links
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - The text that M(sparkthor.cluster.netplan_apply) places on the host.
positional: _input
options:
  _input:
    description: Links as P(sparkthor.cluster.netplan_links#filter) returns them.
    type: list
    elements: dict
    required: true
  renderer:
    description: V(networkd), V(NetworkManager), or empty for the host's default.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Show this host's netplan file
  ansible.builtin.debug:
    msg: "{{ sparkthor_fabric | sparkthor.cluster.netplan_links(inventory_hostname) | sparkthor.cluster.netplan_yaml }}"
"""

RETURN = r"""
_value:
  description: The file's text.
  type: str
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.netplan import render


def netplan_yaml(links: Any, renderer: str = "") -> str:
    """The file's text; what is no list of links is an error."""
    try:
        return render(list(links), "" if renderer == "auto" else renderer)
    except (KeyError, TypeError, AttributeError) as error:
        raise AnsibleFilterError(f"netplan_yaml: not a list of links: {error!r}") from error


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"netplan_yaml": netplan_yaml}
