#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_image
short_description: Give a host the container image with Ray and vLLM, and say how its containers are run
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - The image comes from an archive on the controller, which is sent and loaded if the host lacks it, or is pulled.
    It is known by its digest, never by its tag alone.
  - An image that lacks Ray gets it once, pinned, as a derived image built on the host without a network from wheels
    of the controller. Packages the image has stay as they are; what it lacks of O(requirements) is added.
  - Writes O(config_path), from which the units run the containers of Ray and vLLM.
  - If the host has what is described, nothing is sent and nothing in the image is run.
  - Returns the fact C(sparkthor_engine).
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
  - sparkthor.cluster.wheels
  - sparkthor.cluster.wheels.receive
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
  requirements:
    description:
      - File on the controller with the pins of Ray and all it needs, lines C(name==version --hash=sha256:...), for
        images without Ray. It must pin ray and uv.
    type: str
    required: true
  ray_version:
    description: Version of Ray that there must be, checked when given.
    type: str
  vllm_version:
    description: Version of vLLM that there must be, checked when given.
    type: str
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
    description: Folder on the host for archives and wheels on their way.
    type: path
    default: /opt/sparkthor
  timeout:
    description: Seconds that a pull, the loading of an archive or the building of an image may take.
    type: int
    default: 3600
  deliver:
    description:
      - V(direct) sends an archive to the host over the connection of the task.
      - V(fabric) sends none. Where it is missing it returns what the fan-out of M(sparkthor.cluster.model_store) asks
        for, and has to be called again once that has brought it.
    type: str
    choices: [direct, fabric]
    default: direct
  stage:
    description:
      - V(preflight) checks what can be known without a change. It asks the host only for the digest of an image that
        it has under a tag for which one is recorded.
      - The others are used by the controller's side of this module.
    type: str
    choices: [apply, receive, preflight, pulled]
    default: apply
attributes:
  check_mode:
    details: An image that the host lacks is not loaded in check mode, so its versions are not known then.
"""

EXAMPLES = r"""
- name: An image out of an archive
  sparkthor.cluster.engine_image:
    archive: /srv/images/vllm-26.10.tar
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
      description: What is run and what is in it. In check mode, what would be, as far as it is known.
      type: dict
      returned: always
      sample:
        runtime: container
        image: nvcr.io/nvidia/vllm:26.10-py3
        image_id: sha256:3f0c2f6e5cd7b2a1d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b
        digest: 3f6f0d1c2b7a9e44
        command: [/usr/bin/python3, -IB, /usr/local/lib/sparkthor/sparkthor_host, container, python]
        python: "3.12"
        machine: aarch64
        versions:
          ray: 2.60.0
          vllm: 0.31.0
digests:
  description: Digests to pin the image by.
  returned: success
  type: list
  elements: str
pulled:
  description: Digests of the image in its registry, none for an image from an archive.
  returned: success
  type: list
  elements: str
nccl:
  description: NCCL settings that the image brings along. Its nccl.conf is hidden from the engine by the host's.
  returned: success
  type: list
  elements: str
actions:
  description: What was done, or would be.
  returned: success
  type: list
  elements: str
wheels:
  description: Where the archive belongs and which it is.
  returned: with O(deliver=fabric) when it is missing
  type: dict
sent_bytes:
  description: Bytes sent to this host.
  returned: when something was sent
  type: int
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image_host
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import container
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError


def argument_spec() -> dict[str, Any]:
    return {
        "image": {"type": "str", "default": ""},
        "digest": {"type": "str", "default": ""},
        "archive": {"type": "str", "default": ""},
        "pull": {"type": "bool", "default": True},
        "requirements": {"type": "str", "required": True},
        "wheel_dir": {"type": "str"},
        "download": {"type": "bool", "default": True},
        "ray_version": {"type": "str"},
        "vllm_version": {"type": "str"},
        "gpu": {"type": "str", "choices": ["auto", "cdi", "gpus", "runtime", "none"], "default": "auto"},
        "settings": {"type": "dict", "default": {}},
        "config_path": {"type": "path", "default": "/etc/sparkthor/container.json"},
        "work_dir": {"type": "path", "default": "/opt/sparkthor"},
        "timeout": {"type": "int", "default": 3600},
        "deliver": {"type": "str", "choices": ["direct", "fabric"], "default": "direct"},
        "stage": {"type": "str", "choices": ["apply", "receive", "preflight", "pulled"], "default": "apply"},
        "target": {"type": "dict", "default": {}},
        "parts": {"type": "list", "elements": "dict", "default": []},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    try:
        if module.params["stage"] == "receive":
            image_host.Host(module.params["work_dir"], module.params["timeout"]).store().receive(module.params["parts"])
            module.exit_json(changed=True)
        if module.params["stage"] == "pulled":
            module.exit_json(changed=False, pulled=image_host.pulled(module.params))
        module.exit_json(**image_host.apply(module.params, module.check_mode))
    except (EngineError, StoreError, container.ContainerError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{module.params['work_dir']}: {error}")


if __name__ == "__main__":
    main()
