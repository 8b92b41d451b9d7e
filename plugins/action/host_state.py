# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``host_state``: leaves out what is switched off, and renders templates as Ansible does."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import declared_state
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.declaring import DeclaringAction


class ActionModule(DeclaringAction):
    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        wanted = self.declared(arguments)
        if not any(wanted.get(name) for name in declared_state.LISTS):
            return {"changed": False}
        return self.execute("host_state", wanted)
