#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_ready
short_description: Start the serving group if it must be, and wait for its first real completion
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the head. Ready means that a real one-token completion came back through all ranks; a C(/health) that
    says yes is no proof.
  - While it waits, the newest meaningful line of the engine's log and the elapsed time are shown on the controller.
  - A start that fails ends the task early, with the reason from the journal.
  - With O(start=true) the group is started if it does not run, and restarted once if files it was started with have
    another content now.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.no_diff
options:
  start:
    description: Whether to start the group, or restart it if its files changed.
    type: bool
    default: false
  settle:
    description:
      - Seconds that the ranks of other hosts get to report that their files changed, before O(start) decides; used
        where a rank has a unit of its own (executor V(mp)).
    type: float
    default: 0
  timeout:
    description: Seconds to wait for the first completion.
    type: int
    default: 2700
  attempts:
    description: Failed starts after which waiting ends; a start that must fail again the same way ends it at once.
    type: int
    default: 3
  patience:
    description: Seconds that one completion may take.
    type: int
    default: 20
  config:
    description: Description of the serving group on the head.
    type: path
    default: /etc/sparkthor/serving.json
  known_invocation:
    description: Used by the task itself between two looks.
    type: str
    default: ""
attributes:
  check_mode:
    details: Says whether the group would be started or restarted; does not wait.
  diff_mode:
    details: The module changes no files.
"""

EXAMPLES = r"""
- name: Wait for the model
  sparkthor.cluster.vllm_ready:
    start: true
    timeout: 3600
  become: true
"""

RETURN = r"""
ready:
  description: Whether a completion came back.
  returned: always
  type: bool
state:
  description: State of the serving group, such as V(serving) or V(loading).
  returned: always
  type: str
line:
  description: State with its detail.
  returned: always
  type: str
  sample: "loading: 41 % · loading weights 42 %"
deadline_problem:
  description:
    - Why the watchdog's deadline or interval is refused, with the latency that was measured; empty if they are fit.
    - The task fails with it; the watchdog itself never uses a deadline shorter than four ordinary completions.
  returned: always
  type: str
latency:
  description: Seconds that the completion took.
  returned: when ready
  type: float
waited:
  description: Seconds until the group was ready.
  returned: when ready
  type: float
stale:
  description: Files whose change made a restart necessary.
  returned: always
  type: list
  elements: str
"""

import dataclasses

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import ready


def main():
    module = AnsibleModule(
        argument_spec={
            "start": {"type": "bool", "default": False},
            "settle": {"type": "float", "default": 0},
            "timeout": {"type": "int", "default": 2700},
            "attempts": {"type": "int", "default": 3},
            "patience": {"type": "int", "default": 20},
            "config": {"type": "path", "default": "/etc/sparkthor/serving.json"},
            "known_invocation": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    try:
        found = ready.look(
            config_path=module.params["config"],
            start=module.params["start"],
            check=module.check_mode,
            known_invocation=module.params["known_invocation"],
            patience=module.params["patience"],
            settle=module.params["settle"],
        )
    except ready.ReadyError as error:
        module.fail_json(msg=str(error))
    result = dataclasses.asdict(found)
    result["deadline_problem"] = ready.deadline_problem(result) if found.ready else ""
    module.exit_json(**result)


if __name__ == "__main__":
    main()
