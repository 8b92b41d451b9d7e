# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``fabric_probe``: tells each host which of its peers' ports were up before anybody looked."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import ports


class ActionModule(Action):
    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        links = ports.with_peers(arguments.get("links") or [], self.vars.get("hostvars") or {})
        return self.execute("fabric_probe", {**arguments, "links": links})
