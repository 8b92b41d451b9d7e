#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_info
short_description: Read the state of the serving group
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the head and returns what the watchdog knows, what systemd says of the units, and the requests in flight.
  - Sends no completion and changes nothing.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
options:
  log_lines:
    description: Number of the engine's newest log lines to return.
    type: int
    default: 0
"""

EXAMPLES = r"""
- name: Read the serving group
  sparkthor.cluster.vllm_info:
    log_lines: 20
  become: true
  register: serving
"""

RETURN = r"""
state:
  description: State of the serving group, V(unknown) where no watchdog reports.
  returned: always
  type: str
  sample: serving
line:
  description: State with its detail.
  returned: always
  type: str
watchdog:
  description: The watchdog's own report, without its memory; empty where there is none.
  returned: always
  type: dict
fresh:
  description: Whether that report is of the last 30 seconds.
  returned: always
  type: bool
units:
  description: Properties of the head's units by name.
  returned: always
  type: dict
in_flight:
  description: Requests that run or wait in the engine; V(none) where it does not answer.
  returned: always
  type: int
model:
  description: Name under which the model is served.
  returned: always
  type: str
maintenance:
  description: Why the watchdog keeps quiet; V(none) outside of maintenance.
  returned: always
  type: str
log:
  description: The engine's newest log lines.
  returned: always
  type: list
  elements: str
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    progress,
    serving,
    watchdog_report,
)

UNITS = ("sparkthor-vllm.service", "sparkthor-front.service", "sparkthor-watchdog.service")


def main():
    module = AnsibleModule(argument_spec={"log_lines": {"type": "int", "default": 0}}, supports_check_mode=True)
    config = serving.read_json(serving.CONFIG)
    state = serving.read_json(serving.STATE)
    state.pop("memory", None)
    units = {name: serving.show(name) for name in UNITS}
    updated = state.get("updated")
    fresh = isinstance(updated, (int, float)) and abs(time.time() - updated) < 30
    socket = config.get("socket", "")
    text = serving.metrics(socket) if socket and serving.listening(socket) else ""
    lines = module.params["log_lines"]
    log = serving.journal(UNITS[0], units[UNITS[0]].get("InvocationID", ""), lines) if lines > 0 else []
    module.exit_json(
        changed=False,
        state=str(state.get("state", "unknown")) if fresh else "unknown",
        line=str(state.get("line", "no watchdog reports")) if fresh else "no watchdog reports",
        watchdog=state,
        fresh=fresh,
        units=units,
        in_flight=watchdog_report.requests_in_flight(text),
        model=str(config.get("model", "")),
        maintenance=serving.maintenance(),
        log=[progress.plain(line) for line in log],
    )


if __name__ == "__main__":
    main()
