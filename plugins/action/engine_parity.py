# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``engine_parity``, which has no other: documented in plugins/modules/engine_parity.py."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import parity_table, versions_across
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import ClusterAction


class ActionModule(ClusterAction):
    ARGUMENTS = {}

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        facts = {
            host: (self.vars["hostvars"][host].get("ansible_facts") or {}).get("sparkthor_engine")
            for host in self.vars.get("ansible_play_hosts", [])
        }
        engines, shared = versions_across({host: engine for host, engine in facts.items() if engine})
        if "image" in shared:
            raise AnsibleActionFail(
                "engine_image: the hosts of one cluster need the same image, but they differ:\n"
                f"{parity_table(engines, shared)}\nA tag can move: set engine_image_digest, so that every host "
                "gets the same."
            )
        if shared:
            raise AnsibleActionFail(
                "engine_requirements: the hosts of one cluster need the same Python, Ray, vLLM and torch, but they "
                f"differ:\n{parity_table(engines, shared)}\nUse locks with the same versions for all hosts, and "
                "engine_python where the systems' Python differs."
            )
        return {"changed": False, "engines": engines}
