#!/usr/bin/python
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: inventory_check
short_description: Check that Ansible read the whole inventory, and that it has a cluster
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Runs on the controller, once for all hosts, and changes nothing anywhere.
  - Fails if a file of the inventory is not what Ansible takes it for, if a group of a cluster is missing, or if
    C(--limit) leaves no host. Ansible itself only warns, and goes on with what it could read.
  - Fails as well if a file beside the inventory has variables of a group or a host that is not there and whose name is
    nearly that of one that is. Of other such files it warns.
  - What the variables are set to is checked by M(sparkthor.cluster.cluster_plan).
options:
  optional:
    description:
      - Take any inventory, also none at all, and fail only if one was named and was not read as it stands.
    type: bool
    default: false
extends_documentation_fragment:
  - sparkthor.cluster.internal
  - sparkthor.cluster.attributes
  - sparkthor.cluster.attributes.read_only
"""

EXAMPLES = r"""
- name: Fail if the inventory was read in part only
  sparkthor.cluster.inventory_check:
  run_once: true
"""

RETURN = r"""
msg:
  description: How many hosts the cluster has.
  returned: success
  type: str
  sample: the inventory has 3 hosts
"""

# The work is done by the action plugin of the same name, on the controller.
