#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: render_files
short_description: Write all hosts' files into a folder of the controller
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - For looking at what roles would put on a host, and for comparing it with what they put there yesterday.
  - Runs on the controller, once for all hosts, and contacts nobody.
extends_documentation_fragment:
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
options:
  dest:
    description: Folder on the controller; each host's files lie below a folder of the host's name.
    type: path
    required: true
  files:
    description:
      - An expression (without braces, as in C(when)) that is a list of files as M(sparkthor.cluster.host_state) takes
        them. It is evaluated for each host of the play among that host's variables.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show the environments of all hosts' fabric
  sparkthor.cluster.render_files:
    dest: rendered
    files: >-
      [{'path': '/etc/sparkthor/fabric.env',
        'content': sparkthor_fabric[inventory_hostname].env | sparkthor.cluster.environment_file}]
"""

RETURN = r"""
changed_paths:
  description: By host, paths of the files that were written or would be.
  returned: success
  type: dict
dest:
  description: The folder on the controller, in full.
  returned: success
  type: str
"""

# The work is done by the action plugin of the same name, on the controller.
