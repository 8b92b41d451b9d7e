#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fabric_check
short_description: Compare what all hosts are with the fabric plan, once
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the controller, once for all hosts, and changes nothing anywhere.
  - Judges the facts that M(sparkthor.cluster.node_info) read and what M(sparkthor.cluster.host_compare) saw - carrier,
    cage, both halves of a cable, who is at its other end, MTU, RDMA, networks and routes that overlap the plan, two
    NICs in one subnet, netplan and NetworkManager settings by others, and whether hosts of one kind have the same
    kernel, driver, firmware and OS image.
  - Every problem found is part of one failure message that names host, NIC and fix.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
options:
  fabric:
    description: The plan of all hosts, as P(sparkthor.cluster.fabric_plan#filter) returns it.
    type: dict
    required: true
  probes:
    description:
      - Name of the variable that M(sparkthor.cluster.host_compare) was registered in.
    type: str
    required: true
  accept:
    description:
      - Findings that are only reported.
      - V(pending_edit) is an edit in another netplan file that was never applied, V(runtime_address) an address that no
        file sets, V(parity) hosts that differ, V(known_bad) a version that is known not to work,
        V(clock) a clock that is off.
    type: list
    elements: str
    choices: [pending_edit, runtime_address, parity, known_bad, clock]
    default: []
  replace_foreign:
    description: Settings of the fabric NICs by others are going to be replaced, so they are only reported.
    type: bool
    default: false
notes:
  - In check mode M(sparkthor.cluster.host_compare) leaves ports alone that are administratively down; what that leaves
    unknown is a warning.
"""

EXAMPLES = r"""
- name: Look at the fabric ports of all hosts at once
  sparkthor.cluster.host_compare:
    probe:
      host: "{{ inventory_hostname }}"
      links: "{{ sparkthor_fabric[inventory_hostname].links }}"
  register: probe

- name: Fail if the hosts do not match the plan
  sparkthor.cluster.fabric_check:
    fabric: "{{ sparkthor_fabric }}"
    probes: probe
"""

RETURN = r"""
msg:
  description: One line.
  returned: success
  type: str
  sample: the facts of 3 hosts agree with the plan
fabric:
  description: The plan with the names that the RDMA devices really have.
  returned: success
  type: dict
renamed:
  description: Whether RV(fabric) differs from O(fabric).
  returned: success
  type: bool
converged:
  description:
    - Roles that M(sparkthor.cluster.host_compare) found to have nothing to do on any host, up to the first that has.
    - Empty where RV(renamed), because the hosts were compared with other names.
  returned: success
  type: list
  elements: str
  sample: [os_hardening, roce_network]
nothing_to_do:
  description: Whether that are all the roles that were compared.
  returned: success
  type: bool
"""

# The work is done by the action plugin of the same name, on the controller.
