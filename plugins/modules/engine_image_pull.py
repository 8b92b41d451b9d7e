#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_image_pull
short_description: Let one host pull an image and write it down for the others
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Of the hosts that serve together and whose M(sparkthor.cluster.engine_image) with C(deliver=fabric) said that the
    image is lacking, one pulls it, shows how far it is, and writes it to where the fan-out passes it on from. The
    others do nothing.
  - Docker pulls in a unit of its own, which goes on when the controller or its connection is lost.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.no_diff
options:
  image:
    description: Name and tag of the image.
    type: str
    required: true
  digest:
    description: Digest of its manifest in the registry, if that is fixed.
    type: str
    default: ''
  work_dir:
    description: Folder on the host in which the image waits for the others.
    type: path
    default: /opt/sparkthor
  timeout:
    description: Seconds that the pull may take.
    type: int
    default: 3600
  begun:
    description: Used by the controller's side of this module.
    type: bool
    default: false
  share:
    description: Used by the controller's side of this module.
    type: bool
    default: false
attributes:
  check_mode:
    support: none
"""

EXAMPLES = r"""
- name: Pull the image on one host
  sparkthor.cluster.engine_image_pull:
    image: nvcr.io/nvidia/vllm:26.10-py3
"""

RETURN = r"""
pulled:
  description: Digests of the image in its registry.
  returned: by the host that pulls
  type: list
  elements: str
saved:
  description: What the host that pulled the image wrote for the others.
  returned: by that host, if others lack it
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image_share
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "digest": {"type": "str", "default": ""},
            "work_dir": {"type": "path", "default": "/opt/sparkthor"},
            "timeout": {"type": "int", "default": 3600},
            "begun": {"type": "bool", "default": False},
            "share": {"type": "bool", "default": False},
        },
    )
    params = module.params
    try:
        module.exit_json(**(image_share.save if params["begun"] else image_share.pull)(params))
    except (EngineError, StoreError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{params['work_dir']}: {error}")


if __name__ == "__main__":
    main()
