#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_verify
short_description: Plan the measurements of a cluster, measure, and judge
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - In the stage V(plan) it decides from what M(sparkthor.cluster.node_info) read who measures towards whom.
  - The stages V(agent), V(links), V(collective), V(burn) and V(serving) measure on the hosts. What could not be
    measured is returned as C(error) and fails no task, because the last stage judges all of it together.
  - In the stage V(verdict) it compares what was measured with the thresholds, shows a table, keeps the result beside
    those of earlier runs, and fails if anything is below what is needed.
  - Nothing on any host is changed. The stages V(plan) and V(verdict) run on the controller, for all hosts together, and
    need C(run_once=true).
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.controller_files
  - sparkthor.cluster.attributes.action
options:
  stage:
    description:
      - Which stage to run.
      - V(agent) leaves a process behind for O(seconds) that takes the measurements of other hosts of this run.
      - V(links) measures bandwidth and path MTU of each planned test, with C(ib_write_bw) where both ends have RDMA and
        perftest, else with several TCP streams.
      - V(collective) runs this host's rank of an all-reduce sweep with torch.distributed in the installed engine. All
        hosts have to run it at the same time, which one task of a play does.
      - V(burn) loads every GPU of this host for O(seconds) with the installed engine's torch, and reads clock, power
        and temperature meanwhile.
      - V(serving) asks the front proxy of this host for completions, one stream and several.
    type: str
    choices: [plan, agent, links, collective, burn, serving, verdict]
    default: plan
  nodes:
    description:
      - Name of the variable in which M(sparkthor.cluster.node_info) with C(gather=status) was registered for each host.
      - Needed in the stages V(plan) and V(verdict).
    type: str
  plan:
    description:
      - What the stage V(plan) returned.
      - Needed in the stages V(agent), V(links), V(collective), V(burn) and V(verdict).
    type: dict
    default: {}
  links:
    description: Name of the variable in which each host's link measurements were registered.
    type: str
  collective:
    description: Name of the variable in which each host's all-reduce was registered.
    type: str
  burn:
    description: Name of the variable in which each host's load of its GPUs was registered.
    type: str
  named:
    description:
      - In the stage V(plan), whether somebody named O(parts).
      - If not, V(burn) is left out while something serves or a GPU is busy.
    type: bool
    default: true
  serving:
    description: Name of the variable in which the head's measurement of the API was registered.
    type: str
  parts:
    description: What is measured.
    type: list
    elements: str
    choices: [links, collective, ray, serving, burn]
    default: [links, collective, ray, serving]
  thresholds:
    description: Own thresholds, by the names in C(docs/operations.md).
    type: dict
    default: {}
  folder:
    description: Folder on the controller for results; C(.results) beside the inventory if it is left out.
    type: path
  query:
    description:
      - A JMESPath expression; what it finds in the result is shown as JSON instead of the table, and returned as
        RV(picked).
      - Needs the Python package C(jmespath) on the controller.
    type: str
  seconds:
    description: How long one measurement takes, or how long the agent stays, or the API may take to answer.
    type: float
    default: 1.0
  streams:
    description: TCP connections on each path.
    type: int
    default: 4
  largest:
    description: Bytes of the largest all-reduce.
    type: int
    default: 134217728
  limit:
    description: Seconds that the ranks may take to find one another.
    type: float
    default: 90.0
  address:
    description: Address of the front proxy on this host.
    type: str
    default: 127.0.0.1
  port:
    description: Port of the front proxy, or of the ranks' rendezvous.
    type: int
    default: 29560
  group:
    description: In the stage V(serving), name of a serving group beside the host's own one (C(serving_beside)).
    type: str
    default: ""
  tokens:
    description: Tokens of each stream.
    type: int
    default: 128
attributes:
  check_mode:
    details: It measures in check mode as well.
  action:
    details: It plans and judges on the controller, and gives each host its part of the plan.
"""

EXAMPLES = r"""
- name: Read the state of every host
  sparkthor.cluster.node_info:
    gather: status
  register: read
  ignore_unreachable: true
  become: true

- name: Plan the measurements
  sparkthor.cluster.cluster_verify:
    nodes: read
    parts: [ray]
  register: planned
  run_once: true

- name: Measure the API
  sparkthor.cluster.cluster_verify:
    stage: serving
    port: 8000
    tokens: 64
    seconds: 120
  become: true

- name: Judge
  sparkthor.cluster.cluster_verify:
    stage: verdict
    nodes: read
    parts: [ray]
    plan: "{{ planned.plan }}"
    thresholds: {ttft_seconds: 2}
  run_once: true
"""

RETURN = r"""
plan:
  description: What each host is to measure.
  returned: in stage V(plan)
  type: dict
verify:
  description: Every line with measured value, threshold and verdict.
  returned: in stage V(verdict)
  type: dict
path:
  description: File that keeps the result.
  returned: in stage V(verdict)
  type: str
picked:
  description: What O(query) finds; none where it finds nothing.
  returned: when O(query) is given
  type: raw
found:
  description: What was measured; the shape depends on O(stage).
  returned: in the stages that measure
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files
from ansible_collections.sparkthor.cluster.plugins.module_utils._measure import burn, collective, completion, link
from ansible_collections.sparkthor.cluster.plugins.module_utils._measure.arguments import ARGUMENTS
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import link_state
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import former_head, location, places


def echo(netdev: str, address: str, size: int) -> bool:
    """Whether an IP packet of this size comes back unfragmented."""
    path = {"netdev": netdev, "mtu": size, "peers": [{"host": "", "address": address, "mtu": size}]}
    return bool(link_state.ping_links([path], {netdev: {"mtu": size}}, 1.0)[0]["reachable"])


def serving(given: dict[str, Any]) -> dict[str, Any]:
    path = places.Places(given["group"]).config
    config = files.read_json(path)
    if not config.get("model"):
        return {"error": f"{path} names no model: nothing is served here (run site.yml)"}
    try:
        with open("/etc/sparkthor/secrets/api_key", encoding="utf-8") as handle:
            key = handle.read().strip()
    except OSError as error:
        return {"error": f"the API key cannot be read: {error.strerror}"}
    tls = bool(files.read_json(former_head.CLUSTER).get("tls"))
    client = completion.Client(given["address"], given["port"], tls, key, str(config["model"]), given["seconds"])
    return completion.measure(client, given["tokens"], [1, 8], bool(config.get("answers")))


def measure(given: dict[str, Any]) -> dict[str, Any]:
    stage, plan = given["stage"], given["plan"]
    if stage == "agent":
        return link.start_agent(plan["nonce"], plan["addresses"], plan["port"], given["seconds"])
    if stage == "links":
        tests = link.measure(plan["tests"], plan["nonce"], plan["port"], given["seconds"], given["streams"], echo)
        return {"tests": tests}
    if stage == "collective":
        return collective.run_rank(
            plan["rank"],
            plan["world"],
            plan["master"],
            given["port"],
            plan["python"],
            # Docker's client is root's; what it starts is the serving user's
            "" if plan["container"] else "sparkthor",
            given["largest"],
            given["seconds"],
            given["limit"],
            location.command("container", "remove", "rank") if plan["container"] else (),
        )
    if stage == "burn":
        return burn.run_burn(
            plan["python"],
            "" if plan["container"] else "sparkthor",
            given["seconds"],
            location.command("container", "remove", "rank") if plan["container"] else (),
        )
    return serving(given)


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    module.exit_json(changed=False, found=measure(module.params))


if __name__ == "__main__":
    main()
