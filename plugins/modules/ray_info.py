#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: ray_info
short_description: The health of the Ray cluster as data
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Compares the Ray cluster that C(/etc/sparkthor/ray.json) describes with the one that runs. A node counts only if Ray
    lists it as ALIVE on its control address, with all its GPUs.
  - The gate that the engine's start waits for uses the same code (C(sparkthor_host ray-gate), see docs/ray.md).
  - If no Ray cluster runs, the module does not fail and returns RV(healthy=false). Every question has a time limit.
  - With O(before_start=true) it checks this host only, before its unit is touched - whether it has its control address
    and reaches the head's, whether the ports are free or held by Ray itself, whether the object store fits into the
    free memory, and whether the engine runs and its Ray is new enough.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
options:
  config:
    description: Description of the expected cluster on the host, written by P(sparkthor.cluster.ray_node#role).
    type: path
    default: /etc/sparkthor/ray.json
  timeout:
    description: Seconds that one question may take.
    type: float
    default: 5.0
  wait:
    description: Seconds to go on asking until the cluster is healthy; V(0) asks once.
    type: float
    default: 0.0
  source:
    description:
      - What to ask for the nodes. V(dashboard) is fast and runs on the head only. V(engine) runs the engine's Python
        and works on every node. V(auto) takes the first that answers.
    type: str
    choices: [auto, dashboard, engine]
    default: auto
  journal_lines:
    description: Lines of the journal of C(sparkthor-ray.service) on this host to return while it is not healthy.
    type: int
    default: 0
  before_start:
    description:
      - Whether to return what prevents a start of Ray on this host (RV(obstacles)) and the versions that all nodes must
        share (RV(versions)) instead of the health of the cluster. M(sparkthor.cluster.cluster_plan) with
        C(stage=engine) compares them.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Ask the head
  sparkthor.cluster.ray_info:
  register: ray
  become: true

- name: What is wrong and how to fix it
  ansible.builtin.debug:
    msg: "{{ ray | sparkthor.cluster.json_query('problems[].[cause, fix]') }}"

- name: Addresses of the nodes that are alive
  ansible.builtin.debug:
    msg: "{{ ray | sparkthor.cluster.json_query('alive[].address') }}"

- name: Free GPUs by node
  ansible.builtin.debug:
    msg: "{{ ray | sparkthor.cluster.json_query('alive[].{node: name, gpus: resources_available.GPU}') }}"

- name: From a worker, or where the dashboard is switched off
  sparkthor.cluster.ray_info:
    source: engine
  register: ray
  become: true

- name: Nodes that died and are not back, with the reason
  ansible.builtin.debug:
    msg: "{{ ray | sparkthor.cluster.json_query('dead[?!rejoined].{node: name, reason: reason, at: ended}') }}"

- name: Latency of every raylet
  ansible.builtin.debug:
    msg: "{{ ray | sparkthor.cluster.json_query('alive[].[name, raylet_latency_ms]') }}"

- name: Which expected nodes are absent, without a collection for it
  ansible.builtin.debug:
    msg: "{{ ray.missing | join(', ') }}, of {{ ray.expected_nodes }}"

- name: Wait two minutes for all nodes, and say why they are not there
  sparkthor.cluster.ray_info:
    wait: 120
    journal_lines: 10
  register: ray
  failed_when: not ray.healthy
  become: true

- name: Find what prevents a start of Ray on this host
  sparkthor.cluster.ray_info:
    before_start: true
  register: checked
  become: true

- name: Stop where Ray cannot be started
  ansible.builtin.assert:
    that: not checked.obstacles
    fail_msg: "{{ checked.obstacles | join('; ') }}"
"""

RETURN = r"""
healthy:
  description: Whether every expected node is there with all its GPUs, and nobody else.
  returned: unless O(before_start=true)
  type: bool
reason:
  description: One line that says what keeps the cluster from being healthy, or that it is.
  returned: unless O(before_start=true)
  type: str
problems:
  description:
    - What is wrong, each with C(code), C(cause), C(fix) and C(node).
    - C(mend) is the former name of C(fix) and still there.
  returned: unless O(before_start=true)
  type: list
  elements: dict
alive:
  description:
    - Expected nodes that are members, with address, node id, role, resources and start time.
    - C(resources_available) is null until Ray's report knows the node, up to five seconds after it joined.
  returned: unless O(before_start=true)
  type: list
  elements: dict
dead:
  description: Rows of nodes that are gone, with the reason and whether the address has rejoined.
  returned: unless O(before_start=true)
  type: list
  elements: dict
expected_gpus:
  description: GPUs that the plan expects.
  returned: unless O(before_start=true)
  type: int
present_gpus:
  description: GPUs of the expected nodes that are members.
  returned: unless O(before_start=true)
  type: int
missing:
  description: Names of expected nodes that are not members.
  returned: unless O(before_start=true)
  type: list
  elements: str
strangers:
  description: Members that are not expected, or not on that address.
  returned: unless O(before_start=true)
  type: list
  elements: dict
expected_nodes:
  description: Number of nodes that the plan expects.
  returned: unless O(before_start=true)
  type: int
present_nodes:
  description: Number of expected nodes that are members.
  returned: unless O(before_start=true)
  type: int
head_address:
  description: Control address of the head that this host expects; empty where no cluster is configured.
  returned: unless O(before_start=true)
  type: str
  sample: 10.100.0.1
ray_version:
  description: Version of Ray, where the engine was asked.
  returned: unless O(before_start=true)
  type: str
  sample: 2.60.0
source:
  description: Who listed the nodes, V(dashboard) or V(engine); empty if nobody could.
  returned: unless O(before_start=true)
  type: str
final:
  description: Whether what is wrong is of a kind that waiting does not fix.
  returned: unless O(before_start=true)
  type: bool
seconds:
  description: How long the last question took.
  returned: unless O(before_start=true)
  type: float
waited_seconds:
  description: How long it was asked until this answer, which O(wait) limits.
  returned: unless O(before_start=true)
  type: float
journal:
  description: The last lines of the unit's journal.
  returned: when O(journal_lines) is not V(0) and the cluster is not healthy
  type: str
pending:
  description: Resource demands that wait for a node.
  returned: unless O(before_start=true)
  type: list
  elements: dict
obstacles:
  description: What prevents a start, one message each with its fix; empty if nothing does.
  returned: with O(before_start=true)
  type: list
  elements: str
versions:
  description: Versions of Python, Ray and torch in the engine, and its own; empty if it cannot be run.
  returned: with O(before_start=true)
  type: dict
  sample: {python: 3.12.3, ray: 2.60.0, torch: 2.13.0}
probes:
  description: How GCS, dashboard and raylets answered, with latency in milliseconds.
  returned: unless O(before_start=true)
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.mask import mask
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import ray_config, ray_health, ray_start_check

UNIT = "sparkthor-ray.service"


def unconfigured(cause: str) -> dict:
    """The shape of every other answer, for a host that does not know of a cluster."""
    return {
        "healthy": False,
        "reason": cause,
        "problems": [ray_health.public_problem(Finding("not_configured", cause, "run the ray roles on this host"))],
        "alive": [],
        "dead": [],
        "strangers": [],
        "missing": [],
        "expected_nodes": 0,
        "present_nodes": 0,
        "expected_gpus": 0,
        "present_gpus": 0,
        "pending": [],
        "head_address": "",
        "probes": {},
        "ray_version": "",
        "source": "",
        "seconds": 0.0,
        "waited_seconds": 0.0,
    }


def check_before_start(path: str) -> dict:
    """What prevents a start on this host, and its versions; a description that cannot be read is an obstacle too."""
    try:
        config, settings = ray_config.load_config(path), ray_start_check.NodeSettings.load(path)
    except (ray_config.RayConfigError, OSError, ValueError) as error:
        return {"obstacles": [str(error)], "versions": {}}
    found = ray_start_check.check(config, settings)
    return {"obstacles": found["problems"], "versions": found["versions"]}


def with_former_key(result: dict) -> dict:
    """``fix`` of each problem by its former name as well: the answer of this module is promised."""
    return {**result, "problems": [{**problem, "mend": problem["fix"]} for problem in result["problems"]]}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "config": {"type": "path", "default": ray_config.CONFIG_PATH},
            "timeout": {"type": "float", "default": 5.0},
            "wait": {"type": "float", "default": 0.0},
            "source": {"type": "str", "choices": ["auto", "dashboard", "engine"], "default": "auto"},
            "journal_lines": {"type": "int", "default": 0},
            "before_start": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given = module.params
    if given["before_start"]:
        module.exit_json(changed=False, **check_before_start(given["config"]))
    try:
        config = ray_config.load_config(given["config"])
    except ray_config.RayConfigError as error:
        module.exit_json(changed=False, final=True, **with_former_key(unconfigured(str(error))))
    result = ray_health.wait_healthy(config, given["wait"], given["timeout"], given["source"])
    if given["journal_lines"] > 0 and not result["healthy"]:
        argv = ["journalctl", "--no-pager", "--quiet", "--output=cat", f"--unit={UNIT}"]
        text = mask(run_limited([*argv, f"--lines={given['journal_lines']}"], 10)[1])
        result["journal"] = "\n".join(line[:300] for line in text.splitlines())
    module.exit_json(changed=False, final=ray_health.is_final(result), **with_former_key(result))


if __name__ == "__main__":
    main()
