#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: engine_venv
short_description: Give a host the Python environment with Ray and vLLM that a lock describes, without a network
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - The controller holds a lock and a folder of wheels. It sends the host what the host lacks, and the host builds the
    environment from these files alone with C(uv), which comes out of its own wheel.
  - O(path) is a link. An environment is built beside the one in use and the link is switched in one step, so neither a
    killed run nor a failed build ever leaves half an environment behind, and running processes keep theirs.
  - If the host has what the lock describes, nothing is sent and one quick look is all that happens. It finds packages
    and programs that were removed, added or replaced, and big files of another size; O(verify=full) reads every file.
  - Wheels are chosen for the host's Python, machine and C library, never for the controller's. What the controller's
    folder lacks is fetched with C(pip download) there, with the controller's own settings.
  - Returns the fact C(sparkthor_engine).
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
  - sparkthor.cluster.wheels
  - sparkthor.cluster.wheels.receive
options:
  path:
    description: Where the environment is found.
    type: path
    default: /opt/sparkthor/venv
  requirements:
    description:
      - File on the controller with the lock, each line C(name==version --hash=sha256:...).
      - It must pin ray, vllm and uv.
    type: str
    required: true
  python:
    description: Interpreter on the host the environment is made with, a name or a path.
    type: str
    default: /usr/bin/python3
  verify:
    description: V(fast) compares names and sizes, V(full) compares each file with the hash recorded by its package.
    type: str
    choices: [fast, full]
    default: fast
  keep_previous:
    description:
      - Whether the environment that the link led to before is kept, and every other that processes still run from.
      - What is kept goes when the next one is built, unless something still runs from it then.
    type: bool
    default: true
  deliver:
    description:
      - V(direct) sends the wheels to the host over the connection of the task.
      - V(fabric) sends none. Where some are missing it returns what the fan-out of
        M(sparkthor.cluster.model_store) asks for, and has to be called again once that has brought them.
    type: str
    choices: [direct, fabric]
    default: direct
  stage:
    description:
      - V(apply) gives the host the environment.
      - V(wheels) only makes sure that the controller has the wheels for this host, and asks no host anything, so that
        a wheel that does not exist for a target is named before anything changes. It needs the fact
        C(sparkthor_node), returns RV(target), RV(folder), RV(fetched), RV(missing) and RV(versions), and is never
        changed.
      - The others are used by the controller's side of this module.
    type: str
    choices: [apply, wheels, receive, probe]
    default: apply
  timeout:
    description: Seconds that the installation on the host may take.
    type: int
    default: 1800
attributes:
  check_mode:
    details: Wheels that the controller lacks are not fetched in check mode, only named.
"""

EXAMPLES = r"""
- name: Ray and vLLM
  sparkthor.cluster.engine_venv:
    requirements: "{{ inventory_dir }}/engine-cp312-aarch64.txt"

- name: Fetch the wheels for every kind of host before any host is changed
  sparkthor.cluster.engine_venv:
    requirements: "{{ inventory_dir }}/engine-cp312-aarch64.txt"
    stage: wheels

- name: Read every file of it
  sparkthor.cluster.engine_venv:
    requirements: "{{ inventory_dir }}/engine-cp312-aarch64.txt"
    verify: full
"""

RETURN = r"""
ansible_facts:
  description: The engine of this host, under C(sparkthor_engine).
  returned: with O(stage=apply)
  type: dict
  contains:
    sparkthor_engine:
      description: Where it is and what is in it. In check mode, what would be.
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
  returned: with O(stage=apply)
  type: list
  elements: str
wheels:
  description: Where the wheels belong and which they are.
  returned: with O(deliver=fabric) when some are missing
  type: dict
target:
  description: Python and machine that the wheels are for.
  returned: with O(stage=wheels)
  type: str
  sample: cp312-aarch64
folder:
  description: Where the wheels lie on the controller.
  returned: with O(stage=wheels)
  type: str
fetched:
  description: Pins whose wheels were fetched.
  returned: with O(stage=wheels)
  type: list
  elements: str
missing:
  description: Pins without a wheel, in check mode.
  returned: with O(stage=wheels)
  type: list
  elements: str
