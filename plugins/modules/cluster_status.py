#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_status
short_description: One screen about the whole cluster
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the controller, once for all hosts. Puts the looks of M(sparkthor.cluster.cluster_look) beside the plan that
    the inventory means, and shows the result as one screen or as JSON.
  - A host that did not answer, and a plan that cannot be made, are lines of the screen and not errors.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.controller_files
  - sparkthor.cluster.looks
options:
  output:
    description: What to show; V(none) shows nothing and only returns.
    type: str
    choices: [text, json, none]
    default: text
  path:
    description: File on the controller that takes the JSON document as well.
    type: path
  query:
    description:
      - A JMESPath expression; what it finds in the document is shown as JSON instead of the screen, and returned as
        RV(picked).
      - Needs the Python package C(jmespath) on the controller.
    type: str
"""

EXAMPLES = r"""
- name: Look at every host
  sparkthor.cluster.cluster_look:
  register: __look
  ignore_unreachable: true
  become: true

- name: Show one screen
  sparkthor.cluster.cluster_status:

- name: What is wrong, and how to fix it
  sparkthor.cluster.cluster_status:
    query: problems[].[host, text, mend]
"""

RETURN = r"""
status:
  description: The whole document.
  returned: always
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
      description: What is wrong, each with C(host), C(text) and C(mend).
      type: list
      elements: dict
text:
  description: The screen.
  returned: always
  type: str
picked:
  description: What O(query) finds; none where it finds nothing.
  returned: when O(query) is given
  type: raw
"""
