# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: nft_sources
short_description: Addresses and networks as the beginnings of nftables rules
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - One text for IPv4 and one for IPv6, each with a blank at its end. What lies inside of another network is left out,
    because nftables refuses overlaps in a set.
  - Private to the roles of this collection.
options:
  _input:
    description: Addresses and networks.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Rules that let ssh in from these
  ansible.builtin.debug:
    msg: "{{ item }}tcp dport 22 accept"
  loop: "{{ ['192.168.1.0/24', '2001:db8::1'] | sparkthor.cluster.nft_sources }}"
"""

RETURN = r"""
_value:
  description: Beginnings of rules; none for an empty list.
  type: list
  elements: str
"""

from collections.abc import Callable, Iterable

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import firewall


def nft_sources(values: Iterable[str]) -> list[str]:
    """The beginnings; see :func:`firewall.sources`."""
    try:
        return firewall.sources(values)
    except firewall.RulesetValueError as error:
        raise AnsibleFilterError(f"nft_sources: {error}") from error


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        """Name to function."""
        return {"nft_sources": nft_sources}
