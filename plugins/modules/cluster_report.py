#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_report
short_description: One screen, JSON document or HTML page about the whole cluster
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the controller, once for all hosts. Puts what M(sparkthor.cluster.node_info) read beside the plan that
    the inventory means, and shows the result.
  - A host that did not answer, and a plan that cannot be made, are part of what is shown and not errors. Once it is
    shown, the task fails if no host at all could be read.
  - The HTML page draws the topology from the live links, the memory budget of each host, the results of verify with
    their history, what the doctor found, and versions. It needs nothing but itself, follows the reader's light or dark
    scheme, and can be printed.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.controller_files
options:
  nodes:
    description:
      - Name of the variable in which M(sparkthor.cluster.node_info) with C(gather=status) was registered for each host.
    type: str
    required: true
  format:
    description:
      - V(text) shows one screen, V(json) the same as JSON, V(none) shows nothing and only returns.
      - V(html) writes a page.
    type: str
    choices: [text, json, none, html]
    default: text
  path:
    description:
      - File on the controller. With O(format=html) the page, C(.results/report.html) beside the inventory if it is left
        out.
      - With the other formats it takes the JSON document; nothing is written if it is left out.
    type: path
  folder:
    description:
      - For the page, folder on the controller with earlier results; C(.results) beside the inventory if it is left out.
    type: path
  doctor:
    description:
      - For the page, the doctor's diagnosis as JSON; if it is left out, C(doctor.json) in the folder of results or what
        the head keeps of the newest one, whichever is newer.
    type: path
  data:
    description: File that takes, as JSON, everything the page is made of.
    type: path
  runs:
    description: How many runs of verify the page tells of.
    type: int
    default: 20
  query:
    description:
      - A JMESPath expression; what it finds in the status is shown as JSON instead of the screen, and returned as
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

- name: Show the status
  sparkthor.cluster.cluster_report:
    nodes: read

- name: Show what is wrong, and how to fix it
  sparkthor.cluster.cluster_report:
    nodes: read
    query: problems[].[host, text, fix]

- name: Write the HTML report
  sparkthor.cluster.cluster_report:
    nodes: read
    format: html
    path: report.html
"""

RETURN = r"""
picked:
  description: What O(query) finds; none where it finds nothing.
  returned: when O(query) is given
  type: raw
path:
  description: Where the page is.
  returned: with O(format=html)
  type: str
status:
  description: The whole document.
  returned: with the other formats than V(html)
  type: dict
  contains:
    cluster:
      description: Topology, head, hosts and split.
      type: dict
    hosts:
      description: Each host with its links, memory, units and versions.
      type: dict
    serving:
      description: What the watchdog on the head says.
      type: dict
    ray:
      description: What Ray says of its nodes.
      type: dict
    problems:
      description: What is wrong, each with C(host), C(text) and C(fix).
      type: list
      elements: dict
text:
  description: The screen.
  returned: with the other formats than V(html)
  type: str
"""