versions:
  description: Versions of ray and vllm in the lock.
  returned: with O(stage=wheels)
  type: dict
sent_bytes:
  description: Bytes of wheels sent to this host.
  returned: when something was sent
  type: int
"""

import os
import shutil
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import venv as engine
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError, from_controller
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError, parse_manifest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Store, private_store

WHEELS = "wheels"


def argument_spec() -> dict[str, Any]:
    return {
        "path": {"type": "path", "default": "/opt/sparkthor/venv"},
        "requirements": {"type": "str", "required": True},
        "wheel_dir": {"type": "str"},
        "download": {"type": "bool", "default": True},
        "python": {"type": "str", "default": "/usr/bin/python3"},
        "ray_version": {"type": "str"},
        "vllm_version": {"type": "str"},
        "verify": {"type": "str", "choices": ["fast", "full"], "default": "fast"},
        "keep_previous": {"type": "bool", "default": True},
        "deliver": {"type": "str", "choices": ["direct", "fabric"], "default": "direct"},
        "stage": {"type": "str", "choices": ["apply", "wheels", "receive", "probe"], "default": "apply"},
        "target": {"type": "dict", "default": {}},
        "parts": {"type": "list", "elements": "dict", "default": []},
        "timeout": {"type": "int", "default": 1800},
    }


def run(argv: Any, environment: Any, timeout: float) -> tuple[int, str, str]:
    settings = [f"{name}={value}" for name, value in environment.items()]
    return run_limited(["env", *settings, *argv] if settings else list(argv), timeout)


def listing(pins: dict[str, str]) -> str:
    return "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))


def apply(module: AnsibleModule) -> dict[str, Any]:
    params = module.params
    target = from_controller(params)
    manifest = parse_manifest(target["manifest"])
    wanted = engine.wanted_of(params, {entry.path: entry.sha256 for entry in manifest})
    full = params["verify"] == "full"
    found = engine.look(wanted, full)
    result: dict[str, Any] = {
        "changed": bool(found.problems),
        "problems": found.problems,
        "ansible_facts": {"sparkthor_engine": engine.facts(params)},
    }
    if not found.problems:
        return result
    note = "".join(f"# {problem}\n" for problem in found.problems if problem != "absent")
    result["diff"] = {
        "before_header": wanted.path,
        "after_header": wanted.path,
        "before": listing(found.versions) + note,
        "after": listing(wanted.pins),
    }
    store = wheel_store(params["path"])
    # wheels that lie here since the last build are read again before root runs what is in them
    plan = store.plan(wanted.digest, manifest, full=True)
    if plan.need:
        store.check_space(plan.bytes_needed, "the engine's wheels")
    try:
        engine.check_room(wanted.path, int(target.get("unpacked", 0)) + plan.bytes_needed)
    except EngineError as error:
        raise EngineError(f"Nothing was changed: {error}") from error
    if module.check_mode:
        return result
    if plan.need:
        result["need"] = plan.need
        return result
    with engine.alone(wanted.path, params["timeout"]):
        # a run that lost its controller goes on here: what it finished meanwhile need not be built again
        again = engine.look(wanted, full)
        if again.problems:
            store.commit(wanted.digest, manifest, plan.wrong)
            folder = engine.build(wanted, store.folder(wanted.digest), run, params["timeout"])
            engine.switch(wanted.path, folder)
            keep = params["keep_previous"]
            engine.prune(wanted.path, [folder, found.real if keep else ""], spare_running=keep)
    for name in store.names():
        if name != wanted.digest:
            store.remove(name)
    store.clean_incoming()
    return result


def wheel_store(path: str) -> Store:
    return private_store(os.path.join(os.path.dirname(path), WHEELS))


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    try:
        if module.params["stage"] == "probe":
            python = module.params["python"]
            if shutil.which(python) is None:
                raise EngineError(f"engine_python: {python!r} is not on this host")
            module.exit_json(changed=False, target=engine.probe_python(python, run))
        if module.params["stage"] == "receive":
            wheel_store(module.params["path"]).receive(module.params["parts"])
            module.exit_json(changed=True)
        module.exit_json(**apply(module))
    except (EngineError, StoreError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{module.params['path']}: {error}")


if __name__ == "__main__":
    main()
