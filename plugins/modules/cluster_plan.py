#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_plan
short_description: Validate the inventory, compute the plan of every host, and compare hosts with it
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the controller, once for all hosts, and changes nothing anywhere.
  - In the stage V(inventory) it checks groups, cluster-wide variables, secrets and every role variable that the
    inventory sets, without contacting a host.
  - In the stage V(facts) it checks that every host was reached and computes the fabric plan, the environment and the
    split of the model from the facts that M(sparkthor.cluster.node_info) read.
  - In the stage V(hosts) it judges the facts and what M(sparkthor.cluster.host_compare) found - carrier, cage, both
    halves of a cable, who is at its other end, MTU, RDMA, networks and routes that overlap the plan, two NICs in one
    subnet, netplan and NetworkManager settings by others, and whether hosts of one kind have the same kernel, driver,
    firmware and OS image.
  - In the stage V(engine) it compares Python, Ray, engine, torch and the container image in the facts
    C(sparkthor_engine) of all hosts of the play, and fails with a table if they differ. Ray refuses a node of another
    version, and ranks of different versions fail with errors that do not name the reason.
  - In the stage V(usage) it prints where the API is, how the model is called, where the key lies, and a command that
    uses it. It belongs into the role vllm_serve, whose variables it reads.
  - In the stage V(chosen) it prints what the chosen model comes to on its hosts, and which recipes are faster there.
requirements:
  - netaddr (Python package, on the controller)
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
options:
  stage:
    description: Which stage to run.
    type: str
    choices: [inventory, facts, hosts, engine, usage, chosen]
    default: facts
  nodes:
    description:
      - Name of the variable in which M(sparkthor.cluster.node_info) was registered for each host. For a host without
        facts it has the reason.
      - Needed in the stage V(facts), unless O(assumed=true).
      - In the stage V(engine), the variable in which M(sparkthor.cluster.ray_info) with C(before_start=true) was
        registered. The versions that it found are compared instead of the facts.
    type: str
  assumed:
    description:
      - Assume that every host is a standard machine of its kind, so that the cluster can be planned and its files
        rendered without any host. RV(nodes) are the assumed facts.
      - The kind comes from the groups C(sparks) and C(thors). The management address is C(ansible_host) where that is
        an address, else one out of 198.18.0.0/15 (RFC 2544). On a C(lan) they are taken to be in the one network that
        holds them all, or, where some are names, to be none.
      - In the stage V(inventory), check the names of what is served although no role of the play serves it.
    type: bool
    default: false
  fabric:
    description:
      - The plan of all hosts, as P(sparkthor.cluster.fabric_plan#filter) returns it.
      - Needed in the stage V(hosts).
    type: dict
  probes:
    description:
      - Name of the variable that M(sparkthor.cluster.host_compare) was registered in.
      - Needed in the stage V(hosts).
    type: str
  accept:
    description:
      - In the stage V(hosts), findings that are only reported.
      - V(pending_edit) is an edit in another netplan file that was never applied, V(runtime_address) an address that no
        file sets, V(parity) hosts that differ, V(known_bad) a version that is known not to work,
        V(clock) a clock that is off.
    type: list
    elements: str
    choices: [pending_edit, runtime_address, parity, known_bad, clock]
    default: []
  replace_foreign:
    description:
      - In the stage V(hosts), whether settings of the fabric NICs by others are only reported, because the run will
        replace them.
    type: bool
    default: false
notes:
  - In check mode M(sparkthor.cluster.host_compare) leaves ports alone that are administratively down; what that leaves
    unknown is a warning.
  - One failure message has all findings, so that a person can fix all of them at once.
"""

EXAMPLES = r"""
- name: Validate the inventory
  sparkthor.cluster.cluster_plan:
    stage: inventory

- name: Gather facts about every host
  sparkthor.cluster.node_info:
  register: read
  # hosts that cannot be read are named by the next task, all of them at once
  ignore_unreachable: true
  failed_when: false

- name: Plan every host
  sparkthor.cluster.cluster_plan:
    nodes: read

- name: Compute the plan of hosts that nobody asks
  sparkthor.cluster.cluster_plan:
    assumed: true

- name: Read the fabric ports of all hosts at once
  sparkthor.cluster.host_compare:
    probe:
      host: "{{ inventory_hostname }}"
      links: "{{ sparkthor_fabric[inventory_hostname].links }}"
  register: probe

- name: Fail if the hosts do not match the plan
  sparkthor.cluster.cluster_plan:
    stage: hosts
    fabric: "{{ sparkthor_fabric }}"
    probes: probe

- name: Check that all hosts run the same engine
  sparkthor.cluster.cluster_plan:
    stage: engine
"""

RETURN = r"""
msg:
  description: One line that says what was planned.
  returned: success
  type: str
  sample: "switch, 3 hosts, head spark-01 on 10.100.0.1, RoCE"
nodes:
  description:
    - By host, the fact C(sparkthor_node) that M(sparkthor.cluster.node_info) would read, with V(assumed=true) and
      without what only the host knows.
  returned: with O(assumed=true)
  type: dict
cluster:
  description:
    - What is true of the cluster as a whole; preflight shares it as C(sparkthor_cluster).
    - With serving groups that of the first one.
  returned: in stage V(facts)
  type: dict
clusters:
  description:
    - With serving groups, by host what is true of its own group, which is C(sparkthor_cluster) on that host.
    - Empty where all hosts serve one model.
  returned: in stage V(facts)
  type: dict
fabric:
  description:
    - By host, what P(sparkthor.cluster.fabric_plan#filter) returns; preflight shares it as C(sparkthor_fabric).
    - In the stage V(hosts) with the names that the RDMA devices really have.
  returned: in the stages V(facts) and V(hosts)
  type: dict
renamed:
  description: Whether RV(fabric) differs from O(fabric).
  returned: in stage V(hosts)
  type: bool
converged:
  description:
    - Roles that M(sparkthor.cluster.host_compare) found to have nothing to do on any host, up to the first that has.
    - Empty where RV(renamed), because the hosts were compared with other names.
  returned: in stage V(hosts)
  type: list
  elements: str
  sample: [os_hardening, roce_network]
findings:
  description:
    - What was found and does not stop the run, each with C(id), C(host), C(where), C(value), C(what), C(fix) and
      C(severity).
    - The C(value) of the C(id) C(closed_ports) are the TCP ports that the firewall will close.
  returned: in stage V(hosts)
  type: list
  elements: dict
nothing_to_do:
  description: Whether that are all the roles that were compared.
  returned: in stage V(hosts)
  type: bool
lines:
  description: What was printed.
  returned: in stages V(usage) and V(chosen)
  type: list
  elements: str
engines:
  description: Versions by host.
  returned: in stage V(engine)
  type: dict
"""

# The work is done by the action plugin of the same name, on the controller.
