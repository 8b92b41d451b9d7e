#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma_info
short_description: Read a host's RDMA links
version_added: 0.1.0
author: sparkthor.cluster contributors (@sparkthor)
description:
  - Lists which RDMA device drives which network interface, with what the kernel says about each link.
  - Asks C(ibdev2netdev), then C(rdma), then sysfs; each alone gives the same links. A host without RDMA has an empty
    list.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
options:
  sources:
    description: Sources to ask, in this order.
    type: list
    elements: str
    choices: [ibdev2netdev, rdma, sysfs]
    default: [ibdev2netdev, rdma, sysfs]
  timeout:
    description: Seconds that a tool may take. After that the next one is asked.
    type: int
    default: 10
"""

EXAMPLES = r"""
- name: Read the RDMA links
  sparkthor.cluster.rdma_info:
  register: rdma

- name: Show the cabled ones
  ansible.builtin.debug:
    msg: "{{ rdma.links | selectattr('state', 'equalto', 'up') | map(attribute='netdev') }}"
"""

RETURN = r"""
links:
  description: The links, sorted by device and port.
  returned: success
  type: list
  elements: dict
  contains:
    device:
      description: RDMA device.
      type: str
      sample: rocep1s0f1
    port:
      description: Port of the device, counted from 1.
      type: int
      sample: 1
    netdev:
      description: Network interface of the port, empty where there is none.
      type: str
      sample: enp1s0f1np1
    state:
      description: Carrier of the interface, V(up), V(down) or V(unknown).
      type: str
      sample: up
    port_state:
      description: State of the RDMA port.
      type: str
      sample: ACTIVE
    phys_state:
      description: Physical state of the RDMA port.
      type: str
      sample: LinkUp
    cage:
      description: QSFP cage, V(null) where it cannot be told.
      type: int
      sample: 1
    half:
      description: V(0) for the half on PCI domain 0, V(1) for the other one.
      type: int
      sample: 0
    pci:
      description: PCI address, empty where there is none.
      type: str
      sample: "0000:01:00.1"
    phys_port_name:
      description: Name the driver gives the physical port.
      type: str
      sample: p1
    phys_switch_id:
      description: Identity of the NIC; both halves of a cage share it.
      type: str
      sample: 30e94200ea4cfc
    mtu:
      description: MTU of the interface.
      type: int
      sample: 9000
    active_mtu:
      description: RoCE path MTU that follows from the interface's MTU.
      type: int
      sample: 4096
    rate:
      description: Rate of the port in Gb/s.
      type: float
      sample: 200
    link_layer:
      description: V(Ethernet) or V(InfiniBand).
      type: str
      sample: Ethernet
    gid_index:
      description: Index of the RoCE v2 GID over IPv4, V(null) without an address.
      type: int
      sample: 3
    firmware:
      description: Firmware of the device.
      type: str
      sample: 28.45.4028
source:
  description: Where the links came from; empty where nothing answered.
  returned: success
  type: str
  sample: ibdev2netdev
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import rdma


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "sources": {
                "type": "list",
                "elements": "str",
                "choices": list(rdma.SOURCES),
                "default": list(rdma.SOURCES),
            },
            "timeout": {"type": "int", "default": 10},
        },
        supports_check_mode=True,
    )
    timeout = module.params["timeout"]
    if timeout < 1:
        module.fail_json(msg=f"timeout is {timeout}: a tool needs at least 1 second")
    found = rdma.read_links(lambda argv: run_limited(argv, timeout), sources=module.params["sources"])
    for warning in found["warnings"]:
        module.warn(warning)
    module.exit_json(changed=False, links=found["links"], source=found["source"])


if __name__ == "__main__":
    main()
