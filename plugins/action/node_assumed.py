# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``node_assumed``: documented in plugins/modules/node_assumed.py."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.assumed import asserted_kind, assumed_node


class ActionModule(Action):
    ARGUMENTS = {"topology": {"type": "str", "default": ""}}
    _requires_connection = False

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        hosts = list(self.vars["groups"].get("cluster", []))
        kind = asserted_kind(self.host, self.vars["groups"], arguments["topology"])
        address = str(self.vars.get("ansible_host") or self.host)
        node = assumed_node(kind, hosts.index(self.host) if self.host in hosts else 0, address)
        return {"changed": False, "ansible_facts": {"sparkthor_node": node}}
