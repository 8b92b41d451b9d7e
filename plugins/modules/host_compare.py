#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_compare
short_description: Find out in one call which roles have nothing to do on a host
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Compares the host with what each role in O(roles) wants, by the arguments of the role's own tasks, and probes the
    fabric ports (O(probe)). All of it is one call, because a call costs much more than the comparisons in it.
  - What a role wants are the calls that its own tasks make, read and templated on the controller as in the role, with
    their conditions, blocks, loops and included files. A task that depends on the result of another one is left out,
    and one that is no call of a module of this collection ends the comparison.
  - Roles that the run's tags leave out are left out here. Tags are those that the playbooks of this collection give the
    roles; with any other tag all roles are compared.
  - The first comparison that finds drift, fails or cannot be made ends the call. Its role and all after it then run as
    if nothing had been compared. So no role is skipped that has something to do, and each role reports its own errors.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.no_diff
  - sparkthor.cluster.attributes.action
options:
  roles:
    description:
      - Roles in the order in which the play runs them, without the collection's name.
      - V(all) alone stands for all roles of the play that are compared, in the order of C(site.yml).
    type: list
    elements: str
    default: []
  probe:
    description:
      - How to probe the fabric ports. If empty, they are not probed.
      - C(host) is the name of this host in the inventory, C(links) are its links as
        P(sparkthor.cluster.fabric_plan#filter) returns them.
      - C(path) is the netplan file of this collection; C(renderer) the renderer that the ports are going to have, empty
        for the host's default; C(floating) the addresses that go from host to host. They are the arguments of
        M(sparkthor.cluster.netplan_apply).
      - C(seconds) is how long to listen for a neighbour that is silent on every port, V(5) by default; C(training) how
        much longer where a port has no carrier and one of its ends was only just set up, V(5) by default; C(timeout)
        the seconds that one command may take, V(10) by default.
      - Reads carrier, MTU limits and RDMA links of the planned ports, and all settings in netplan and NetworkManager
        that conflict with the plan. M(sparkthor.cluster.cluster_plan) judges them.
      - Finds out which host is at the other end of each cable by Ethernet frames of its own (EtherType 0x88B5), because
        there may be no addresses yet. All hosts must do it at the same time, as they do in one task of a play.
      - A port that is administratively down is set up for the time of the probe and down again afterwards.
    type: dict
    default: {}
  folders:
    description:
      - By variable, the folders that roles give to the serving user. One that is somebody else's is refused.
      - Computed on the controller from the roles' variables; not an option of the task.
    type: dict
    default: {}
  room:
    description:
      - Set by the action plugin, by the folder of a model store the bytes of each model that it is to hold. One that is
        not there and would not fit is refused.
    type: dict
    default: {}
  exposure:
    description: Set by the action plugin, the NIC that the controller comes in by.
    type: str
    default: ''
  comparisons:
    description: Set by the action plugin.
    type: list
    elements: dict
    default: []
attributes:
  check_mode:
    details: Ports that are administratively down stay so; their carrier and neighbours are returned as unknown.
  diff_mode:
    details: Nothing stays changed.
  action:
    details: It evaluates what the roles want.
"""

EXAMPLES = r"""
- name: Probe the fabric ports of all hosts at once, and compare the hosts with what the roles want
  sparkthor.cluster.host_compare:
    roles: [os_hardening, roce_network]
    probe:
      host: "{{ inventory_hostname }}"
      links: "{{ sparkthor_fabric[inventory_hostname].links }}"
  register: compared
"""

RETURN = r"""
converged:
  description: Roles that have nothing to do on this host.
  returned: success
  type: list
  elements: str
  sample: [os_hardening, roce_network]
compared:
  description: Roles of O(roles) that this run has.
  returned: success
  type: list
  elements: str
refused:
  description: >-
    What roles would refuse after others have changed the host - values that their plans cannot use, models that are not
    there, folders that are somebody else's. Each names variable, value and fix.
  returned: success
  type: list
  elements: str
drift:
  description: The first role that has something to do, and what, or else RV(unknown); empty if none has.
  returned: success
  type: str
  sample: "os_hardening: /etc/sysctl.d/60-sparkthor.conf"
unknown:
  description: The first role of which only a run can tell whether it has something to do, and why; empty if none is.
  returned: success
  type: str
  sample: "engine: Docker has to be asked"
renamed:
  description: That the host has another name than when it was last set up.
  returned: where it has
  type: str
probe:
  description: What was found at the fabric ports; M(sparkthor.cluster.cluster_plan) judges it.
  returned: with O(probe)
  type: dict
  contains:
    ports:
      description:
        - By NIC, C(present), C(up), C(carrier) (V(null) where unknown) and C(mtu).
        - C(rate) in Gb/s of one that was set up for the probe, where it was read before it was set down again.
      type: dict
    neighbours:
      description: By NIC, the C(host) and C(netdev) of every frame seen there.
      type: dict
    cabled:
      description: By NIC, the hosts whose frames came in over a plain cable, which no switch passes on.
      type: dict
    switches:
      description: By NIC on a switch, how LLDP calls that switch, where lldpd runs.
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
      description: How long the probe took.
      type: float
exposure:
  description:
    - What the roles firewall and os_hardening would take from somebody. M(sparkthor.cluster.cluster_plan) judges it.
    - C(firewall) is whether this collection's firewall is there already. If not, C(listeners) are the TCP ports that
      programs listen on (C(address), C(port), C(program)), and C(udp) the UDP ports.
    - C(others) are the nftables of another firewall that is active.
    - C(wifi) is the NetworkManager connection by which the controller comes in over Wi-Fi, with C(name), C(users) and
      whether it C(asks) a session for a secret.
  returned: when one of these roles is in O(roles)
  type: dict
compiled:
  description: Whether an engine has compiled anything on this host.
  returned: when the role engine is in O(roles)
  type: bool
ansible_facts:
  description: The fact C(sparkthor_engine) as the role engine sets it.
  returned: when the role engine has nothing to do
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._drift import compare
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state import folders
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.quiet import QuietModule


def probe_ports(module: AnsibleModule, invocation: dict[str, Any]) -> dict[str, Any]:
    from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
    from ansible_collections.sparkthor.cluster.plugins.module_utils._network import ports

    checked = ArgumentSpecValidator(ports.ARGUMENTS).validate(module.params["probe"])
    if checked.error_messages:
        module.fail_json(msg="probe: " + "; ".join(checked.error_messages), invocation=invocation)
    try:
        return ports.probe(checked.validated_parameters, module.check_mode)
    except ports.ProbeError as error:
        module.fail_json(msg=str(error), invocation=invocation)


def main() -> None:
    module = QuietModule(
        argument_spec={
            "roles": {"type": "list", "elements": "str", "default": []},
            "probe": {"type": "dict", "default": {}},
            "folders": {"type": "dict", "default": {}},
            "room": {"type": "dict", "default": {}},
            "exposure": {"type": "str", "default": ""},
            "comparisons": {"type": "list", "elements": "dict", "default": []},
        },
        supports_check_mode=True,
    )
    # what the files of the roles hold is nobody's business, whatever becomes of the call
    shown = {name: module.params[name] for name in ("roles", "probe", "folders")}
    invocation = {"module_args": {**shown, "comparisons": "..."}}
    result: dict[str, Any] = {"changed": False}
    if module.params["probe"]:
        # first: the other hosts wait for this one's frames
        result["probe"] = probe_ports(module, invocation)
    result["refused"] = folders.refused(module.params["folders"])
    if cache := module.params["folders"].get("engine_cache_dir"):
        from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import compiled

        result["compiled"] = compiled.present(str(cache))
    for root, sizes in module.params["room"].items():
        from ansible_collections.sparkthor.cluster.plugins.module_utils._store import room

        result["refused"] += room.refused(root, sizes)
    if module.params["exposure"]:
        from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import exposure

        result["exposure"] = exposure.read_now(module.params["exposure"])
    result["converged"], result["drift"] = compare.compare(module.params["comparisons"])
    module.exit_json(invocation=invocation, **result)


if __name__ == "__main__":
    main()
