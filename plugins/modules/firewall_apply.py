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
  - Manages the table C(inet sparkthor) and nothing else in the host's firewall, by a ruleset that is one of O(files).
    Other tables are left alone.
  - The ruleset is tried in a separate network namespace first. Before it is loaded, a timer is armed on the host that
    restores the former table. The controller then opens a new connection and confirms the change. Only then the host
    gets the files and the units that load the ruleset at boot. If the new connection fails, or the controller dies, the
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
    description:
      - V(absent) removes the table, and takes back what the other options put on a host. It also works on a host
        without C(nft).
    type: str
    choices: [present, absent]
    default: present
  ruleset:
    description: Path of that one of O(files) that C(nft -f) loads.
    type: path
    required: true
  directories:
    description: As in M(sparkthor.cluster.host_state).
    type: list
    elements: dict
    default: []
  files:
    description: As in M(sparkthor.cluster.host_state), with C(template) and C(when).
    type: list
    elements: dict
    default: []
  units:
    description: As in M(sparkthor.cluster.host_state).
    type: list
    elements: dict
    default: []
  restore:
    description: As in M(sparkthor.cluster.host_state).
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
- name: ssh and nothing else
  sparkthor.cluster.firewall_apply:
    ruleset: /etc/sparkthor/firewall.nft
    files:
      - {path: /etc/sparkthor/firewall.nft, template: firewall.nft.j2, mode: "0600"}
      - {path: /etc/systemd/system/sparkthor-firewall.service, template: sparkthor-firewall.service.j2}
    units:
      - {name: sparkthor-firewall.service, enabled: true, state: started}
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
