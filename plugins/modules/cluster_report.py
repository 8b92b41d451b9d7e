#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_report
short_description: One self-contained HTML page about the cluster
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the controller, once for all hosts. Draws the topology from the live links, the memory budget of each host,
    the results of verify with their history, what the doctor found, and versions.
  - The page needs nothing but itself, follows the reader's light or dark scheme, and can be printed.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.controller_files
  - sparkthor.cluster.looks
options:
  path:
    description: The page; C(.results/report.html) beside the inventory if it is left out.
    type: path
  folder:
    description: Folder on the controller with earlier results; C(.results) beside the inventory if it is left out.
    type: path
  doctor:
    description: The doctor's diagnosis as JSON; C(doctor.json) in the folder of results if it is left out.
    type: path
  data:
    description: File that takes, as JSON, everything the page is made of.
    type: path
  runs:
    description: How many runs of verify the page tells of.
    type: int
    default: 20
"""

EXAMPLES = r"""
- name: Look at every host
  sparkthor.cluster.cluster_look:
  register: __look
  ignore_unreachable: true
  become: true

- name: Write the page
  sparkthor.cluster.cluster_report:
    path: report.html
"""

RETURN = r"""
path:
  description: Where the page is.
  returned: always
  type: str
"""
