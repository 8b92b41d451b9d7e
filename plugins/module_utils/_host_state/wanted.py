# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role wants on one host, read from the module's arguments and checked."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any

MARKER = "Ansible managed: sparkthor.cluster"
UNIT_SUFFIXES = (
    ".service",
    ".socket",
    ".target",
    ".timer",
    ".mount",
    ".automount",
    ".path",
    ".swap",
    ".slice",
    ".scope",
    ".device",
)
# Nothing below these may be the object of a recursive removal itself
PROTECTED = frozenset(
    {
        *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root"),
        *("/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/local/bin"),
        *("/usr/local/lib", "/usr/local/sbin", "/usr/sbin", "/usr/share", "/var", "/var/cache", "/var/lib", "/var/log"),
        *("/var/tmp", "/etc/apt", "/etc/netplan", "/etc/ssh", "/etc/sysctl.d", "/etc/systemd", "/etc/systemd/system"),
    }
)


class HostStateError(Exception):
    """The wanted state is invalid or could not be reached; the message says what to fix."""


def _mode(value: Any, where: str) -> int:
    """Only four octal digits are taken: an unquoted 0644 arrives from YAML as the decimal 420."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-7]{4}", value):
        raise HostStateError(f"{where}: mode {value!r} is not four octal digits in quotes, such as '0644'")
    return int(value, 8)


def _path(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.startswith("/") or os.path.normpath(value) != value:
        raise HostStateError(f"{where}: {value!r} is not an absolute, normalised path")
    return value


def unit_name(name: str) -> str:
    """systemctl's own rule: a name without a type is a service."""
    return name if name.endswith(UNIT_SUFFIXES) else f"{name}.service"


@dataclass
class Owned:
    path: str
    owner: str
    group: str
    mode: int

    @classmethod
    def fields(cls, item: dict[str, Any], where: str, mode: str) -> dict[str, Any]:
        owner = item.get("owner") or "root"
        return {
            "path": _path(item["path"], where),
            "owner": owner,
            "group": item.get("group") or owner,
            "mode": _mode(item.get("mode") or mode, f"{where}: {item['path']}"),
        }


@dataclass
class FileSpec(Owned):
    content: bytes = b""
    secret: bool = False
    foreign: str = "replace"
    backup: bool = True


@dataclass
class UnitSpec:
    name: str
    enabled: bool | None = None
    masked: bool | None = None
    state: str | None = None
    restart_on: list[str] = field(default_factory=list)
    reload_on: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    program_from: str = ""
    optional: bool = False
    spare_desktop: bool = False
    no_block: bool = False
    defer: bool = False
    #: its former state comes back, which is nothing to record
    restored: bool = False


@dataclass
class Wanted:
    groups: list[dict[str, Any]]
    users: list[dict[str, Any]]
    directories: list[Owned]
    files: list[FileSpec]
    links: list[tuple[str, str]]
    absent: list[str]
    restore: list[str]
    sysctls: dict[str, str]
    units: list[UnitSpec]

    @classmethod
    def parse(cls, params: dict[str, Any]) -> Wanted:
        """Raises :class:`HostStateError` for what is invalid, named twice or contradicts itself."""
        wanted = cls(
            groups=list(params.get("groups") or []),
            users=list(params.get("users") or []),
            directories=[Owned(**Owned.fields(d, "directories", "0755")) for d in params.get("directories") or []],
            files=[_parse_file(item) for item in params.get("files") or []],
            links=[(_path(i["path"], "links"), str(i["target"])) for i in params.get("links") or []],
            absent=[_path(p, "absent") for p in params.get("absent") or []],
            restore=[p if not p.startswith("/") else _path(p, "restore") for p in params.get("restore") or []],
            sysctls={str(item["name"]): str(item["value"]) for item in params.get("sysctls") or []},
            units=[],
        )
        wanted._check_paths()
        wanted.units = [_parse_unit(item, wanted.restore) for item in params.get("units") or []]
        names = [u.name for u in wanted.units]
        for name in names:
            if names.count(name) > 1:
                raise HostStateError(f"units: {name} is named twice")
        return wanted

    def _check_paths(self) -> None:
        """No system directory is removed, and every path is named once."""
        for path in self.absent:
            if path in PROTECTED:
                raise HostStateError(f"absent: {path} is a system directory and is never removed")
        seen: dict[str, str] = {}
        for kind, paths in (
            ("files", [f.path for f in self.files]),
            ("links", [p for p, target in self.links]),
            ("directories", [d.path for d in self.directories]),
            ("absent", self.absent),
            ("restore", [p for p in self.restore if p.startswith("/")]),
        ):
            for path in paths:
                if path in seen:
                    raise HostStateError(f"{path} is named in {seen[path]} and again in {kind}")
                seen[path] = kind


def _parse_file(item: dict[str, Any]) -> FileSpec:
    secret = bool(item.get("secret"))
    spec = FileSpec(
        **Owned.fields(item, "files", "0600" if secret else "0644"),
        content=str(item["content"]).encode(),
        secret=secret,
        foreign=item.get("foreign") or "replace",
        backup=item.get("backup") is not False,
    )
    if secret and spec.mode & 0o037:
        raise HostStateError(f"files: {spec.path}: a secret must not be open to others: mode {spec.mode:04o}")
    if spec.foreign != "replace" and not has_marker(spec.content):
        raise HostStateError(
            f"files: {spec.path}: foreign: {spec.foreign} needs the line '# {MARKER}' in the content, "
            "or the next run could not tell the file is ours"
        )
    return spec


def _parse_unit(item: dict[str, Any], restore: list[str]) -> UnitSpec:
    known = {k: item[k] for k in ("enabled", "masked", "state") if item.get(k) is not None}
    unit = UnitSpec(
        name=unit_name(item["name"]),
        restart_on=list(item.get("restart_on") or []),
        reload_on=list(item.get("reload_on") or []),
        environment={str(k): str(v) for k, v in (item.get("environment") or {}).items()},
        program_from=_path(item["program_from"], "program_from") if item.get("program_from") else "",
        optional=bool(item.get("optional")),
        spare_desktop=bool(item.get("spare_desktop")),
        no_block=bool(item.get("no_block")),
        defer=bool(item.get("defer")),
        **known,
    )
    if unit.name in restore:
        raise HostStateError(f"{unit.name} is named in units and again in restore")
    if unit.masked and (unit.enabled or unit.state in ("started", "restarted", "reloaded")):
        raise HostStateError(f"units: {unit.name} cannot be masked and enabled or running")
    return unit


def has_marker(content: bytes) -> bool:
    """Ours or foreign: the marker stands in the first lines (a script's first line is its interpreter)."""
    return MARKER.encode() in b"\n".join(content.split(b"\n", 5)[:5])
