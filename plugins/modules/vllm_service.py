#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_service
short_description: Stop, start, restart or drain the serving group
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the head, and leaves word for the watchdog, so that it does not undo what a person wants.
  - While drained or stopped, the front stays up and answers 503 with C(Retry-After).
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.no_diff
options:
  state:
    description:
      - V(stopped) stops the group until V(started) or V(restarted), over reboots as well, and keeps the watchdog quiet.
      - V(started) ends both and starts the group without waiting for it, see P(sparkthor.cluster.vllm_ready#module).
      - V(restarted) does the same, and starts it anew where it runs.
      - V(drained) takes no new requests and waits until the running ones have ended.
    type: str
    choices: [started, stopped, restarted, drained]
    required: true
  drain_timeout:
    description:
      - Seconds to let running requests end.  V(0) does not wait with O(state=stopped) and O(state=restarted).
    type: int
    default: 0
  reason:
    description: What the watchdog and C(/health) say meanwhile.
    type: str
    default: stopped by playbook
attributes:
  diff_mode:
    details: The steps are in the result.
"""

EXAMPLES = r"""
- name: Stop serving, after the running requests have ended
  sparkthor.cluster.vllm_service:
    state: stopped
    drain_timeout: 300
    reason: new cables
  become: true
"""

RETURN = r"""
steps:
  description: What was (in check mode, would be) done.
  returned: always
  type: list
  elements: str
in_flight:
  description: Requests that were still running at the end of a drain.
  returned: when requests were counted
  type: int
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import control as _serving_control


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": list(_serving_control.STATES), "required": True},
            "drain_timeout": {"type": "int", "default": 0},
            "reason": {"type": "str", "default": "stopped by playbook"},
        },
        supports_check_mode=True,
    )
    control = _serving_control.Control(check=module.check_mode)
    try:
        outcome = control.apply(module.params["state"], module.params["reason"], module.params["drain_timeout"])
    except _serving_control.ControlError as error:
        module.fail_json(
            msg=str(error),
            changed=control.outcome.changed,
            steps=control.outcome.steps,
            in_flight=control.outcome.in_flight,
        )
    module.exit_json(changed=outcome.changed, steps=outcome.steps, in_flight=outcome.in_flight)


if __name__ == "__main__":
    main()
