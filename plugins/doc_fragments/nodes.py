# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    # For what judges on the controller the status of all hosts.
    DOCUMENTATION = r"""
options:
  nodes:
    description:
      - Name of the variable in which M(sparkthor.cluster.node_info) with C(gather=status) was registered for each host.
    type: str
    required: true
"""
