#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_trial
short_description: Try an engine that is not in use yet
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Imports the programs of an engine, and Ray where it is there, of one that M(sparkthor.cluster.engine_venv) or
    M(sparkthor.cluster.engine_image) brought with C(activate=false), while the one in use serves. Fails if it is
    another version, does not see the GPU or brings an NCCL that is too old.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
options:
  command:
    description: How the Python of the engine is called, as the serving user.
    type: list
    elements: str
    required: true
  engine:
    description: The engine's name. One that no trial is known of is not tried.
    type: str
    required: true
  model:
    description: Whether a tiny model is loaded and answers, where memory allows.
    type: bool
    default: false
  versions:
    description: The versions that the engine must have.
    type: dict
    default: {}
  kind:
    description: The kind of host. On a V(spark) and a V(thor) the engine must see the GPU.
    type: str
    default: ''
  nccl:
    description: The oldest NCCL that the topology works with. Any if empty.
    type: str
    default: ''
  timeout:
    description: Seconds that the trial may take.
    type: int
    default: 600
"""

EXAMPLES = r"""
- name: Try the new engine
  sparkthor.cluster.engine_trial:
    command: [/opt/sparkthor/venvs/3f6f0d1c/bin/python]
    engine: sglang
    kind: spark
"""

RETURN = r"""
trial:
  description: Versions of the tried engine, its GPU and NCCL, and how many tokens (C(tokens)) a tiny model gave.
  returned: always
  type: dict
left_out:
  description: What was not tried, and why; empty if all was.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import trial
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "command": {"type": "list", "elements": "str", "required": True},
            "engine": {"type": "str", "required": True},
            "model": {"type": "bool", "default": False},
            "versions": {"type": "dict", "default": {}},
            "kind": {"type": "str", "default": ""},
            "nccl": {"type": "str", "default": ""},
            "timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        found, left_out = trial.attempt(
            params["command"], params["model"], params["timeout"], trial.available(), engine=params["engine"]
        )
        trial.check(found, params["versions"], params["kind"], params["nccl"])
        module.exit_json(changed=False, trial=found, left_out=left_out)
    except EngineError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
