# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``node_info``: how far the host's clock is from the controller's."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import clock


class ActionModule(Action):
    FACTS = ("sparkthor_node",)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        before = time.time()
        outcome = self.read("node_info", arguments)
        clock.add_offset(outcome, before)
        return outcome
