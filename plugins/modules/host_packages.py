#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_packages
short_description: Install packages with a record of all that came along, and take that back
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Installs by M(ansible.builtin.package). What was not there before is recorded, also where a run dies in between, so
    that V(absent) knows what came.
  - Debian and Ubuntu only; on other systems nothing is recorded.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
options:
  state:
    description:
      - V(present) installs O(names).
      - V(absent) purges the recorded packages that no other package needs by apt's own reckoning. The others stay, and
        stay recorded.
    type: str
    choices: [present, absent]
    default: present
  names:
    description: With V(present), the packages that are asked for; the others come with them.
    type: list
    elements: str
    default: []
  timeout:
    description: Seconds that one command of apt may take to remove packages.
    type: int
    default: 600
  step:
    description: Used by the controller's side of this module, before and after the installation.
    type: str
    choices: [note, record]
"""

EXAMPLES = r"""
- name: Install nginx
  sparkthor.cluster.host_packages:
    names: [nginx]
  become: true

- name: Remove the packages that came with the cluster
  sparkthor.cluster.host_packages:
    state: absent
  become: true
"""

RETURN = r"""
packages:
  description: Packages that came, or that were, in check mode would be, removed.
  returned: success
  type: list
  elements: str
kept:
  description: Recorded packages that something else needs.
  returned: with O(state=absent)
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
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "names": {"type": "list", "elements": "str", "default": []},
            "timeout": {"type": "int", "default": 600},
            "step": {"type": "str", "choices": ["note", "record"]},
        },
        supports_check_mode=True,
    )
    step, check = module.params["step"], module.check_mode
    originals = Originals(Host(run=run_limited), module.warn)
    packages = Packages(run_limited, originals, module.params["timeout"])
    try:
        if module.params["state"] == "present":
            came = [] if check else packages.record(module.params["names"]) if step == "record" else packages.note()
            # the record is no change of its own: the installation between the two steps is
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
