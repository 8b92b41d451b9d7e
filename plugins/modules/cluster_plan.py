#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_plan
short_description: Validate the inventory and compute the plan of every host, once
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the controller, once for all hosts, and changes nothing anywhere.
  - In the stage V(inventory) it checks groups, cluster-wide variables, secrets and every role variable that the
    inventory sets, without speaking to a host.
  - In the stage V(facts) it checks that every host was reached and computes the fabric plan, the environment and the
    split of the model from the facts that M(sparkthor.cluster.node_info) read.
requirements:
  - netaddr (Python package, on the controller)
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
options:
  stage:
    description: Which stage to run.
    type: str
    choices: [inventory, facts]
    default: facts
  nodes:
    description:
      - Name of the variable in which M(sparkthor.cluster.node_info) was registered for each host. It says of a host
        without facts why it has none.
      - Needed in the stage V(facts), unless O(assumed=true).
    type: str
  assumed:
    description:
      - Take the hosts to be what machines of their kind are sold as, so that an inventory can be planned and its files
        rendered without any host. RV(nodes) are the facts that were assumed.
      - The kind is what the groups C(sparks) and C(thors) say. The management address is C(ansible_host) where that is
        an address, else one out of 198.18.0.0/15 (RFC 2544). On a C(lan) they are taken to be in the one network that
        holds them all, or, where some are names, to be none.
    type: bool
    default: false
notes:
  - Every problem found is part of one failure message, so that a person fixes all of them in one go.
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
  description: What is true of the cluster as a whole; preflight shares it as C(sparkthor_cluster).
  returned: in stage V(facts)
  type: dict
fabric:
  description:
    - By host, what P(sparkthor.cluster.fabric_plan#filter) returns; preflight shares it as C(sparkthor_fabric).
  returned: in stage V(facts)
  type: dict
"""

# The work is done by the action plugin of the same name, on the controller.
