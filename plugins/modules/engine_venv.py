#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_venv
short_description: Install the engine on a host as a Python environment, without a network there
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - The controller holds a lock and a folder of wheels. It sends the host what the host lacks. If the host has what is
    described, nothing is sent and one quick check is all that happens.
  - The host builds the environment from wheels alone with C(uv), which comes out of its own wheel. O(path) is a link.
    An environment is built beside the one in use and the link is switched in one step, so neither a killed run nor a
    failed build ever leaves half an environment behind, and running processes keep theirs.
  - The quick check finds packages and programs that were removed, added or replaced, and big files of another size.
  - Wheels are chosen for the Python, machine and C library of the host, never for the controller's. What the
    controller's folder lacks is fetched with C(pip download) there, with the controller's own settings.
  - Returns the fact C(sparkthor_engine).
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.engine
  - sparkthor.cluster.engine.installed
  - sparkthor.cluster.engine.programs
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
options:
  path:
    description: Where the environment is found.
    type: path
    default: /opt/sparkthor/venv
  python:
    description: Interpreter on the host the environment is made with, a name or a path.
    type: str
    default: /usr/bin/python3
  verify:
    description: V(fast) compares names and sizes, V(full) compares each file with the hash recorded by its package.
    type: str
    choices: [fast, full]
    default: fast
attributes:
  check_mode:
    details: Wheels that the controller lacks are only named.
"""

EXAMPLES = r"""
- name: The engine in an environment
  sparkthor.cluster.engine_venv:
    requirements: "{{ inventory_dir }}/engine-cp312-aarch64.txt"
"""

RETURN = r"""
ansible_facts:
  description: The engine of this host, under C(sparkthor_engine).
  returned: always
  type: dict
  contains:
    sparkthor_engine:
      description: Where it is and what is in it. In check mode, what would be, as far as it is known.
      type: dict
      returned: always
      sample:
        path: /opt/sparkthor/venv
        digest: 3f6f0d1c2b7a9e44
        python: "3.12"
        machine: aarch64
        versions:
          ray: 2.60.0
problems:
  description: What was wrong with the environment before.
  returned: always
  type: list
  elements: str
command:
  description: How the Python of this engine is called, also where it is not in use yet.
  returned: unless check mode finds no such engine
  type: list
  elements: str
wheels:
  description: Where the wheels belong and which they are.
  returned: with O(deliver=fabric) when some are missing
  type: dict
sent_bytes:
  description: Bytes sent to this host.
  returned: when something was sent
  type: int
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import arguments, venv
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **arguments.INSTALLED,
            **arguments.PROGRAMS,
            "path": {"type": "path", "default": "/opt/sparkthor/venv"},
            "python": {"type": "str", "default": "/usr/bin/python3"},
            "verify": {"type": "str", "choices": ["fast", "full"], "default": "fast"},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        if not params["target"]:
            # the controller's side chooses wheels by it
            module.exit_json(changed=False, target=venv.probe_python(params["python"], venv.run))
        outcome = venv.apply({**params, "needed": kept.needed().folders}, module.check_mode)
        for warning in outcome.pop("warnings", ()):
            module.warn(warning)
        module.exit_json(**outcome)
    except (EngineError, StoreError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{params['path']}: {error}")


if __name__ == "__main__":
    main()
