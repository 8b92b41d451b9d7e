#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: store_fetch
short_description: Fetch one content from a URL into a host's store
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - The controller's sides of M(sparkthor.cluster.model_copy) and M(sparkthor.cluster.model_fanout) call it again and
    again until a file of the hub is whole, where a host fetches it. Its SHA-256 is what the controller knows from the
    hub.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.store
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.no_diff
options:
  sha256:
    description: SHA-256 of the content.
    type: str
    required: true
  size:
    description: Its bytes.
    type: int
    required: true
  url:
    description: Where it is. It may open a gated model by itself, so it is not shown.
    type: str
    required: true
  seconds:
    description: How long to fetch at most; the next call goes on.
    type: int
    default: 20
attributes:
  check_mode:
    support: none
"""

EXAMPLES = r"""
- name: Fetch for 20 seconds
  sparkthor.cluster.store_fetch:
    root: /var/lib/sparkthor/models
    sha256: 3f0c2f6e5cd7b2a1d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b
    size: 1073741824
    url: https://models.example.org/model.safetensors
"""

RETURN = r"""
have:
  description: Bytes of it that the host has.
  returned: always
  type: int
problem:
  description: Why no more came; empty where the time was over, or all of it is there.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.fetch import fetch
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import private_store


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "sha256": {"type": "str", "required": True},
            "size": {"type": "int", "required": True},
            "url": {"type": "str", "required": True, "no_log": True},
            "seconds": {"type": "int", "default": 20},
        },
    )
    given = module.params
    try:
        found = fetch(private_store(given["root"]), given["sha256"], given["size"], given["url"], given["seconds"])
        module.exit_json(changed=True, have=found.have, problem=found.problem)
    except StoreError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{given['root']}: {error}")


if __name__ == "__main__":
    main()
