# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``host_packages``: Ansible's own installation, between what was there and what came."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import HostAction


class ActionModule(HostAction):
    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("state") == "absent":
            return super().act(arguments)
        noted = super().act({**arguments, "step": "note"})
        if noted.get("failed"):
            return noted
        installed = self.builtin("package", {"name": arguments.get("names"), "state": "present"})
        if installed.get("failed"):
            # what is noted stays for the next run: some of it may have come
            return installed
        recorded = super().act({**arguments, "step": "record"})
        return recorded if recorded.get("failed") else {**installed, "packages": recorded["packages"]}
