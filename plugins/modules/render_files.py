#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: render_files
short_description: Write a host's files into a folder of the controller
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - For looking at what roles would put on a host, and for comparing it with what they put there yesterday.
  - Runs on the controller and contacts nobody.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
options:
  dest:
    description: Folder on the controller; each host's files lie below a folder of the host's name.
    type: path
    required: true
  files:
    description: Files as M(sparkthor.cluster.host_state) takes them.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path of the file on the host.
        type: str
        required: true
      content:
        description: The text.
        type: str
        required: true
      mode:
        description: Its mode, octal.
        type: str
        default: "0644"
      owner:
        description: Not used on the controller.
        type: raw
      group:
        description: Not used on the controller.
        type: raw
      foreign:
        description: Not used on the controller.
        type: raw
      backup:
        description: Not used on the controller.
        type: raw
"""

EXAMPLES = r"""
- name: Render the environment of the fabric
  sparkthor.cluster.render_files:
    dest: rendered
    files:
      - path: /etc/sparkthor/fabric.env
        content: "{{ sparkthor_fabric[inventory_hostname].env | sparkthor.cluster.environment_file }}"
"""

RETURN = r"""
changed_paths:
  description: Paths of the files that were written or would be.
  returned: success
  type: list
  elements: str
dest:
  description: The host's folder on the controller, in full.
  returned: success
  type: str
"""

# The work is done by the action plugin of the same name, on the controller.
