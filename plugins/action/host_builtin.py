# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``host_builtin``: documented in plugins/modules/host_builtin.py."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action, words

BUILTIN = "ansible.builtin."


class ActionModule(Action):
    ARGUMENTS = {
        "module": {"type": "str", "required": True},
        "arguments": {"type": "dict", "default": {}},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        task = self._task.copy()
        task.action = BUILTIN + arguments["module"]
        task.args = arguments["arguments"]
        # a module without an action plugin of its own is run by the one for all of them
        loader = self._shared_loader_obj.action_loader
        name = task.action if loader.has_plugin(task.action) else f"{BUILTIN}normal"
        action = loader.get(
            name,
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        run = action._low_level_execute_command
        action._low_level_execute_command = lambda *args, **kwargs: words(run(*args, **kwargs))
        return self.believed(action.run(task_vars=self.vars))
