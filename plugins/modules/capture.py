#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: capture
short_description: Write what hosts are into one archive that can be attached to an issue
version_added: 0.1.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the controller, once for all hosts. C(playbooks/capture.yml) uses it.
  - In the stage V(key) it makes the random key of this one capture, by which equal things stay equal once they are
    masked.
  - In the stage V(write) it writes what M(sparkthor.cluster.evidence_info) with C(capture=true) read to a gzipped tar
    archive. Nothing that an archive holds already is overwritten.
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.controller_files
options:
  stage:
    description: What to do.
    type: str
    choices: [key, write]
    default: write
  read:
    description: For O(stage=write), the variable in which M(sparkthor.cluster.evidence_info) was registered.
    type: str
    default: ""
  path:
    description: For O(stage=write), the archive. It must not exist.
    type: path
    default: ""
  hide_names:
    description: For O(stage=write), whether hosts are called C(host-1), C(host-2) and so on in the archive.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Write the archive
  sparkthor.cluster.capture:
    read: __capture
    path: sparkthor-capture.tar.gz
"""

RETURN = r"""
key:
  description: The key of this capture.
  returned: with O(stage=key)
  type: str
path:
  description: The archive.
  returned: with O(stage=write)
  type: str
hosts:
  description: Hosts that are in it.
  returned: with O(stage=write)
  type: list
  elements: str
"""
