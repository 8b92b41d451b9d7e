# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``node_assumed``: documented in plugins/modules/node_assumed.py."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.assumed import asserted_kind, assumed_node


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset(("topology",))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        host = task_vars["inventory_hostname"]
        hosts = list(task_vars["groups"].get("cluster", []))
        kind = asserted_kind(host, task_vars["groups"], str(self._task.args.get("topology") or ""))
        address = str(task_vars.get("ansible_host") or host)
        result.update(
            changed=False,
            ansible_facts={
                "sparkthor_node": assumed_node(kind, hosts.index(host) if host in hosts else 0, address),
            },
        )
        return result
