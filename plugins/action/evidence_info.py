# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``evidence_info``: the doctor says itself how far the host's clock is from the controller's."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action


class ActionModule(Action):
    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        before = time.time()
        outcome = self.read("evidence_info", arguments)
        return {**outcome, "before": before, "after": time.time()}
