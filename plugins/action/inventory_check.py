# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``inventory_check``: documented in plugins/modules/inventory_check.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ansible import constants, context
from ansible.errors import AnsibleActionFail, AnsibleUndefinedVariable
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import (
    Finding,
    errors_and_others,
    nothing_changed,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import ClusterAction
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import inventory, sources


class ActionModule(ClusterAction):
    ARGUMENTS: ClassVar[dict[str, Any]] = {"optional": {"type": "bool", "default": False}}

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        given = [str(source) for source in context.CLIARGS.get("inventory") or constants.DEFAULT_HOST_LIST]
        self._fail(sources.problems(given, constants.INVENTORY_IGNORE_EXTS))
        groups = {name: list(hosts) for name, hosts in self.vars["groups"].items()}
        hosts = inventory.cluster_hosts(groups)
        if not arguments["optional"]:
            self._fail(sources.unnamed(groups, given))
        errors, warnings = errors_and_others(sources.unread(groups, given, constants.INVENTORY_IGNORE_EXTS))
        for line in warnings:
            # before what follows from it: a variable that nobody defines, say
            self._display.warning(printable(line))
        self._fail(errors)
        if not arguments["optional"]:
            self._fail_unsound(groups, hosts)
        return {"changed": False, "msg": f"the inventory has {len(hosts)} host{'' if len(hosts) == 1 else 's'}"}

    def _fail_unsound(self, groups: dict[str, list[str]], hosts: list[str]) -> None:
        """Fail if these hosts are no cluster, or if nobody of it is in this run."""
        self._fail([problem for host in hosts for problem in self._unknown(host)])
        named = self.vars["hostvars"][hosts[0]].get("serving_groups") or []
        self._fail(inventory.group_problems(groups, named))
        played = self.vars.get("ansible_play_hosts_all") or hosts
        self._fail(sources.nobody_left(context.CLIARGS.get("subset"), hosts, played))

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
