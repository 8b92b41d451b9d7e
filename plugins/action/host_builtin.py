# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``host_builtin``: documented in plugins/modules/host_builtin.py."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action


class ActionModule(Action):
    ARGUMENTS = {
        "module": {"type": "str", "required": True},
        "arguments": {"type": "dict", "default": {}},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        module, given = arguments["module"], arguments["arguments"]
        return self.usable(f"ansible.builtin.{module}", given, self.builtin(module, given))
