# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host is to be like, as the module ``host_state`` takes it, and the texts its files are made of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.environment_file import MARKER
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import location

#: folder of all roles, with their templates
ROLES = Path(__file__).resolve().parents[3] / "roles"
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


def role_file(role: str, name: str, path: str, mode: str = "0644") -> File:
    """A file of the role as it is."""
    return {"path": path, "content": (ROLES / role / "files" / name).read_text(encoding="utf-8"), "mode": mode}


def secret_file(path: str, content: str) -> File:
    """A file that only root reads and that no result shows."""
    return {"path": path, "content": content, "mode": "0600", "secret": True}


def json_file(path: str, value: Any) -> File:
    """A file that programs on the host read."""
    return {"path": path, "content": json.dumps(value, indent=4, sort_keys=True, ensure_ascii=False) + "\n"}


def program(verb: str) -> str:
    """How a unit runs a program of the package that the engine role installs."""
    return " ".join(location.command(verb))


def switched_off(unit: str) -> Unit:
    """A unit of ours that must not run, and need not be there."""
    return {"name": unit, "enabled": False, "state": "stopped", "optional": True}


def yaml_text(value: Any) -> str:
    """The value in its own order, one line for each entry."""
    text: str = yaml.safe_dump(
        value, indent=2, sort_keys=False, width=4096, allow_unicode=True, default_flow_style=False
    )
    return text


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


@cache
def _template(path: Path) -> jinja2.Template:
    environment = jinja2.Environment(
        trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined, autoescape=False
    )
    return environment.from_string(path.read_text(encoding="utf-8"))


def rendered(path: Path, **values: Any) -> str:
    """The text of a template in which nothing but these values is known; raises jinja2.UndefinedError for others."""
    return _template(path).render(values)
