# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of the cluster's own nftables table."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nft_ruleset
short_description: The ruleset that a host's firewall loads
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - The text that M(sparkthor.cluster.firewall_apply) loads and keeps on the host.
positional: _input, host
options:
  _input:
    description: The plan of all hosts, the fact C(sparkthor_fabric).
    type: dict
    required: true
  host:
    description: The host whose ruleset is wanted.
    type: str
    required: true
  policy:
    description: Options of M(sparkthor.cluster.firewall_apply) that say what may come in.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Show what may come into this host
  ansible.builtin.debug:
    msg: "{{ sparkthor_fabric | sparkthor.cluster.nft_ruleset(inventory_hostname, {'ssh_ports': [22]}) }}"
"""

RETURN = r"""
_value:
  description: The ruleset's text.
  type: str
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall import FirewallError, Policy, ruleset
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import trusted_sources


def nft_ruleset(fabric: Any, host: str, policy: Mapping[str, Any] | None = None) -> str:
    """The ruleset of ``host``; an unknown host or an impossible value is an error."""
    if not isinstance(fabric, Mapping) or host not in fabric:
        raise AnsibleFilterError(f"nft_ruleset: no plan for host {host}; run the preflight role first")
    try:
        return ruleset(Policy(trusted=trusted_sources(fabric, host), **(policy or {})))
    except (FirewallError, TypeError) as error:
        raise AnsibleFilterError(f"nft_ruleset: {error}") from error


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"nft_ruleset": nft_ruleset}
