#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_prune
short_description: List the models of a host's store, and remove those that are not in use
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Each folder of the store with its size, what it is for, and whether it is whole.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.models
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
options:
  remove_unused:
    description: Remove the models that are neither declared nor kept nor in use, and what interrupted runs left.
    type: bool
    default: false
  keep:
    description: Names that O(remove_unused) leaves alone.
    type: list
    elements: str
    default: []
  results:
    description: Variable in which the results of a listing of all hosts were registered.
    type: str
    default: model_store_inventory
  in_use:
    description: Used by the controller's side of this module.
    type: list
    elements: str
    default: []
  declared:
    description: Used by the controller's side of this module.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: List the model store
  sparkthor.cluster.model_prune:
    models: "{{ models }}"
  register: model_store_inventory
"""

RETURN = r"""
inventory:
  description: Of each folder of the store its name, size, number of files, use and a verdict.
  returned: always
  type: list
  elements: dict
removed:
  description: Models that were removed.
  returned: always
  type: list
  elements: str
named:
  description: Revisions that this host serves with, or served with last.
  returned: always
  type: list
  elements: str
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
            "remove_unused": {"type": "bool", "default": False},
            "keep": {"type": "list", "elements": "str", "default": [], "no_log": False},
            "results": {"type": "str", "default": "model_store_inventory"},
            "in_use": {"type": "list", "elements": "str", "default": []},
            "declared": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        store = private_store(params["root"])
        module.exit_json(**models.listing(store, params, module.check_mode), named=kept.revisions_needed())
    except StoreError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{params['root']}: {error}")


if __name__ == "__main__":
    main()
