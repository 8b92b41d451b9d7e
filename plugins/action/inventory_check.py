# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``inventory_check``: documented in plugins/modules/inventory_check.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ansible import constants, context
from ansible.errors import AnsibleActionFail, AnsibleUndefinedVariable
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding, nothing_changed
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import ClusterAction
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import inventory, sources


class ActionModule(ClusterAction):
    ARGUMENTS: ClassVar[dict[str, Any]] = {}

    def act(self, _arguments: dict[str, Any]) -> dict[str, Any]:
        given = [str(source) for source in context.CLIARGS.get("inventory") or constants.DEFAULT_HOST_LIST]
        self._fail(sources.problems(given, constants.INVENTORY_IGNORE_EXTS))
        groups = {name: list(hosts) for name, hosts in self.vars["groups"].items()}
        self._fail(sources.unnamed(groups, given))
        hosts = inventory.cluster_hosts(groups)
        self._fail([problem for host in hosts for problem in self._unknown(host)])
        named = self.vars["hostvars"][hosts[0]].get("serving_groups") or []
        self._fail(inventory.group_problems(groups, named))
        played = self.vars.get("ansible_play_hosts_all") or hosts
        self._fail(sources.nobody_left(context.CLIARGS.get("subset"), hosts, played))
        return {"changed": False, "msg": f"the inventory has {len(hosts)} hosts"}

    def _unknown(self, host: str) -> Iterator[Finding]:
        """What a host's way in, passwords among it, is made of and nobody defines; the values are not shown."""
        given = self.vars["hostvars"][host]
        for name in sorted(name for name in given if name.startswith("ansible_")):
            try:
                given[name]
            except AnsibleUndefinedVariable as error:
                fix = "define that variable (in a file of Vault that Ansible reads, say), or correct its name"
                yield Finding("inventory", error.message, fix, host=host, where=name)

    @staticmethod
    def _fail(problems: list[Any]) -> None:
        if problems:
            raise AnsibleActionFail(nothing_changed(problems))
