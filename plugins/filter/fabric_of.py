# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: fabric_of
short_description: What one host's network has to do with the others, out of the plan of all hosts
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Private to the roles of this collection.
options:
  _input:
    description: The plan of all hosts, C(sparkthor_fabric).
    type: dict
    required: true
  host:
    description: Name of the host.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Who must answer on each link of this host
  ansible.builtin.debug:
    msg: "{{ (sparkthor_fabric | sparkthor.cluster.fabric_of(inventory_hostname)).links }}"
"""

RETURN = r"""
_value:
  description:
    - RV(_value.links) is a list of the links with the peers on each (C(netdev), C(address), C(mtu), C(shared),
      C(peers)), as M(sparkthor.cluster.netplan_apply) takes them.
    - RV(_value.trusted) has by network interface the addresses of the peers that are trusted there.
  type: dict
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import links_of, trusted_sources


def fabric_of(fabric: dict[str, Any], host: str) -> dict[str, Any]:
    """Links and trusted peers of the host."""
    if host not in fabric:
        raise AnsibleFilterError(f"the plan of this run lacks {host!r}; run the preflight role first, on all hosts")
    return {"links": links_of(fabric, host), "trusted": trusted_sources(fabric, host)}


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"fabric_of": fabric_of}
