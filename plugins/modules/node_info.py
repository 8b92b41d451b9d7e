#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
short_description: Read what a cluster host is and has, in one call
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Reads kind (DGX Spark, Jetson Thor or other), operating system, memory, GPUs, network interfaces, routes, the
    interface the controller came in by, installed programs and fingerprints of this collection's secret files.
  - One fat call instead of many small ones, because each task costs about 0.1 s of controller time per host.
  - Runs only read-only commands, each with a time limit, and returns no secret.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
  - sparkthor.cluster.attributes.action
options:
  timeout:
    description: Seconds that one command on the host may take.
    type: int
    default: 10
attributes:
  action:
    details: It compares the host's clock with the controller's.
"""

EXAMPLES = r"""
- name: Gather facts about every host
  sparkthor.cluster.node_info:

- name: Hosts with less memory than a full DGX Spark
  ansible.builtin.debug:
    msg: "{{ ansible_facts['sparkthor_node'].mem_total_bytes // 2**30 }} GiB"
"""

RETURN = r"""
ansible_facts:
  description: The host as data, under C(sparkthor_node).
  returned: always
  type: dict
  contains:
    sparkthor_node:
      description: Everything the roles of this collection decide by.
      type: dict
      returned: always
      sample:
        kind: spark
        gpus: 1
        mem_total_bytes: 128536543232
        clock: 1795000000.0
        clock_offset: 0.0
        management:
          netdev: enP7s7
          address: 192.168.1.11
          cidr: 192.168.1.11/24
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import node


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "timeout": {"type": "int", "default": 10},
        },
        supports_check_mode=True,
    )
    module.exit_json(changed=False, ansible_facts={"sparkthor_node": node.read_now(module.params["timeout"])})


if __name__ == "__main__":
    main()
