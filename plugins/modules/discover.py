#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: discover
short_description: Find DGX Sparks and Jetson Thors on the LAN and propose an inventory
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the controller, once. C(playbooks/discover.yml) and C(playbooks/first_contact.yml) use it.
  - In the stage V(find) it asks who answers on the ssh port - of O(addresses), else of those that announce ssh by mDNS
    (C(avahi-browse)) or are in the controller's neighbour table. Nobody is logged in to.
  - In the stage V(keys) it shows the ssh host keys of those machines and compares them with O(known_hosts). A key that
    differs from a known one stops the run.
  - In the stage V(propose) it judges what M(sparkthor.cluster.node_info) and M(sparkthor.cluster.fabric_neighbors) read
    on the machines of O(group), shows them, proposes topology, order and cages, and writes an inventory.
  - An inventory that is there is never overwritten.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.controller_files
requirements:
  - netaddr (Python package, on the controller)
options:
  stage:
    description: What to do.
    type: str
    choices: [find, keys, propose]
    required: true
  addresses:
    description:
      - Addresses, names, ranges such as V(192.168.1.10-40) or networks such as V(192.168.1.0/24) to ask, 1024 at most.
      - A machine that is given alone must answer, let us in, and be a DGX Spark or a Jetson Thor.
    type: list
    elements: str
    default: []
  port:
    description: Port of the machines' ssh servers.
    type: int
    default: 22
  topology:
    description: Topology to propose. If empty, what the cables say.
    type: str
    choices: ["", direct, ring, line, switch, lan]
    default: ""
  inventory:
    description:
      - Folder to write C(hosts.yml) and C(group_vars/cluster.yml) to. If empty, the proposal is only shown.
      - Before them a picture of what is cabled is written beside the folder, as C(FOLDER-cables.html),
        in place of a former one.
    type: path
    default: ""
  known_hosts:
    description: For O(stage=keys), the file of known host keys.
    type: path
    default: ~/.ssh/known_hosts
  fingerprints:
    description: For O(stage=keys), fingerprints (C(SHA256:...)) by address that are known from elsewhere.
    type: dict
    default: {}
  group:
    description: For O(stage=propose), the group of the machines that were looked at.
    type: str
    default: discovered
  nodes:
    description: For O(stage=propose), the variable in which M(sparkthor.cluster.node_info) was registered.
    type: str
    default: ""
  neighbours:
    description: For O(stage=propose), the variable in which M(sparkthor.cluster.fabric_neighbors) was registered.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Find what answers on the LAN
  sparkthor.cluster.discover:
    stage: find
    addresses: [192.168.1.0/24]
  register: found
"""

RETURN = r"""
candidates:
  description: C(address), C(name) by mDNS and whether it was C(given) alone, of every machine that answers.
  returned: with O(stage=find)
  type: list
  elements: dict
new:
  description: C(host) and C(line) of every key that is not in O(known_hosts).
  returned: with O(stage=keys)
  type: list
  elements: dict
unconfirmed:
  description: Addresses whose key is neither known nor in O(fingerprints).
  returned: with O(stage=keys)
  type: list
  elements: str
addresses:
  description: Addresses of all machines.
  returned: with O(stage=keys)
  type: list
  elements: str
topology:
  description: The proposed topology.
  returned: with O(stage=propose)
  type: str
picture:
  description: Path of the picture of what is cabled. In check mode it is not written.
  returned: with O(stage=propose) and O(inventory)
  type: str
files:
  description: The proposed inventory, text by file name.
  returned: with O(stage=propose)
  type: dict
"""
