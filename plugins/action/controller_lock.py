# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``controller_lock``: documented in plugins/modules/controller_lock.py."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state import controller_lock as lock
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import keeper
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action


class ActionModule(Action):
    ARGUMENTS: ClassVar[dict[str, Any]] = {}

    def act(self, _arguments: dict[str, Any]) -> dict[str, Any]:
        # a task runs in a process of its own, whose parent is the run
        run, machine = os.getppid(), socket.gethostname()
        wish = lock.Holder(
            token=f"{machine}.{os.getuid()}.{run}",
            owner=f"{getpass.getuser()}@{machine} (process {run})",
            play=str(self.vars["ansible_play_name"]),
        )
        # told as data where it may be away: Ansible would leave out the host whose head it is
        outcome = self.read("controller_lock", {"token": wish.token, "owner": wish.owner, "play": wish.play})
        if "away" in outcome and not outcome["away"]:
            raise AnsibleActionFail(str(outcome["msg"]))
        if outcome.get("away") or outcome.get("failed") or outcome.get("unreachable") or self._task.check_mode:
            return outcome
        held = lock.Holder(wish.token, wish.owner, wish.play, str(outcome["since"]))
        keeper.keep(
            run, lock.BEAT, lambda: self._say(lock.beat_command(held)), lambda: self._say(lock.release_command(held))
        )
        return outcome

    def _say(self, command: str) -> None:
        # what the connection tells of itself would go to a run that may have ended
        Display().verbosity = 0
        self._low_level_execute_command(command, sudoable=True)
