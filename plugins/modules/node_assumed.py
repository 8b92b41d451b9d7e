#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_assumed
short_description: Facts of a host that nobody asks, by its kind
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Gives the fact C(sparkthor_node) that M(sparkthor.cluster.node_info) would read, as machines of this kind are sold,
    so that an inventory can be planned and its files rendered without any host.
  - The kind is what the groups C(sparks) and C(thors) say. The management address is C(ansible_host) where that is an
    address, else one out of 198.18.0.0/15 (RFC 2544). On a C(lan) M(sparkthor.cluster.cluster_plan) takes them to be
    in the one network that holds them all, or, where some are names, to be none.
  - Runs on the controller and contacts nobody.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
options:
  topology:
    description: The inventory's C(fabric_topology); says what hosts are that no group of kinds names.
    type: str
"""

EXAMPLES = r"""
- name: Take the hosts to be what they are sold as
  sparkthor.cluster.node_assumed:
    topology: "{{ fabric_topology }}"
"""

RETURN = r"""
ansible_facts:
  description: The fact C(sparkthor_node), with V(assumed=true) and without what only the host knows.
  returned: always
  type: dict
"""

# The work is done by the action plugin of the same name, on the controller.
