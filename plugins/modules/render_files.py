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
  - Shows which files roles would write to a host, for example to compare them with those of another revision.
  - Runs on the controller and contacts no host.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.diff
options:
  dest:
    description:
      - Folder on the controller; each host's files lie below a folder of the host's name.
      - It is of one inventory, and git ignores it; the task fails where it holds files of another inventory.
    type: path
    required: true
  roles:
    description:
      - Roles of this collection, whether the play has them or not. The files of each are those that its own task
        declares.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Render the netplan file and the environment of the fabric
  sparkthor.cluster.render_files:
    dest: rendered
    roles: [roce_network]
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
