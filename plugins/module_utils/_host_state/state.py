# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole state a role wants on one host, compared and applied in one call.

Everything is first planned from what can be read, then applied.  Check mode stops after the plan, so what it reports
is what the real run does.  Units come last because their state depends on the files; a unit that is to be stopped or
disabled is handled first, so that it stops with the configuration it was started with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.accounts import plan_accounts
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.arguments import argument_spec, checked
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Changes, Host, Result
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.originals import Originals
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.paths import PathPlanner
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.restore import plan_restore
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.sysctls import plan_sysctl
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.units import UnitManager
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import Wanted
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited


class HostState:
    """Compares and applies; `run` is the one entry."""

    def __init__(self, wanted: Wanted, host: Host, check: bool) -> None:
        self.wanted = wanted
        self.changes = Changes(host, check)
        self.originals = Originals(host, self.changes.result.warnings.append)

    def run(self) -> Result:
        """Raises :class:`HostStateError` for what is not possible on this host."""
        changes, wanted = self.changes, self.wanted
        plan_accounts(changes, wanted, self.originals)
        paths = PathPlanner(changes, wanted, self.originals)
        paths.plan()
        for name in wanted.restore:
            plan_restore(changes, wanted, self.originals, paths, name)
        paths.plan_left_folders()
        for key, value in wanted.sysctls.items():
            plan_sysctl(changes, self.originals, key, value)
        units = UnitManager(changes, wanted, self.originals)
        if changes.check:
            units.predict()
            return changes.result
        units.remember_pending()
        units.leave()
        for step in changes.steps:
            step()
        units.arrive()
        for step in changes.last_steps:
            step()
        if wanted.restore:
            self.originals.close()
        return changes.result


def difference(arguments: Mapping[str, Any]) -> str:
    """What is not as the arguments of the module ``host_state`` want it; nothing is changed."""
    params = checked(argument_spec(), arguments)
    found = HostState(Wanted.parse(params), Host(run=run_limited, timeout=params["timeout"]), True).run()
    if not (found.changed or found.deferred_units or found.warnings):
        return ""
    parts = found.changed_paths + found.changed_units + found.changed_accounts + found.changed_sysctls
    return ", ".join([*parts, *found.deferred_units, *found.warnings]) or "systemd reads its units again"
