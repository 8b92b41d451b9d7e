#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: os_update
short_description: Update a host's packages, with a way back
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - The steps of C(playbooks/update.yml) on one host, in the order of O(state). Debian's packages alone.
  - Firmware is read and never written.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.no_diff
  - sparkthor.cluster.attributes.action
options:
  state:
    description:
      - V(planned) refreshes apt's lists and reads what an update would change, and which firmware the host has.
      - V(fetched) does the same, puts the former packages aside and downloads the new ones.
      - V(updated) installs what was fetched.
      - V(proven) compares the host with what O(before) says of it. It runs after a reboot.
      - V(taken_back) puts the former packages back, and removes those that came.
      - V(shown) shows on the controller, for all hosts together, what will happen and how firmware differs. It needs
        C(run_once=true).
    type: str
    choices: [planned, fetched, updated, proven, taken_back, shown]
    required: true
  packages:
    description: Only these packages; all that are installed if it is empty.
    type: list
    elements: str
    default: []
  plans:
    description: With O(state=shown), name of the variable in which each host's V(planned) was registered.
    type: str
  before:
    description: >-
      With O(state=proven) and O(state=shown), name of the variable in which M(sparkthor.cluster.node_info) with
      C(gather=status) was registered before the update.
    type: str
  timeout:
    description: Seconds for one call of apt.
    type: int
    default: 1800
attributes:
  check_mode:
    support: partial
    details: V(planned) is the same in check mode, and the others do nothing.
  diff_mode:
    details: Packages are changed, and the result names them.
  action:
    details: V(shown) and V(proven) judge on the controller.
"""

EXAMPLES = r"""
- name: Read what an update would change
  sparkthor.cluster.os_update:
    state: planned
  register: planned
  become: true
"""

RETURN = r"""
updates:
  description: Packages with C(name), C(old) and C(new) version.
  returned: in all states but V(shown) and V(proven)
  type: list
  elements: dict
new:
  description: Packages that come, with C(name) and C(new) version.
  returned: in all states but V(shown) and V(proven)
  type: list
  elements: dict
removed:
  description: Packages that go, with C(name) and C(old) version.
  returned: in all states but V(shown) and V(proven)
  type: list
  elements: dict
kept_back:
  description: Packages that stay although there is an update of them, as those that somebody holds do.
  returned: in all states but V(shown) and V(proven)
  type: list
  elements: str
reboots:
  description: Whether the host has to be rebooted after it.
  returned: in all states but V(shown) and V(proven)
  type: bool
no_way_back:
  description: Former packages that no repository and no cache has any more.
  returned: with O(state=fetched)
  type: list
  elements: str
firmware:
  description: Versions of firmware by name, as far as a tool shows them.
  returned: with O(state=planned)
  type: dict
problems:
  description: What is worse than before.
  returned: with O(state=proven)
  type: list
  elements: str
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.os_update import OsUpdate, Plan, UpdateError
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import c_environment, run_limited

ARGUMENTS = {
    "state": {
        "type": "str",
        "choices": ["planned", "fetched", "updated", "proven", "taken_back", "shown"],
        "required": True,
    },
    "packages": {"type": "list", "elements": "str", "default": []},
    "plans": {"type": "str"},
    "before": {"type": "str"},
    "timeout": {"type": "int", "default": 1800},
}


def run(argv: list[str], seconds: float) -> tuple[int, str, str]:
    environment = {**c_environment(), "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1"}
    return run_limited(argv, seconds, environment=environment)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    state, check = module.params["state"], module.check_mode
    update = OsUpdate(run, timeout=module.params["timeout"])
    more: dict[str, object] = {}
    try:
        if state in ("planned", "fetched"):
            plan = update.plan(module.params["packages"])
            if state == "planned":
                more = {"firmware": update.firmware()}
            elif not check:
                more = {"no_way_back": update.fetch(plan)}
        elif check or state not in ("updated", "taken_back"):
            plan = Plan()
        else:
            plan = update.apply() if state == "updated" else update.take_back()
    except UpdateError as error:
        module.fail_json(msg=str(error))
    changed = state in ("updated", "taken_back") and bool(plan.words)
    module.exit_json(
        changed=changed,
        updates=plan.updates,
        new=plan.new,
        removed=plan.removed,
        kept_back=plan.kept_back,
        reboots=plan.reboots or (changed and os.path.exists("/run/reboot-required")),
        **more,
    )


if __name__ == "__main__":
    main()
