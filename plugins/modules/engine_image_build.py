#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_image_build
short_description: Let one host change an image by a recipe's steps, and write it down for the others
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Of the hosts that serve together and whose M(sparkthor.cluster.engine_image) said that the image of O(steps) is on
    none of them, one builds it and writes it to where the fan-out passes it on from. The others do nothing.
  - The steps' files come from the controller, each by its SHA-256. They run in a container without a network and
    without a capability. What comes out is imported and its kernels are checked before anybody uses it.
  - A build that fails leaves nothing.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.no_diff
options:
  image:
    description: Name and tag of the image that is changed.
    type: str
    default: ''
  digest:
    description: Its digest.
    type: str
    default: ''
  archive:
    description: File on the controller with it, if there is one.
    type: str
    default: ''
  steps:
    description: The steps that the inventory has acknowledged.
    type: list
    elements: dict
    required: true
  script:
    description: What runs them in the container.
    type: str
    required: true
  recipe:
    description: Name of the recipe that declares them.
    type: str
    required: true
  folder:
    description: Folder on the controller with the steps' files that do not lie beside the recipe.
    type: str
    default: ''
  engine:
    description: Which engine the image has to have.
    type: str
    default: ''
  gpu:
    description: How containers get the GPUs.
    type: str
    default: auto
  calls:
    description: What the models call of the engine's libraries.
    type: list
    elements: str
    default: []
  work_dir:
    description: Folder on the host in which files and image wait.
    type: path
    default: /opt/sparkthor
  timeout:
    description: Seconds that the build may take.
    type: int
    default: 3600
  inputs:
    description: Used by the controller's side of this module.
    type: str
    default: ''
  base:
    description: Used by the controller's side of this module.
    type: str
    default: ''
  files:
    description: Used by the controller's side of this module.
    type: list
    elements: raw
    default: []
  kind:
    description: Used by the controller's side of this module.
    type: str
    default: ''
  begun:
    description: Used by the controller's side of this module.
    type: bool
    default: false
attributes:
  check_mode:
    support: none
"""

EXAMPLES = r"""
- name: Build the image once for all hosts
  sparkthor.cluster.engine_image_build:
    image: registry.example.org/engine:1.0
    recipe: mine
    script: "{{ lookup('ansible.builtin.template', 'build.sh.j2') }}"
    steps:
      - {kind: patch, name: heads, file: heads.patch, sha256: "{{ sha256_of_heads }}"}
"""

RETURN = r"""
built:
  description: Name of the image.
  returned: by the host that builds
  type: str
saved:
  description: What the host that built the image wrote for the others.
  returned: by that host, if others lack it
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image_build
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.container import ContainerError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError


def main() -> None:
    words = {"type": "str", "default": ""}
    module = AnsibleModule(
        argument_spec={
            **{
                name: dict(words)
                for name in ("image", "digest", "archive", "folder", "inputs", "base", "kind", "engine")
            },
            "steps": {"type": "list", "elements": "dict", "required": True},
            "script": {"type": "str", "required": True},
            "recipe": {"type": "str", "required": True},
            "gpu": {"type": "str", "default": "auto"},
            "calls": {"type": "list", "elements": "str", "default": []},
            "work_dir": {"type": "path", "default": "/opt/sparkthor"},
            "timeout": {"type": "int", "default": 3600},
            "files": {"type": "list", "elements": "raw", "default": []},
            "begun": {"type": "bool", "default": False},
        },
    )
    params = module.params
    try:
        outcome = (image_build.share if params["begun"] else image_build.build)(params)
        for warning in outcome.pop("warnings", ()):
            module.warn(warning)
        module.exit_json(**outcome)
    except (EngineError, StoreError, ContainerError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{params['work_dir']}: {error}")


if __name__ == "__main__":
    main()
