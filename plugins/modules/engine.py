#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine
short_description: Give a host Ray and vLLM, as a Python environment or as a container image, without a network
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - The controller holds a lock and a folder of wheels, or the archive of an image. It sends the host what the host
    lacks. If the host has what is described, nothing is sent and one quick check is all that happens.
  - With O(runtime=venv) the host builds the environment from wheels alone with C(uv), which comes out of its own
    wheel. O(path) is a link. An environment is built beside the one in use and the link is switched in one step, so
    neither a killed run nor a failed build ever leaves half an environment behind, and running processes keep theirs.
    The quick check finds packages and programs that were removed, added or replaced, and big files of another size.
  - With O(runtime=container) the image comes from an archive on the controller, which is loaded if the host lacks it,
    or is pulled. It is known by its digest, never by its tag alone. An image that lacks Ray gets it once, pinned, as a
    derived image built on the host without a network. Packages the image has stay as they are; what it lacks of
    O(requirements) is added. Writes O(config_path), from which the units run the containers of Ray and vLLM.
  - Wheels are chosen for the Python, machine and C library of the host or image, never for the controller's. What the
    controller's folder lacks is fetched with C(pip download) there, with the controller's own settings.
  - Returns the fact C(sparkthor_engine).
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
options:
  runtime:
    description: What the engine is installed as.
    type: str
    choices: [venv, container]
    default: venv
  requirements:
    description:
      - File on the controller with the lock, each line C(name==version --hash=sha256:...), with the SHA-256 of every
        wheel that may be installed.
      - It must pin ray and uv, with O(runtime=venv) vllm as well. With O(runtime=container) it is for images without
        Ray.
    type: str
    required: true
  wheel_dir:
    description:
      - Folder on the controller with the wheels. The default is one per target, C(wheels/<python>-<machine>) under
        C($XDG_CACHE_HOME/sparkthor).
    type: str
  download:
    description: Whether wheels that are missing on the controller are fetched there with C(pip download).
    type: bool
    default: true
  ray_version:
    description: Version of Ray that the lock must pin or the image must have, checked when given.
    type: str
  vllm_version:
    description: Version of vLLM that the lock must pin or the image must have, checked when given.
    type: str
  path:
    description: Where the environment is found.
    type: path
    default: /opt/sparkthor/venv
  python:
    description: Interpreter on the host the environment is made with, a name or a path.
    type: str
    default: /usr/bin/python3
  verify:
    description:
      - For the environment. V(fast) compares names and sizes, V(full) compares each file with the hash recorded by its
        package.
    type: str
    choices: [fast, full]
    default: fast
  keep:
    description:
      - How many more engines stay on the host, the newest ones, beside those of what serves and of what served before.
        One that something still runs from stays in any case, and an image that was not brought by this module.
    type: int
    default: 1
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
  deliver:
    description:
      - V(direct) sends wheels and archive to the host over the connection of the task.
      - V(fabric) sends none of the environment's wheels and no archive, and pulls no image. Where they are missing it
        returns what the fan-out of M(sparkthor.cluster.model_store) asks for, or what RV(lacks), and has to be called
        again once that has been brought.
    type: str
    choices: [direct, fabric]
    default: direct
  stage:
    description:
      - V(apply) gives the host the engine.
      - V(prepare) checks on the controller alone what can be known there, and makes sure that it has the wheels for
        this host, so that a wheel that does not exist for a target, or that the lock does not name, is told before
        anything changes. Of an image whose digest is recorded in C(.sparkthor-lock.json) beside the inventory it asks
        the host which one it has under that tag. It needs the fact C(sparkthor_node), and is never changed.
      - V(staged) does what V(apply) does, beside the engine in use, and leaves that in use. RV(command) leads to it.
      - V(pull) lets one of the hosts whose V(apply) with O(deliver=fabric) returned RV(lacks) pull the image, shows how
        far it is, and writes it to where the fan-out passes it on from.
      - V(tried) runs O(command), the Python of a staged engine, and returns RV(trial).
      - The others are used by the controller's side of this module.
    type: str
    choices: [apply, staged, tried, prepare, pull, save, pulled, receive, probe]
    default: apply
  command:
    description: With O(stage=tried), how the Python of the engine is called, as the serving user.
    type: list
    elements: str
    default: []
  trial_model:
    description: With O(stage=tried), whether a tiny model is loaded and answers, where memory allows.
    type: bool
    default: false
  versions:
    description: With O(stage=tried), the versions that the engine must have.
    type: dict
    default: {}
  kind:
    description: With O(stage=tried), the kind of host. On a V(spark) and a V(thor) the engine must see the GPU.
    type: str
    default: ''
  nccl:
    description: With O(stage=tried), the oldest NCCL that the topology works with. Any if empty.
    type: str
    default: ''
  calls:
    description:
      - What the models that are served call of vLLM's libraries beside what every model does. A library that is called
        must have kernels for the host's GPU; others that lack them are named in a warning.
    type: list
    elements: str
    default: []
    version_added: 0.2.0
  timeout:
    description: Seconds that an installation, a pull, the loading of an archive or the building of an image may take.
    type: int
    default: 3600
  share:
    description: Used by the controller's side of this module.
    type: bool
    default: false
  target:
    description: Used by the controller's side of this module.
    type: dict
    default: {}
  parts:
    description: Used by the controller's side of this module.
    type: list
    elements: dict
    default: []
