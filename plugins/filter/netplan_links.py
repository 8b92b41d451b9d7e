# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host's links as C(netplan_apply) takes them."""

from __future__ import annotations

DOCUMENTATION = r"""
name: netplan_links
short_description: One host's fabric links with the peers on each, out of the plan of all hosts
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Takes the result of P(sparkthor.cluster.fabric_plan#filter) and returns the
    O(sparkthor.cluster.netplan_apply#module:links)
    of one host. Peers of a link are all hosts that have an address in the same subnet.
positional: host
options:
  _input:
    description: The plan, a dict by host.
    type: dict
    required: true
  host:
    description: The host whose links are wanted.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Links of this host
  ansible.builtin.debug:
    msg: "{{ sparkthor_fabric | sparkthor.cluster.netplan_links(inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description: Links, each with C(netdev), C(address), C(mtu) and C(peers).
  type: list
  elements: dict
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import links_of


def netplan_links(fabric: Any, host: str) -> list[dict[str, Any]]:
    """Links of ``host``; an unknown host is an error, not an empty list."""
    if not isinstance(fabric, dict) or host not in fabric:
        raise AnsibleFilterError(f"netplan_links: no plan for host {host}; run the preflight role first")
    return links_of(fabric, host)


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"netplan_links": netplan_links}
