# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: fabric_plan
author: sparkthor.cluster contributors (@sparkthor)
version_added: 0.1.0
short_description: Plan addresses, peers and environment of a cluster's fabric
description:
  - Computes, from the inventory alone, which address each fabric port of each host gets, who is at the other end of
    its cable, and which environment NCCL, Gloo, UCX, Open MPI, the engine and Ray need on that host.
  - The result depends on nothing but its arguments. Adding a host at the end of the list changes no existing address.
  - V(direct) and V(switch) cut O(cidr) in two, one subnet per half of the cage; host number i counted from 0 gets
    address i + 1 of each. V(ring) and V(line) have a subnet for each half of each cable; the V(p0) end of a cable gets
    C(.1), the V(p1) end C(.2). V(lan) adopts the management addresses.
requirements:
  - netaddr (Python package, on the controller)
positional: _input
options:
  _input:
    description: Names of the hosts, in an order that new hosts are appended to.
    type: list
    elements: str
    required: true
  topology:
    description: How the hosts are joined.
    type: str
    choices: [direct, ring, line, switch, lan]
    required: true
  cidr:
    description: Unused IPv4 range the fabric's subnets are cut from. Not used on a V(lan).
    type: str
  cage:
    description:
      - QSFP cage that is cabled, V(0) next to the RJ45 port or V(1); a dictionary by host where it differs. A host that
        is not in it gets V(1). A V(ring) and a V(line) use both cages.
    type: raw
    default: 1
  mtu:
    description:
      - MTU of the fabric ports, V(1280) to V(9216). Left out, it is V(9000) on RoCE topologies and untouched on a
        V(lan). A Thor gets at most V(8966), and that by itself where it is cabled.
    type: int
  management:
    description: Management address with prefix length by host. Needed for V(ring), V(line) and V(lan).
    type: dict
    default: {}
  kinds:
    description: Kind of each host, V(spark), V(thor) or V(generic).
    type: dict
    default: {}
  nics:
    description: Management NIC by host. Needed for V(lan); on a V(ring) or V(line) it defaults to V(enP7s7).
    type: dict
    default: {}
  overrides:
    description: Addresses to use instead of the allotted ones, by host and then by NIC.
    type: dict
    default: {}
  ray_head:
    description: Host that runs the Ray head. Left out, it is the first host.
    type: str
  ray_ports:
    description: Ports of Ray that are not the usual ones, by key; of them C(gcs) counts here.
    type: dict
    default: {}
  reserved:
    description: Numbers of places that no host gets, counted from 1, on V(direct) and V(switch).
    type: list
    elements: int
    default: []
  nccl_patch:
    description: On a V(ring), the variable of the patch that the engine's NCCL has. Left out, NCCL is as it is.
    type: str
  lanes:
    description:
      - On a V(direct) or V(switch) of Thors alone, the lanes of their QSFP cages that are cabled, V(0) to V(3). Left
        out, it is all four.
    type: list
    elements: int
"""

EXAMPLES = r"""
- name: Show what every host gets
  ansible.builtin.debug:
    msg: "{{ groups['cluster'] | sparkthor.cluster.fabric_plan(topology='switch', cidr='10.100.0.0/24') }}"

- name: Keep an address that is in use already
  ansible.builtin.debug:
    msg: >-
      {{ ['a', 'b'] | sparkthor.cluster.fabric_plan(topology='direct', cidr='10.100.0.0/24',
         overrides={'b': {'enp1s0f1np1': '10.100.0.77'}}) }}
"""

RETURN = r"""
_value:
  description:
    - A dictionary by host name.
    - Each host has C(control_address), C(control_netdev), C(kind), C(topology), C(profile) (V(roce) or V(tcp)) with
      C(profile_reason), C(addressing) (V(managed), or V(adopted) on a V(lan)), C(links) (a list of C(netdev),
      C(device), C(half), C(address), C(subnet), C(peer), C(peer_netdev), C(mtu)), C(trusted_netdevs),
      C(management_address), C(management_netdev) and C(env).
  type: dict
"""

import typing as t

from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import HostPlan
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import fabric_plan as _fabric_plan
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError


def fabric_plan(
    hosts: t.Any,
    topology: t.Any,
    cidr: t.Any = None,
    cage: t.Any = 1,
    mtu: t.Any = None,
    management: t.Any = None,
    kinds: t.Any = None,
    nics: t.Any = None,
    overrides: t.Any = None,
    ray_head: t.Any = None,
    ray_ports: t.Any = None,
    reserved: t.Any = None,
    nccl_patch: t.Any = None,
    lanes: t.Any = None,
) -> dict[str, HostPlan]:
    try:
        return _fabric_plan(
            hosts,
            topology,
            cidr,
            cage,
            mtu,
            management,
            kinds,
            nics,
            overrides,
            ray_head,
            ray_ports,
            reserved,
            nccl_patch,
            lanes=lanes,
        )
    except FabricError as error:
        raise AnsibleFilterError(f"fabric_plan: {error}") from error


class FilterModule:
    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        return {"fabric_plan": fabric_plan}