attributes:
  check_mode:
    details: In check mode wheels that the controller lacks are only named, and an image that the host lacks is not
      loaded, so its versions are not known then.
"""

EXAMPLES = r"""
- name: Ray and vLLM in an environment
  sparkthor.cluster.engine:
    requirements: "{{ inventory_dir }}/engine-cp312-aarch64.txt"

- name: Fetch the wheels for every kind of host before any host is changed
  sparkthor.cluster.engine:
    requirements: "{{ inventory_dir }}/engine-cp312-aarch64.txt"
    stage: prepare

- name: An image out of an archive
  sparkthor.cluster.engine:
    runtime: container
    archive: /srv/images/vllm-26.10.tar
    requirements: "{{ inventory_dir }}/ray-cp312-aarch64.txt"

- name: A pulled one
  sparkthor.cluster.engine:
    runtime: container
    image: nvcr.io/nvidia/vllm:26.10-py3
    digest: sha256:3f0c2f6e5cd7b2a1d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b
    requirements: "{{ inventory_dir }}/ray-cp312-aarch64.txt"
"""

RETURN = r"""
ansible_facts:
  description: The engine of this host, under C(sparkthor_engine).
  returned: with O(stage=apply)
  type: dict
  contains:
    sparkthor_engine:
      description:
        - Where it is and what is in it. In check mode, what would be, as far as it is known.
        - With O(runtime=container) also C(runtime), C(image), C(image_id) and C(command).
      type: dict
      returned: always
      sample:
        path: /opt/sparkthor/venv
        digest: 3f6f0d1c2b7a9e44
        python: "3.12"
        machine: aarch64
        versions:
          ray: 2.60.0
          vllm: 0.32.0
problems:
  description: What was wrong with the environment before.
  returned: with O(stage=apply) and O(runtime=venv)
  type: list
  elements: str
digests:
  description: Digests to pin the image by.
  returned: with O(stage=apply) and O(runtime=container)
  type: list
  elements: str
pulled:
  description: Digests of the image in its registry, none for an image from an archive.
  returned: with O(stage=apply) and O(runtime=container)
  type: list
  elements: str
nccl:
  description: NCCL settings that the image brings along. Its nccl.conf is hidden from the engine by the host's.
  returned: with O(stage=apply) and O(runtime=container)
  type: list
  elements: str
actions:
  description: What was done, or would be.
  returned: with O(stage=apply) and O(runtime=container)
  type: list
  elements: str
command:
  description: How the Python of this engine is called, also where it is not in use yet.
  returned: with O(stage=apply) and O(stage=staged), unless check mode finds no such engine
  type: list
  elements: str
trial:
  description: Versions of the tried engine, its GPU and NCCL, and how many tokens (C(tokens)) a tiny model gave.
  returned: with O(stage=tried)
  type: dict
left_out:
  description: What was not tried, and why; empty if all was.
  returned: with O(stage=tried)
  type: str
wheels:
  description: Where wheels or archive belong and which they are.
  returned: with O(deliver=fabric) when some are missing
  type: dict
