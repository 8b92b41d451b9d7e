# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: page_plan
short_description: What the page on a head knows of the plan
version_added: 0.2.0
author:
  - sparkthor.cluster contributors (@sparkthor)
description:
  - Private to the roles of this collection. The drawing and the parts of the memory are those of the report.
options:
  _input:
    description: The plan of the head's serving group, C(sparkthor_cluster).
    type: dict
    required: true
  fabric:
    description: The plan of all hosts, C(sparkthor_fabric).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Parts of the memory of the head
  ansible.builtin.debug:
    msg: "{{ (sparkthor_cluster | sparkthor.cluster.page_plan(sparkthor_fabric)).memory[inventory_hostname] }}"
"""

RETURN = r"""
_value:
  description:
    - RV(_value.drawing) is the drawing of the fabric, with places in a field of C(width) by C(height) and host and
      netdev of both ends of each half of a cable (C(boxes), C(cables), C(middle)); null for one host.
    - RV(_value.memory) has by host the bytes of C(weights), C(cache), C(overhead) and C(reserve); it is empty where the
      plan does not know them.
  type: dict
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import page, topology

_PARTS = ("weights", "cache", "overhead", "reserve")


def page_plan(cluster: dict[str, Any], fabric: dict[str, Any]) -> dict[str, Any]:
    """Drawing and memory."""
    drawn = (
        topology.planned_drawing(str(cluster["topology"]), str(cluster["head"]), fabric) if len(fabric) > 1 else None
    )
    rows = page.budgets({"hosts": {}}, (cluster.get("serving") or {}).get("memory"))
    return {"drawing": drawn, "memory": {row["host"]: {part: row[part] for part in _PARTS} for row in rows}}


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function."""
        return {"page_plan": page_plan}
