# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``model_switch``: on all hosts or on none."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.model_action import ModelAction


class ActionModule(ModelAction):
    def step(self) -> dict[str, Any]:
        self._all_here("every host keeps the revisions that it has")
        self._declare()
        return self.execute("model_switch", {**self._args, "in_use": self._in_use()})
