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
    interface of the controller's connection, installed programs and which of this collection's secrets are
    there.
  - O(gather) selects whether it reads the state of the host as well, for status, verify and report.
  - One call reads everything, because each task costs about 0.1 s of controller time per host.
  - Runs read-only commands, each with a time limit, and returns no secret. A command that does not answer in time is no
    error; its part of the result is missing.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
  - sparkthor.cluster.attributes.action
options:
  gather:
    description:
      - V(facts) reads what the roles of this collection need.
      - V(status) reads the facts and what runs now - memory, units, RDMA links with their counters, versions of the
        engine, what is served and, on the head, Ray's nodes. M(sparkthor.cluster.cluster_report) and
        M(sparkthor.cluster.cluster_verify) read it.
    type: str
    choices: [facts, status]
    default: facts
  timeout:
    description:
      - Seconds that one command on the host may take.
      - If not set, 10 for V(facts) and 5 for V(status).
    type: int
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

- name: Read the status of every host
  sparkthor.cluster.node_info:
    gather: status
  register: read
  become: true

- name: Memory that is left
  ansible.builtin.debug:
    msg: "{{ read.status.memory.available // 2**30 }} GiB"
"""

RETURN = r"""
ansible_facts:
  description: The host as data, under C(sparkthor_node).
  returned: with O(gather=facts)
  type: dict
  contains:
    sparkthor_node:
      description: Everything the roles of this collection decide by.
      type: dict
      returned: always
      sample:
        kind: spark
        gpus: 1
        gpu_problem: ""
        gpu_clock_limit: 0
        mem_total_bytes: 128536543232
        clock: 1795000000.0
        clock_offset: 0.0
        management:
          netdev: enP7s7
          address: 192.168.1.11
          cidr: 192.168.1.11/24
        ssh_port: 22
status:
  description: What the host is and what runs there.
  returned: with O(gather=status)
  type: dict
  contains:
    node:
      description: The host, as in the fact C(sparkthor_node).
      type: dict
    memory:
      description: Bytes of C(total), C(available), C(cached), C(swap_total) and C(swap_used).
      type: dict
    units:
      description: State of this collection's units by name.
      type: dict
    rdma:
      description: C(links) as M(sparkthor.cluster.rdma_info) returns them, each with C(counters).
      type: dict
    serving:
      description: Served model, the watchdog's state and the engine's plain options.
      type: dict
    ray:
      description: Whether Ray is configured, and on the head what M(sparkthor.cluster.ray_info) returns.
      type: dict
    engine:
      description: The engine's C(runtime), V(venv) or V(container), and for the first its folder C(path).
      type: dict
    versions:
      description: Versions of the engine's parts.
      type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

#: what one command may take unless the task says otherwise, seconds
TIMEOUTS = {"facts": 10, "status": 5}


def read(given: dict[str, Any]) -> dict[str, Any]:
    # each gathering imports only what it needs: the facts are read in every run
    timeout = given["timeout"]
    if given["gather"] == "status":
        from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import host_status

        return {"status": host_status.read_now(timeout)}
    from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import node

    return {"ansible_facts": {"sparkthor_node": node.read_now(timeout)}}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "gather": {"type": "str", "choices": list(TIMEOUTS), "default": "facts"},
            "timeout": {"type": "int"},
        },
        supports_check_mode=True,
    )
    given = module.params
    if given["timeout"] is None:
        given["timeout"] = TIMEOUTS[given["gather"]]
    if given["timeout"] < 1:
        module.fail_json(msg=f"timeout is {given['timeout']}: a command needs at least 1 second")
    module.exit_json(changed=False, **read(given))


if __name__ == "__main__":
    main()
