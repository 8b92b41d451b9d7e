# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: ray_plan
author: sparkthor.cluster contributors (@sparkthor)
version_added: 0.1.0
short_description: Plan one Ray node from the cluster's plan
description:
  - Computes the arguments of C(ray start) with every port pinned and the control address bound, the expected cluster
    that gate, watchdog and P(sparkthor.cluster.ray_info#module) compare with, and what is wrong with the settings.
positional: _input
options:
  _input:
    description: The cluster as preflight planned it, the fact C(sparkthor_cluster).
    type: dict
    required: true
  fabric:
    description: The fabric as preflight planned it, the fact C(sparkthor_fabric).
    type: dict
    required: true
  host:
    description: Name of the host in the inventory.
    type: str
    required: true
  settings:
    description: Variables of the role C(ray_node) without their prefix.
    type: dict
    required: true
  node:
    description: Facts of the host, C(sparkthor_node).
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Show how Ray would be started on this host
  ansible.builtin.debug:
    msg: >-
      {{ (sparkthor_cluster | sparkthor.cluster.ray_plan(sparkthor_fabric, inventory_hostname, settings)).arguments }}
  vars:
    settings:
      ports: {}
      worker_port_min: 20000
      worker_port_max: 20999
      object_store_memory: 1073741824
      temp_dir: /var/lib/sparkthor/ray
"""

RETURN = r"""
_value:
  description:
    - C(problems) is a list of messages, empty if all is well; C(arguments) follow the program's name; C(config) is the
      content of C(/etc/sparkthor/ray.json); C(head) and C(address) are this host's.
  type: dict
"""

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.ray_node import node_plan


def ray_plan(cluster, fabric, host, settings, node=None):
    try:
        return node_plan(cluster, fabric, host, settings, node)
    except (KeyError, TypeError, AttributeError) as error:
        raise AnsibleFilterError(f"ray_plan: the plan or the settings lack something: {error!r}") from error


class FilterModule:
    def filters(self):
        return {"ray_plan": ray_plan}
