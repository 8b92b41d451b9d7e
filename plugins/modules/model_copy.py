#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_copy
short_description: Copy models to a host and verify them
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - The controller knows each model's files by size and SHA-256, and sends a host what it lacks. The host verifies each
    file. An incomplete or damaged file never has its final name, and a new model appears in one step.
  - An interrupted transfer resumes. Files that another model of the store already has are linked.
  - Each content of a model has a folder of its own, C(name@digest), and the name is a link to one of them. So a new
    revision never changes the files that are served.
  - A second run sends nothing and reads no weights. It compares sizes and times with the recorded ones.
  - Before anything is sent, it checks that the disk has room for all models, with 5 % in reserve.
extends_documentation_fragment:
  - sparkthor.cluster.models
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
options:
  verify:
    description: V(fast) compares sizes and times, V(full) reads every file again.
    type: str
    choices: [fast, full]
    default: fast
  hub_caches:
    description:
      - Folders on the host, as shell patterns, in which the hub's own client keeps models (C(.../huggingface/hub)).
        Large files that are wanted and lie there are copied instead of sent.
    type: list
    elements: str
    default: []
  fetch:
    description:
      - Who fetches a file of the hub that neither the controller nor a host has. V(auto) is the controller where it has
        room, else the host. The hub's own layout, and what lies behind a URL, is always the controller's.
    type: str
    choices: [auto, controller, host]
    default: auto
  deliver:
    description:
      - V(direct) sends what is missing over the connection of the task, and lets the models' names lead to it.
      - V(fabric) sends nothing. It says what is missing, for the fan-out (M(sparkthor.cluster.model_fanout)). The names
        stay as they are, because M(sparkthor.cluster.model_switch) changes them once all hosts have everything.
    type: str
    choices: [direct, fabric]
    default: direct
attributes:
  check_mode:
    details: A hub id that the controller has not fetched yet is not fetched in check mode.
"""

EXAMPLES = r"""
- name: A model from a folder of the controller
  sparkthor.cluster.model_copy:
    models:
      - name: tiny
        source: /srv/models/tiny

- name: A model from the hub
  sparkthor.cluster.model_copy:
    models:
      - name: qwen3-30b-a3b-thinking-2507-fp8
        source: Qwen/Qwen3-30B-A3B-Thinking-2507-FP8
        revision: main
"""

RETURN = r"""
models:
  description: What is where.
  returned: always
  type: dict
  sample:
    tiny:
      path: /var/lib/sparkthor/models/tiny@6f1ed002ab559585
      files: 5
      bytes: 12461234
      commit: ''
      wrong: []
      extra: []
behind:
  description: Models whose name did not lead to the declared revision before this call.
  returned: where there are some
  type: list
  elements: str
named:
  description: Revisions that this host serves with, or served with last.
  returned: always
  type: list
  elements: str
unlisted:
  description: Models of the store that are not declared.
  returned: always
  type: list
  elements: str
sent_bytes:
  description: Bytes that the controller sent to this host.
  returned: when something was sent
  type: int
from_caches:
  description: What came out of O(hub_caches), as C(bytes) and the C(caches) that had it.
  returned: when something did
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import models
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import private_store


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **models.ARGUMENTS,
            "verify": {"type": "str", "choices": ["fast", "full"], "default": "fast"},
            "hub_caches": {"type": "list", "elements": "str", "default": []},
            "fetch": {"type": "str", "choices": ["auto", "controller", "host"], "default": "auto"},
            "deliver": {"type": "str", "choices": ["direct", "fabric"], "default": "direct"},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        store, wanted = private_store(params["root"]), models.read(params["models"])
        full, alone = params["verify"] == "full", params["deliver"] == "direct"
        result = models.bring(
            store, wanted, check=module.check_mode, alone=alone, full=full, caches=params["hub_caches"]
        )
        module.exit_json(**result, named=kept.revisions_needed())
    except StoreError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{params['root']}: {error}")


if __name__ == "__main__":
    main()
