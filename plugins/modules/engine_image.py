#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_image
short_description: Give a host the engine's container image, with Ray where it is needed
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - The image comes from an archive on the controller, which is loaded if the host lacks it, or is pulled. It is known
    by its digest, never by its tag alone.
  - With O(ray) an image that lacks Ray gets it once, pinned, as a derived image built on the host without a network.
    Packages the image has stay as they are; what it lacks of O(requirements) is added, as wheels for the image's
    Python.
  - Writes O(config_path), from which the units run the containers of Ray and the engine.
  - Returns the fact C(sparkthor_engine).
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.engine
  - sparkthor.cluster.engine.installed
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
options:
  image:
    description:
      - Name and tag of the image, C(name:tag). May be left out with O(archive), which then names it.
    type: str
    default: ''
  digest:
    description:
      - Digest of the image, C(sha256) and 64 digits. For a pulled image that of its manifest, for one from an archive
        that of its configuration, which is the image's ID, or of its manifest.
    type: str
    default: ''
  archive:
    description:
      - File on the controller, written by C(docker save), with one image. A host whose Docker keeps images in
        containerd's store, as fresh installations do from Docker 29 on, needs one written by Docker 25 or newer.
    type: str
    default: ''
  pull:
    description: Whether an image that is neither there nor in an archive is pulled.
    type: bool
    default: true
  ray:
    description: Whether Ray is needed. If not, an image stays as it is, whether it has Ray or none.
    type: bool
    default: true
    version_added: 0.2.0
  engine:
    description: Which engine the image has to have, by its name in C(serving_engine).
    type: str
    default: vllm
    version_added: 0.2.0
  build:
    description:
      - >-
        The steps that change the image: C(steps), the C(script) that runs them, C(folder) with their files on the
        controller, and C(recipe) that declares them. M(sparkthor.cluster.engine_image_build) builds it.
    type: dict
    default: {}
    version_added: 0.2.0
  gpu:
    description:
      - How containers get the GPUs, V(cdi) by CDI, V(gpus) by C(--gpus), V(runtime) by the runtime C(nvidia).
        V(auto) takes the best that the host offers. V(none) is for hosts without.
    type: str
    choices: [auto, cdi, gpus, runtime, none]
    default: auto
  settings:
    description: What the containers are given, written to O(config_path) beside image and programs.
    type: dict
    default: {}
  config_path:
    description: The file that the units' program reads.
    type: path
    default: /etc/sparkthor/container.json
  work_dir:
    description: Folder on the host for an image's archive and wheels on their way.
    type: path
    default: /opt/sparkthor
attributes:
  check_mode:
    details: An image that the host lacks is not loaded, so its versions are not known then.
"""

EXAMPLES = r"""
- name: An image out of an archive
  sparkthor.cluster.engine_image:
    archive: /srv/images/engine-26.10.tar
    requirements: "{{ inventory_dir }}/ray-cp312-aarch64.txt"

- name: A pulled one
  sparkthor.cluster.engine_image:
    image: nvcr.io/nvidia/vllm:26.10-py3
    digest: sha256:3f0c2f6e5cd7b2a1d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b
    requirements: "{{ inventory_dir }}/ray-cp312-aarch64.txt"
"""

RETURN = r"""
ansible_facts:
  description: The engine of this host, under C(sparkthor_engine).
  returned: always
  type: dict
  contains:
    sparkthor_engine:
      description: The image, what is in it and how it is called. In check mode, what would be, as far as it is known.
      type: dict
      returned: always
digests:
  description: Digests to pin the image by.
  returned: always
  type: list
  elements: str
pulled:
  description: Digests of the image in its registry, none for an image from an archive.
  returned: always
  type: list
  elements: str
nccl:
  description: NCCL settings that the image brings along. Its nccl.conf is hidden from the engine by the host's.
  returned: always
  type: list
  elements: str
actions:
  description: What was done, or would be.
  returned: always
  type: list
  elements: str
command:
  description: How the Python of this image is called, also where it is not in use yet.
  returned: unless check mode finds no such image
  type: list
  elements: str
wheels:
  description: Where the archive belongs and which it is.
  returned: with O(deliver=fabric) when it is missing
  type: dict
lacks:
  description: The image that has to be pulled.
  returned: with O(deliver=fabric) when the host lacks it and there is no archive
  type: str
unbuilt:
  description: ID of the image on this host that has to be changed by the steps of O(build).
  returned: when the image that they make is on no host
  type: str
sent_bytes:
  description: Bytes sent to this host.
  returned: when something was sent
  type: int
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import arguments, image_host
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.container import ContainerError
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry as engines
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            **arguments.INSTALLED,
            "image": {"type": "str", "default": ""},
            "digest": {"type": "str", "default": ""},
            "archive": {"type": "str", "default": ""},
            "pull": {"type": "bool", "default": True},
            "ray": {"type": "bool", "default": True},
            "engine": {"type": "str", "default": engines.DEFAULT.name},
            "build": {"type": "dict", "default": {}},
            "gpu": {"type": "str", "choices": ["auto", "cdi", "gpus", "runtime", "none"], "default": "auto"},
            "settings": {"type": "dict", "default": {}},
            "config_path": {"type": "path", "default": "/etc/sparkthor/container.json"},
            "work_dir": {"type": "path", "default": "/opt/sparkthor"},
        },
        supports_check_mode=True,
    )
    params = module.params
    in_images = [name for name, engine in engines.ENGINES.items() if not engine.programs]
    if params["engine"] not in in_images:
        module.fail_json(msg=f"engine={params['engine']!r}: an image has one of {', '.join(in_images)}")
    try:
        if not params["target"]:
            # before the first change the controller's side asks for the image that is there under this tag
            module.exit_json(changed=False, pulled=image_host.pulled(params))
        outcome = image_host.apply({**params, "needed": kept.needed().images}, module.check_mode)
        for warning in outcome.pop("warnings", ()):
            module.warn(warning)
        module.exit_json(**outcome)
    except (EngineError, StoreError, ContainerError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{params['work_dir']}: {error}")


if __name__ == "__main__":
    main()
