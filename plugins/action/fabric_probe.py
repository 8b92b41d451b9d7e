# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``fabric_probe``: tells each host which of its peers' ports were up before anybody looked.

A link whose both ends were up and that has no carrier will not get one by waiting.  Only the controller has the facts
of both ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Adds ``peer_up`` to the links and runs the module."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Entry point of the plugin."""
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        hostvars = task_vars.get("hostvars") or {}
        links = [dict(link) for link in self._task.args.get("links") or []]
        up = {peer: self._up(hostvars, peer) for peer in {link.get("peer") for link in links} if peer}
        for link in links:
            link["peer_up"] = link.get("peer_netdev") in up.get(link.get("peer"), ())
        return self._execute_module(
            module_name="sparkthor.cluster.fabric_probe",
            module_args={**self._task.args, "links": links},
            task_vars=task_vars,
        )

    @staticmethod
    def _up(hostvars: Mapping[str, Any], peer: str) -> set[str]:
        facts = (hostvars[peer].get("ansible_facts") or {}) if peer in hostvars else {}
        interfaces = (facts.get("sparkthor_node") or {}).get("interfaces") or []
        return {item["name"] for item in interfaces if item.get("up")}
