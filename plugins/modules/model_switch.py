#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model_switch
short_description: Let models' names lead to their new revisions
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - For all hosts of a play or for none, once every host has the revisions whole. Then removes the oldest ones.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.models
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
options:
  revisions:
    description:
      - How many revisions of a model a host keeps, the newest ones. Those beyond go when a new one comes. One that is
        served anywhere, or that served last and is kept to go back to, stays.
    type: int
    default: 2
  results:
    description: Variable in which the results of M(sparkthor.cluster.model_copy) were registered.
    type: str
    default: __model_store_check
  in_use:
    description: Used by the controller's side of this module.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Switch every host to the new revisions
  sparkthor.cluster.model_switch:
    models: "{{ models }}"
"""

# Nothing beside what every module returns.
RETURN = r"""
{}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import models
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import private_store


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **models.ARGUMENTS,
            "revisions": {"type": "int", "default": 2},
            "results": {"type": "str", "default": "__model_store_check"},
            "in_use": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        store, wanted = private_store(params["root"]), models.read(params["models"])
        module.exit_json(**models.switch(store, wanted, params["revisions"], params["in_use"], module.check_mode))
    except StoreError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{params['root']}: {error}")


if __name__ == "__main__":
    main()
