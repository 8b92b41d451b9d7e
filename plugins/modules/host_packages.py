#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_packages
short_description: Record which packages an installation brings, and remove those that nothing else needs
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Installs nothing. V(noted) goes before a task that installs packages and V(recorded) after it, so that V(removed)
    knows what came with them.
  - Debian and Ubuntu only; on other systems nothing is recorded.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
options:
  state:
    description:
      - V(noted) keeps which packages are installed. V(recorded) records which came since.
      - V(removed) purges the recorded packages that no other package needs by apt's own reckoning. The others stay, and
        stay recorded.
    type: str
    choices: [noted, recorded, removed]
    required: true
  names:
    description: With V(recorded), the packages that were asked for; the others came with them.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds that one command of apt may take.
    type: int
    default: 600
"""

EXAMPLES = r"""
- name: Note what is installed
  sparkthor.cluster.host_packages:
    state: noted
  become: true

- name: Install nginx
  ansible.builtin.package:
    name: nginx
  become: true

- name: Record what came
  sparkthor.cluster.host_packages:
    state: recorded
    names: [nginx]
  become: true
"""

RETURN = r"""
packages:
  description: Packages that came (V(recorded)), or that were, in check mode would be, removed (V(removed)).
  returned: with O(state=recorded) and O(state=removed)
  type: list
  elements: str
kept:
  description: Recorded packages that something else needs.
  returned: with O(state=removed)
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Host
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.originals import Originals
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.packages import KIND, Packages
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import HostStateError
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["noted", "recorded", "removed"], "required": True},
            "names": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    state, check = module.params["state"], module.check_mode
    originals = Originals(Host(run=run_limited), module.warn)
    packages = Packages(run_limited, originals, module.params["timeout"])
    try:
        if state != "removed":
            came = [] if check else packages.record(module.params["names"]) if state == "recorded" else packages.note()
            # the record of what another task did is no change of its own
            module.exit_json(changed=False, packages=came or [])
        names = packages.removable()
        if not check:
            packages.remove(names)
    except HostStateError as error:
        module.fail_json(msg=str(error))
    before = "".join(f"{name}\n" for name in names)
    module.exit_json(
        changed=bool(names),
        packages=names,
        kept=sorted((packages.installed() & set(originals.entries(KIND))) - set(names)),
        diff={"before_header": "packages", "after_header": "packages", "before": before, "after": ""},
    )


if __name__ == "__main__":
    main()
