#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_probe
short_description: Look at a host's fabric ports before anything is written
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Reads carrier, MTU limits and RDMA links of the planned fabric ports, and everything in netplan and
    NetworkManager that stands in the way of the plan.
  - Finds out who is at the other end of each cable with own Ethernet frames (EtherType 0x88B5), since there may be no
    addresses yet. All hosts have to run it at the same time, which one task of a play does.
  - A port that is administratively down is set up for the time of the probe and down again afterwards.
  - Judges nothing; M(sparkthor.cluster.fabric_check) compares what all hosts saw with the plan.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.no_diff
options:
  host:
    description: Name of this host in the inventory, carried by the frames.
    type: str
    required: true
  links:
    description: Links of this host, as P(sparkthor.cluster.fabric_plan#filter) returns them.
    type: list
    elements: dict
    required: true
    suboptions:
      netdev:
        description: Name of the NIC.
        type: str
        required: true
      device:
        description: Name of its RDMA device.
        type: str
        default: ''
      half:
        description: Half of the cage.
        type: int
        default: 0
      address:
        description: Planned address with prefix length.
        type: str
        required: true
      subnet:
        description: Planned subnet.
        type: str
        default: ''
      peer:
        description: Host at the other end; empty on a switch, where no frames are sent.
        type: str
        default: ''
      peer_netdev:
        description: NIC at the other end.
        type: str
        default: ''
      peer_up:
        description:
          - Whether the NIC at the other end was up before anybody probed, so that there is no training to wait for.
          - The action plugin sets it from the fact C(sparkthor_node) of the peer.
        type: bool
        default: false
      mtu:
        description: Planned MTU.
        type: int
  path:
    description: The netplan file that belongs to this collection.
    type: path
    default: /etc/netplan/40-cx7.yaml
  renderer:
    description: Renderer the fabric ports are going to have; empty for the host's default.
    type: str
    choices: ['', networkd, NetworkManager]
    default: ''
  seconds:
    description: How long to listen for a neighbour that is silent on every port; a sound fabric takes about a second.
    type: float
    default: 5
  training:
    description: How much longer to listen where a port has no carrier and one of its ends was only just set up.
    type: float
    default: 5
  timeout:
    description: Seconds that one command on the host may take.
    type: int
    default: 10
attributes:
  check_mode:
    details: Ports that are administratively down stay so; their carrier and neighbours are returned as unknown.
  diff_mode:
    details: Nothing stays changed.
"""

EXAMPLES = r"""
- name: Look at the fabric ports of all hosts at once
  sparkthor.cluster.fabric_probe:
    host: "{{ inventory_hostname }}"
    links: "{{ sparkthor_fabric[inventory_hostname].links }}"
  register: probe
"""

RETURN = r"""
probe:
  description: What was found.
  returned: success
  type: dict
  contains:
    ports:
      description: By NIC, C(present), C(up), C(carrier) (V(null) where unknown) and C(mtu).
      type: dict
    neighbours:
      description: By NIC, the C(host) and C(netdev) of every frame seen there.
      type: dict
    raised:
      description: Ports that were set up for the probe.
      type: list
      elements: str
    errors:
      description: By NIC, why it could not be probed.
      type: dict
    rdma:
      description: C(links), C(source) and C(warnings) as M(sparkthor.cluster.rdma_info) finds them.
      type: dict
    netplan:
      description: C(findings), C(adoptable) and the NICs that C(own) file configures now.
      type: dict
    seconds:
      description: How long the look took.
      type: float
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import ports


def main() -> None:
    module = AnsibleModule(argument_spec=ports.ARGUMENTS, supports_check_mode=True)
    try:
        probe = ports.look(module.params, module.check_mode)
    except ports.ProbeError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, probe=probe)


if __name__ == "__main__":
    main()
