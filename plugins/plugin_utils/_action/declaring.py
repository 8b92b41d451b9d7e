# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the actions whose task declares files and units of a host."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import declared_state, role_values
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action


class DeclaringAction(Action):
    """Leaves out what is switched off, renders templates as Ansible does, and turns the lists round to undo them."""

    ERRORS = (declared_state.DeclarationError,)

    def declared(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """What the host is told for the task's arguments."""
        if arguments.get("state") == "absent":
            return declared_state.undone(arguments)
        role = str(self.vars.get("ansible_role_name") or "").rpartition(".")[2]
        variables = {**self.vars, **role_values.typed(self._templar, self.vars, role)}
        return declared_state.present(arguments, declared_state.text_by(self._loader, self._templar, variables))
