# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``model_copy``: what the host lacks is sent to it, or named for the fan-out."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.model_action import ModelAction


class ActionModule(ModelAction):
    def step(self) -> dict[str, Any]:
        folders, pending = self._declare()
        outcome = self._inspect(pending, folders)
        if self._args.get("deliver") == "fabric":
            if outcome.get("need"):
                # the change itself is reported by the step that makes it
                outcome["changed"] = False
            return {**self._with_pending(outcome, pending), "revisions": self._revisions}
        if outcome.get("need") and not outcome.get("failed"):
            outcome = self._send(folders, outcome, "direct")
        return {**self._with_pending(outcome, pending), "revisions": self._revisions}
