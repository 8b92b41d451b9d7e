# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: routeros_commands
author: sparkthor.cluster contributors (@sparkthor)
version_added: 0.1.0
short_description: Commands that a MikroTik switch lacks for the fabric
description:
  - From the recorded configuration of a switch (what C(/export) prints), the commands of RouterOS that it lacks as a
    fabric's switch, in an order in which each is safe by itself. Nothing is sent to the switch.
positional: _input
options:
  _input:
    description: What C(/export) printed.
    type: str
    required: true
  ports:
    description: Names of the ports that the hosts are on.
    type: list
    elements: str
    required: true
  links:
    description: Names of the ports to another switch of the fabric.
    type: list
    elements: str
    default: []
  uplinks:
    description: Names of the ports to the house's network, which RSTP is to take only where there is no other way.
    type: list
    elements: str
    default: []
  bridge:
    description: Name of the one bridge that the ports are in.
    type: str
    default: bridge
  vlan:
    description: VLAN of the fabric's ports. With V(1) they stay with all other ports.
    type: int
    default: 1
  mtu:
    description: MTU of the ports; what they let through on layer 2 is at least V(9216).
    type: int
    default: 9000
  speed:
    description: Gb/s to fix the ports at, without negotiation, V(100) or V(200). With V(0) they are left alone.
    type: int
    default: 0
  qos:
    description: Whether RoCE gets a lossless class with ECN.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show what the switch lacks
  ansible.builtin.debug:
    msg: >-
      {{ lookup('ansible.builtin.file', 'switch.rsc')
         | sparkthor.cluster.routeros_commands(ports=['qsfp56-dd-1-1', 'qsfp56-dd-1-5'], vlan=100) }}
"""

RETURN = r"""
_value:
  description: The commands, a backup first; empty where nothing is lacking.
  type: list
  elements: str
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.routeros import SwitchError, SwitchWish, commands


def routeros_commands(export: t.Any, ports: t.Any, **given: t.Any) -> list[str]:
    names = {"links", "uplinks", "bridge", "vlan", "mtu", "speed", "qos"}
    if strange := sorted(set(given) - names):
        raise AnsibleFilterError(f"routeros_commands: {strange[0]} is no option; it has {', '.join(sorted(names))}")
    try:
        return commands(str(export), SwitchWish(ports=ports, **given))
    except SwitchError as error:
        raise AnsibleFilterError(f"routeros_commands: {error}") from error


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"routeros_commands": routeros_commands}
