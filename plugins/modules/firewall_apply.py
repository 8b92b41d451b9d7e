#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: firewall_apply
short_description: Load an nftables table for the cluster, with a rollback if the host is cut off
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Manages the table C(inet sparkthor) and nothing else in the host's firewall. Packets to the host are dropped unless
    they answer the host's own traffic, come from a peer on a trusted interface, or are allowed here. Forwarded traffic,
    such as that of Docker's bridges, and other tables are left alone.
  - The port of the ssh connection that this module uses is always open.
  - The ruleset is tried in a separate network namespace first. Before it is loaded, a timer is armed on the host that
    restores the former table. The controller then opens a new connection and confirms the change. Only then the host
    gets the files and the unit that load the ruleset at boot. If the new connection fails, or the controller dies, the
    host rolls back.
  - If nothing differs, all this is skipped and it is one call.
  - Check mode makes the same decisions and changes nothing.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
  - sparkthor.cluster.attributes.action
options:
  state:
    description: V(absent) removes the table, the files and the unit. It also works on a host without C(nft).
    type: str
    choices: [present, absent]
    default: present
  plan:
    description: The plan of all hosts (the fact C(sparkthor_fabric)), which says which peers are trusted.
    type: dict
    default: {}
  trusted:
    description: Computed from O(plan) on the controller, the trusted addresses by interface.
    type: dict
    default: {}
  ssh_ports:
    description: Ports of ssh.
    type: list
    elements: int
    default: [22]
  ssh_sources:
    description: Addresses and networks that may use ssh. Empty means all.
    type: list
    elements: str
    default: []
  api_port:
    description: Port of the API; V(0) on a host without it.
    type: int
    default: 0
  api_sources:
    description: Addresses and networks that may use the API. Empty means all.
    type: list
    elements: str
    default: []
  sources:
    description: More addresses and networks that may reach every port.
    type: list
    elements: str
    default: []
  interfaces:
    description: More interfaces on which every port is open, such as V(docker0).
    type: list
    elements: str
    default: []
  tcp_ports:
    description: More TCP ports that are open to everybody.
    type: list
    elements: int
    default: []
  udp_ports:
    description: More UDP ports that are open to everybody.
    type: list
    elements: int
    default: []
  mdns:
    description: Whether multicast DNS is allowed in.
    type: bool
    default: false
  vrrp_peers:
    description: Addresses that may send VRRP, by which hosts agree who has a virtual address.
    type: list
    elements: str
    default: []
  rollback_timeout:
    description: Seconds that the host waits for the confirmation before it rolls the change back (10 to 600).
    type: int
    default: 45
  step:
    description: For the controller's part of this module only.
    type: str
    choices: [start, confirm]
  token:
    description: For the controller's part of this module only.
    type: str
"""

EXAMPLES = r"""
- name: Peers, ssh and nothing else
  sparkthor.cluster.firewall_apply:
    plan: "{{ sparkthor_fabric }}"

- name: The head also serves the API, to one network
  sparkthor.cluster.firewall_apply:
    plan: "{{ sparkthor_fabric }}"
    api_port: 8000
    api_sources: [192.168.1.0/24]

- name: Undo
  sparkthor.cluster.firewall_apply:
    state: absent
"""

RETURN = r"""
changed_paths:
  description: Files that were written or removed.
  returned: always
  type: list
  elements: str
changed_units:
  description: Units whose enablement or state changed.
  returned: always
  type: list
  elements: str
table_changed:
  description: Whether the loaded table differed from the wanted one.
  returned: always
  type: bool
ssh_ports:
  description: Ports of ssh which are open, the one in use among them.
  returned: always
  type: list
  elements: int
confirmed:
  description: Whether the change was confirmed over a new connection. V(false) where no table had to be loaded.
  returned: success
  type: bool
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import HostStateError
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall import FirewallError
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall_host import ARGUMENTS, Firewall


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    if not 10 <= module.params["rollback_timeout"] <= 600:
        # the way back must still be ahead when the ruleset is loaded
        module.fail_json(msg=f"rollback_timeout: {module.params['rollback_timeout']} is not between 10 and 600 seconds")
    try:
        firewall = Firewall(module.params, module.check_mode)
        if module.params["state"] == "absent":
            result = firewall.absent()
        elif module.params["step"] == "confirm":
            result = firewall.confirm()
        else:
            result = firewall.start()
    except (FirewallError, HostStateError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
