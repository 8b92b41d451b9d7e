# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``host_state``: leaves out what is switched off, and renders templates as Ansible does."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import declared_state, role_values
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action


class ActionModule(Action):
    ERRORS = (declared_state.DeclarationError,)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("state") == "absent":
            return self.execute("host_state", declared_state.undone(arguments))
        role = str(self.vars.get("ansible_role_name") or "").rpartition(".")[2]
        variables = {**self.vars, **role_values.typed(self._templar, self.vars, role)}
        text = declared_state.text_by(self._loader, self._templar, variables)
        wanted = declared_state.present(arguments, text)
        if arguments.get("only") and not (wanted["files"] or wanted["units"]):
            return {"changed": False}
        return self.execute("host_state", wanted)
