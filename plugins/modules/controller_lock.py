#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: controller_lock
short_description: Let one controller at a time change a cluster
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Run it on the head of each serving group before the first change. It fails if another controller, or another run on
    this one, is changing the group, and says who and since when.
  - The lock needs no release. A process on the controller gives the head a sign of life every 20 seconds, and releases
    the lock when the run of Ansible has ended, whichever way. A lock without a sign of life for 90 seconds is taken
    over, with a warning.
  - In check mode nobody is locked out and nobody is asked.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.no_diff
  - sparkthor.cluster.attributes.action
options:
  token:
    description: Used by the controller's side of this module.
    type: str
    default: ""
  owner:
    description: Used by the controller's side of this module.
    type: str
    default: ""
  play:
    description: Used by the controller's side of this module.
    type: str
    default: ""
attributes:
  diff_mode:
    details: A lock is not a state of the host.
"""

EXAMPLES = r"""
- name: Lock the cluster
  sparkthor.cluster.controller_lock:
  become: true
  any_errors_fatal: true
  when: inventory_hostname in groups['ray_head']
"""

RETURN = r"""
since:
  description: When this run took the lock; empty in check mode.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state import controller_lock as lock


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "token": {"type": "str", "default": "", "no_log": False},
            "owner": {"type": "str", "default": ""},
            "play": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, since="")
    try:
        holder, former, age = lock.take(lock.Holder(**module.params))
        mine = lock.read()[0]
    except OSError as error:
        module.fail_json(msg=f"{lock.PATH}: {error.strerror}; the lock needs root (become)")
    if holder is not None:
        module.fail_json(msg=lock.refusal(holder, age))
    if former is not None:
        module.warn(
            f'took over the lock of {former.owner} ("{former.play}" since {former.since}): no sign of life for '
            f"{age:.0f} s"
        )
    module.exit_json(changed=False, since=mine.since if mine else "")


if __name__ == "__main__":
    main()
