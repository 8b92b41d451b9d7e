#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_bench
short_description: Measure how fast a cluster serves, and compare with the last time
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the controller, once for all hosts, and asks the front proxy as any client does.
  - It measures with llama-benchy, whose results the community's leaderboard of Sparks takes, and keeps them beside the
    inventory, in a form of its own and in the tool's.
  - A speed more than 5 % below that of the last run is named, with what changed in between.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.controller_files
options:
  stage:
    description:
      - V(plan) finds out what is served, where, and with which options and versions.
      - V(run) runs the tool. V(result) adds the power of the hosts, compares, shows and keeps.
      - V(splits) chooses the splits of the model that are measured, V(best) the best of those that were.
    type: str
    choices: [plan, run, result, splits, best]
    default: plan
  nodes:
    description:
      - Name of the variable in which M(sparkthor.cluster.node_info) with C(gather=status) was registered for each host.
    type: str
    required: true
  plan:
    description:
      - What the stage V(plan) returned; for the stage V(run) with the model's tokenizer, as M(ansible.builtin.slurp)
        returns it, under C(slurped).
    type: dict
    default: {}
  python:
    description: A Python on the controller that has llama-benchy; Ansible's own if it is empty.
    type: path
    default: ''
  url:
    description: The API's address, with C(/v1); that of the head if it is empty.
    type: str
    default: ''
  tokenizer:
    description: A model on the hub, or a folder on the controller; that of the served model if it is left out.
    type: str
  book:
    description: Text that prompts are cut from, an address or a file on the controller.
    type: str
    default: https://www.gutenberg.org/files/1661/1661-0.txt
  prompts:
    description: Lengths of prompts in tokens, measured with one stream.
    type: list
    elements: int
    default: [128, 2048, 8192, 32768]
  streams:
    description: Numbers of streams; more than one are measured with prompts of O(prompt) tokens.
    type: list
    elements: int
    default: [1, 2, 4, 8, 16, 32, 64]
  prompt:
    description: Length of the prompts of several streams, in tokens.
    type: int
    default: 2048
  tokens:
    description: Length of an answer, in tokens.
    type: int
    default: 128
  runs:
    description: How often each is measured, after a warm-up.
    type: int
    default: 3
  extra:
    description: More words for llama-benchy.
    type: list
    elements: str
    default: []
  measured:
    description: What the stage V(run) returned.
    type: dict
    default: {}
  power:
    description: Name of the variable in which each host's samples of power were registered.
    type: str
  folder:
    description: Folder on the controller for results; C(.results) beside the inventory if it is left out.
    type: path
  source:
    description:
      - Address where the owner publishes the result. It stands in the rows for a recipe's field C(measured), which the
        catalogue refuses without one.
    type: str
    default: ''
  goal:
    description:
      - In the stages V(splits) and V(best), by what splits are compared, tokens/s of one stream or of all together.
    type: str
    choices: [latency, throughput]
    default: throughput
  choice:
    description: In the stage V(splits), what C(vllm_serve_goal) has the plan choose from.
    type: dict
    default: {}
  most:
    description: In the stage V(splits), how many are measured, with the one that serves.
    type: int
    default: 3
  tried:
    description:
      - In the stage V(best), what was measured. Each has its C(split), and C(rows) or why it C(failed); the first one
        C(kept), the name of the configuration to go back to.
    type: list
    elements: dict
    default: []
"""

EXAMPLES = r"""
- name: Find out what is served
  sparkthor.cluster.cluster_bench:
    nodes: __nodes
  register: __bench
  run_once: true
"""

RETURN = r"""
plan:
  description: In the stage V(plan), what is measured and with what.
  returned: stage plan
  type: dict
report:
  description: In the stage V(run), the tool's report.
  returned: stage run
  type: dict
spans:
  description: In the stage V(run), when requests of each kind were open.
  returned: stage run
  type: list
bench:
  description: In the stage V(result), what is kept. C(rows) has a speed for each length and number of streams.
  returned: stage result
  type: dict
path:
  description: In the stage V(result), the file it is kept in.
  returned: stage result
  type: str
splits:
  description: In the stage V(splits), tensor and pipeline parallel size of each, the one that serves first.
  returned: stage splits
  type: list
best:
  description: In the stage V(best), which of O(tried) is the best.
  returned: stage best
  type: int
"""
