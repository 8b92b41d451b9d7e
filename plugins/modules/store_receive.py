#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: store_receive
short_description: Take uploaded files into a host's store
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - The controller's sides of M(sparkthor.cluster.engine_venv), M(sparkthor.cluster.engine_image) and
    M(sparkthor.cluster.model_copy) call it for each delivery. What it took in has no final name yet.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.store
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.no_diff
options:
  parts:
    description: Uploaded files, each with what it is a part of.
    type: list
    elements: dict
    required: true
attributes:
  check_mode:
    support: none
"""

EXAMPLES = r"""
- name: Take in the second half of a file
  sparkthor.cluster.store_receive:
    root: /var/lib/sparkthor/models
    parts:
      - file: /tmp/part-0
        sha256: 3f0c2f6e5cd7b2a1d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b
        offset: 536870912
        size: 1073741824
"""

# Nothing beside what every module returns.
RETURN = r"""
{}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import private_store


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "parts": {"type": "list", "elements": "dict", "required": True},
        },
    )
    root = module.params["root"]
    try:
        private_store(root).receive(module.params["parts"])
        module.exit_json(changed=True)
    except StoreError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{root}: {error}")


if __name__ == "__main__":
    main()
