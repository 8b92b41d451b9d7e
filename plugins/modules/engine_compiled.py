#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_compiled
short_description: Pass on to a host without compiled kernels what a host like it compiled
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Hosts are alike that have the same kind, machine, operating system, GPU and engine. One that has nothing compiled
    takes all from one like it, of the hosts that serve with it, over the fabric.
  - The serving user alone reads and writes its cache, and what is there stays as it is.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.no_diff
  - sparkthor.cluster.attributes.action
options:
  step:
    description:
      - Each step is one task for all hosts. V(give) has one host write down what it compiled, V(compare) says what the
        others lack of it, for M(sparkthor.cluster.model_fanout), and V(take) gives it its place.
      - V(tidy) is used by the controller's side of this module.
    type: str
    choices: [give, compare, take, tidy]
    required: true
  cache:
    description: Folder of the engine's caches.
    type: path
    default: /var/lib/sparkthor/cache
  root:
    description: Folder on the host, root's alone, in which the file waits to be copied or taken.
    type: path
    default: /opt/sparkthor/compiled
  fabric:
    description: The fabric plan (C(sparkthor_fabric)).
    type: dict
    default: {}
  timeout:
    description: Seconds that reading or writing the cache may take.
    type: int
    default: 120
attributes:
  check_mode:
    details: Nothing is written down; a host that would take something says from whom.
  action:
    details: It decides which host gives.
"""

EXAMPLES = r"""
- name: Have one host write down what it compiled
  sparkthor.cluster.engine_compiled:
    step: give
    fabric: "{{ sparkthor_fabric }}"
"""

RETURN = r"""
giver:
  description: The host that gives; empty if this host has no part in it.
  returned: with O(step=give)
  type: str
files:
  description: Files that were laid into the cache.
  returned: with O(step=take) on a host that took something
  type: int
bytes:
  description: What they hold.
  returned: with O(step=take) on a host that took something
  type: int
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import compiled
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "step": {"type": "str", "choices": ["give", "compare", "take", "tidy"], "required": True},
            "cache": {"type": "path", "default": "/var/lib/sparkthor/cache"},
            "root": {"type": "path", "default": "/opt/sparkthor/compiled"},
            "fabric": {"type": "dict", "default": {}},
            "timeout": {"type": "int", "default": 120},
        },
        supports_check_mode=True,
    )
    params = module.params
    steps = {"give": compiled.give, "take": compiled.take, "tidy": compiled.tidy}
    if module.check_mode or params["step"] not in steps:
        module.exit_json(changed=False)
    try:
        module.exit_json(**steps[params["step"]](params))
    except (EngineError, StoreError) as error:
        module.fail_json(msg=str(error))
    except (OSError, KeyError) as error:
        module.fail_json(msg=f"{params['cache']}: {error}")


if __name__ == "__main__":
    main()
