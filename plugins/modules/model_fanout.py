#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_fanout
short_description: Copy what hosts lack from host to host over the fabric
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Each step is one task for all hosts, so that no host begins one before all have ended the one before.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.models
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.no_diff
options:
  step:
    description:
      - V(seed) sends what no host has to the host that lacks least. V(start) starts the copy on every host, V(watch)
        shows its progress, V(finish) gives the files their final names.
      - V(parts) is used by the controller's side of this module.
    type: str
    choices: [seed, parts, start, watch, finish]
    required: true
  results:
    description: Variable in which the results of M(sparkthor.cluster.model_copy) were registered.
    type: str
    default: __model_store_check
  run:
    description: Variable in which the results of O(step=seed) were registered.
    type: str
    default: __model_store_run
  fabric:
    description: The fabric plan (C(sparkthor_fabric)).
    type: dict
    default: {}
  head:
    description: Host that the controller sends to if all lack the same.
    type: str
    default: ''
  fetch:
    description: As of M(sparkthor.cluster.model_copy).
    type: str
    choices: [auto, controller, host]
    default: auto
  shape:
    description:
      - With V(chain) each host sends to one other host.
      - With V(tree) each host sends to two others. This works on a switch only, and helps with many small files on many
        hosts.
    type: str
    choices: [chain, tree]
    default: chain
  streams:
    description: Connections for each half of the fabric between two hosts.
    type: int
    default: 2
  port:
    description: TCP port on the fabric addresses, open while a copy runs.
    type: int
    default: 29870
  patience:
    description: Seconds without new data after which a host gives up.
    type: int
    default: 60
  seconds:
    description: Seconds after which a copy is broken off. It may take as long as it likes if V(0).
    type: int
    default: 0
  job:
    description: Used by the controller's side of this module; JSON.
    type: str
    default: ''
  key:
    description: Used by the controller's side of this module.
    type: str
    default: ''
attributes:
  check_mode:
    support: none
"""

EXAMPLES = r"""
- name: Copy models that no host has to the first host
  sparkthor.cluster.model_fanout:
    step: seed
    models: "{{ models }}"
    fabric: "{{ sparkthor_fabric }}"
"""

RETURN = r"""
received_bytes:
  description: Bytes that came to this host over the fabric.
  returned: by O(step=finish)
  type: int
"""

import json

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import models
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import private_store


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **models.ARGUMENTS,
            "step": {"type": "str", "choices": ["seed", "parts", "start", "watch", "finish"], "required": True},
            "results": {"type": "str", "default": "__model_store_check"},
            "run": {"type": "str", "default": "__model_store_run"},
            "fabric": {"type": "dict", "default": {}},
            "head": {"type": "str", "default": ""},
            "fetch": {"type": "str", "choices": ["auto", "controller", "host"], "default": "auto"},
            "shape": {"type": "str", "choices": ["chain", "tree"], "default": "chain"},
            "streams": {"type": "int", "default": 2},
            "port": {"type": "int", "default": 29870},
            "patience": {"type": "int", "default": 60},
            "seconds": {"type": "int", "default": 0},
            # the key is an option of its own: what is hidden goes from every sentence that has it, as "{}" or a name
            "job": {"type": "str", "default": "", "no_log": False},
            "key": {"type": "str", "default": "", "no_log": True},
        },
    )
    params = module.params
    try:
        store, wanted = private_store(params["root"]), models.read(params["models"])
        job = json.loads(params["job"] or "{}")
        if params["step"] == "parts":
            module.exit_json(**models.parts(store, wanted, job))
        if params["step"] == "start":
            module.exit_json(**models.start(store, wanted, job, params["key"]))
        module.exit_json(**models.finish(store, wanted, str(job["run"]), params["patience"]))
    except StoreError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{params['root']}: {error}")


if __name__ == "__main__":
    main()
