# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host is to be like, as the module ``host_state`` takes it, and the text of an environment file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.environment_file import MARKER

#: one entry of host_state's option of that name
File = dict[str, Any]
Directory = dict[str, Any]
Unit = dict[str, Any]


@dataclass
class HostState:
    """Arguments of ``host_state``."""

    groups: list[dict[str, Any]] = field(default_factory=list)
    users: list[dict[str, Any]] = field(default_factory=list)
    directories: list[Directory] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    links: list[dict[str, str]] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    restore: list[str] = field(default_factory=list)
    sysctls: dict[str, Any] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)

    def arguments(self) -> dict[str, Any]:
        """As a task takes them."""
        sysctls = [{"name": name, "value": value} for name, value in self.sysctls.items()]
        return {**asdict(self), "sysctls": sysctls}


def merged(states: Iterable[HostState]) -> HostState:
    """One state that says what all of these say."""
    everything = HostState()
    for state in states:
        for name, value in vars(state).items():
            if isinstance(value, dict):
                getattr(everything, name).update(value)
            else:
                getattr(everything, name).extend(value)
    return everything


def directory(path: str, owner: str = "root", group: str = "", mode: str = "0755") -> Directory:
    """A directory; without a group the owner's."""
    return {"path": path, "owner": owner, "mode": mode, **({"group": group} if group else {})}


def switched_off(unit: str) -> Unit:
    """A unit of ours that must not run, and need not be there."""
    return {"name": unit, "enabled": False, "state": "stopped", "optional": True}


def environment_text(variables: Mapping[str, Any]) -> str:
    """An EnvironmentFile= of systemd with every value in double quotes, which systemd reads as a shell does."""
    lines = [MARKER]
    for name in ordered(variables):
        value = str(variables[name])
        for special in ("\\", '"', "`", "$"):
            value = value.replace(special, "\\" + special)
        lines.append(f'{name}="{value}"')
    return "\n".join(lines) + "\n"


def ordered(names: Iterable[str]) -> list[str]:
    """Sorted as people do, whatever the case."""
    return sorted(names, key=str.lower)
