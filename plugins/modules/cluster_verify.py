#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_verify
short_description: Plan the measurements of a cluster, and judge them
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the controller, once for all hosts, and changes nothing on any host.
  - In the stage V(plan) it decides from what M(sparkthor.cluster.node_info) read who measures towards whom.
  - In the stage V(verdict) it compares what M(sparkthor.cluster.verify_probe) found with the thresholds, shows a table,
    keeps the result beside those of earlier runs, and fails if anything is below what is needed.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.controller_files
  - sparkthor.cluster.nodes
options:
  stage:
    description: Which stage to run.
    type: str
    choices: [plan, verdict]
    default: plan
  plan:
    description: What the stage V(plan) returned.
    type: dict
    default: {}
  links:
    description: Name of the variable in which each host's link measurements were registered.
    type: str
  collective:
    description: Name of the variable in which each host's all-reduce was registered.
    type: str
  serving:
    description: Name of the variable in which the head's measurement of the API was registered.
    type: str
  parts:
    description: What is measured.
    type: list
    elements: str
    choices: [links, collective, ray, serving]
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

- name: Judge
  sparkthor.cluster.cluster_verify:
    stage: verdict
    nodes: read
    parts: [ray]
    plan: "{{ planned.plan }}"
    thresholds: {ttft_seconds: 2}
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
"""
