# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Units that should run and do not, by the doctor's test.  Runs on the controller; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import systemd
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.places import OWN, Places


def paused(parts: Iterable[Sequence[str]], facts_by_host: Mapping[str, Mapping[str, Any]]) -> dict[str, set[str]]:
    """By host the units that nobody expects to run, as the head of its serving group, the first of ``parts``, says: in
    maintenance or asleep."""
    found: dict[str, set[str]] = {}
    for hosts in parts:
        serving = (facts_by_host.get(hosts[0]) or {}).get("serving") or {}
        beside = [Places(name) for name, told in (serving.get("beside") or {}).items() if told.get("maintenance")]
        own = [OWN] if serving.get("maintenance") else []
        for host in hosts:
            quiet = [*own, *(beside if host == hosts[0] else [])]
            found[host] = {unit.removesuffix(".service") for one in quiet for unit in (one.unit, one.watchdog)}
    return found


def problems(host: str, units: Mapping[str, Mapping[str, Any]], quiet: Set[str]) -> list[Finding]:
    """What is ``quiet`` need not run; of the watch over the firewall is told with the firewall."""
    found = []
    for name, unit in units.items():
        active, sub, enabled, result = (str(unit.get(key, "")) for key in ("active", "sub", "enabled", "result"))
        how = systemd.down(active, sub, enabled, result, int(unit.get("restarts") or 0))
        if how and name not in quiet and name != "sparkthor-firewall-watch":
            found.append(Finding("unit", f"{name} is {how}", f"journalctl -u {name} -n 50", host))
    return found
