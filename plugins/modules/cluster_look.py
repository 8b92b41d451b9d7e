#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_look
short_description: Read in one call what status, verify and report want to know of a host
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Reads the host itself (as M(sparkthor.cluster.node_info) does), memory, disk, uptime, units, RDMA links with their
    counters, versions of the engine, what is served and, on the head, what Ray says of its nodes.
  - One remote task for all of it, because a task costs more than the look. What does not answer in time is missing in
    the result and is no error; no secret is read.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
options:
  timeout:
    description: Seconds that one command on the host may take.
    type: int
    default: 5
"""

EXAMPLES = r"""
- name: Check every host
  sparkthor.cluster.cluster_look:
  register: look
  become: true

- name: Memory that is left
  ansible.builtin.debug:
    msg: "{{ look.look.memory.available // 2**30 }} GiB"
"""

RETURN = r"""
look:
  description: What was seen.
  returned: always
  type: dict
  contains:
    node:
      description: The host, as M(sparkthor.cluster.node_info) returns it.
      type: dict
    memory:
      description: Bytes of C(total), C(available), C(cached), C(swap_total) and C(swap_used).
      type: dict
    units:
      description: State of this collection's units by name.
      type: dict
    rdma:
      description: C(links) as M(sparkthor.cluster.rdma_info) returns them, each with C(counters).
      type: dict
    serving:
      description: Served model, the watchdog's state and the engine's plain options.
      type: dict
    ray:
      description: Whether Ray is configured, and on the head what M(sparkthor.cluster.ray_info) returns.
      type: dict
    engine:
      description: The engine's C(runtime), V(venv) or V(container), and for the first its folder C(path).
      type: dict
    versions:
      description: Versions of the engine's parts.
      type: dict
seconds:
  description: How long the look took on the host.
  returned: always
  type: float
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts.host_status import HostReader
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited


def main() -> None:
    module = AnsibleModule(argument_spec={"timeout": {"type": "int", "default": 5}}, supports_check_mode=True)
    timeout = module.params["timeout"]
    if timeout < 1:
        module.fail_json(msg=f"timeout is {timeout}: a command needs at least 1 second")
    started = time.monotonic()
    look = HostReader(lambda argv: run_limited(argv, timeout)).read()
    module.exit_json(changed=False, look=look, seconds=round(time.monotonic() - started, 3))


if __name__ == "__main__":
    main()