lacks:
  description: The image that has to be pulled.
  returned: with O(deliver=fabric) and O(runtime=container) when the host lacks it and there is no archive
  type: str
saved:
  description: What the host that pulled the image wrote for the others.
  returned: with O(stage=pull) by that host, if others lack it
  type: dict
target:
  description: Python and machine that the wheels are for.
  returned: with O(stage=prepare) and O(runtime=venv), as RV(folder), RV(fetched), RV(missing) and RV(versions)
  type: str
  sample: cp312-aarch64
folder:
  description: Where the wheels lie on the controller.
  returned: as RV(target)
  type: str
fetched:
  description: Pins whose wheels were fetched.
  returned: as RV(target)
  type: list
  elements: str
missing:
  description: Pins without a wheel, in check mode.
  returned: as RV(target)
  type: list
  elements: str
versions:
  description: Versions of ray and vllm in the lock.
  returned: as RV(target)
  type: dict
sent_bytes:
  description: Bytes sent to this host.
  returned: when something was sent
  type: int
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image_host, image_share, trial, venv
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import container
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError


def argument_spec() -> dict[str, Any]:
    return {
        "runtime": {"type": "str", "choices": ["venv", "container"], "default": "venv"},
        "requirements": {"type": "str", "required": True},
        "wheel_dir": {"type": "str"},
        "download": {"type": "bool", "default": True},
        "ray_version": {"type": "str"},
        "vllm_version": {"type": "str"},
        "path": {"type": "path", "default": "/opt/sparkthor/venv"},
        "python": {"type": "str", "default": "/usr/bin/python3"},
        "verify": {"type": "str", "choices": ["fast", "full"], "default": "fast"},
        "keep": {"type": "int", "default": 1},
        "image": {"type": "str", "default": ""},
        "digest": {"type": "str", "default": ""},
        "archive": {"type": "str", "default": ""},
        "pull": {"type": "bool", "default": True},
        "gpu": {"type": "str", "choices": ["auto", "cdi", "gpus", "runtime", "none"], "default": "auto"},
        "settings": {"type": "dict", "default": {}},
        "config_path": {"type": "path", "default": "/etc/sparkthor/container.json"},
        "work_dir": {"type": "path", "default": "/opt/sparkthor"},
        "deliver": {"type": "str", "choices": ["direct", "fabric"], "default": "direct"},
        "stage": {
            "type": "str",
            "choices": ["apply", "staged", "tried", "prepare", "pull", "save", "pulled", "receive", "probe"],
            "default": "apply",
        },
        "command": {"type": "list", "elements": "str", "default": []},
        "trial_model": {"type": "bool", "default": False},
        "versions": {"type": "dict", "default": {}},
        "kind": {"type": "str", "default": ""},
        "nccl": {"type": "str", "default": ""},
        "calls": {"type": "list", "elements": "str", "default": []},
        "timeout": {"type": "int", "default": 3600},
        "share": {"type": "bool", "default": False},
        "target": {"type": "dict", "default": {}},
        "parts": {"type": "list", "elements": "dict", "default": []},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    params, stage = module.params, module.params["stage"]
    way = venv if params["runtime"] == "venv" else image_host
    try:
        if stage == "probe":
            module.exit_json(changed=False, target=venv.probe_python(params["python"], venv.run))
        if stage == "tried":
            found, left_out = trial.attempt(
                params["command"], params["trial_model"], params["timeout"], trial.available()
            )
            trial.check(found, params["versions"], params["kind"], params["nccl"])
            module.exit_json(changed=False, trial=found, left_out=left_out)
        if stage == "pulled":
            module.exit_json(changed=False, pulled=image_host.pulled(params))
        if stage in ("pull", "save"):
            module.exit_json(**(image_share.pull if stage == "pull" else image_share.save)(params))
        if stage == "receive":
            way.store_of(params).receive(params["parts"])
            module.exit_json(changed=True)
        needed = kept.needed().folders if way is venv else kept.needed().images
        module.exit_json(**way.apply({**params, "needed": needed}, module.check_mode))
    except (EngineError, StoreError, container.ContainerError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{params['path' if way is venv else 'work_dir']}: {error}")


if __name__ == "__main__":
    main()
