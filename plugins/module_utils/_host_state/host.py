# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host that a state is applied to, and what one call has found to change there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import HostStateError

# (argv, seconds) -> (exit status, stdout, stderr)
Command = Callable[[list[str], float], tuple[int, str, str]]


class Accounts:
    """Users and groups by name; asked anew each time because this call may create them."""

    def uid(self, name: str) -> int | None:
        import pwd

        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            return None

    def gid(self, name: str) -> int | None:
        import grp

        try:
            return grp.getgrnam(name).gr_gid
        except KeyError:
            return None

    def user(self, name: str) -> dict[str, Any] | None:
        import grp
        import pwd

        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            return None
        member_of = [g.gr_name for g in grp.getgrall() if name in g.gr_mem]
        with contextlib.suppress(KeyError):  # a primary group without a name is legal
            member_of.append(grp.getgrgid(entry.pw_gid).gr_name)
        return {"home": entry.pw_dir, "shell": entry.pw_shell, "groups": member_of}

    def user_name(self, uid: int) -> str:
        import pwd

        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return str(uid)

    def group_name(self, gid: int) -> str:
        import grp

        try:
            return grp.getgrgid(gid).gr_name
        except KeyError:
            return str(gid)


@dataclass
class Host:
    """Where the state lives; a test gives another root, command runner and accounts."""

    run: Command
    root: str = "/"
    accounts: Accounts = field(default_factory=Accounts)
    timeout: float = 300

    def at(self, path: str) -> str:
        return path if self.root == "/" else self.root.rstrip("/") + path


@dataclass
class Result:
    diff: list[dict[str, str]] = field(default_factory=list)
    changed_paths: list[str] = field(default_factory=list)
    changed_units: list[str] = field(default_factory=list)
    restarted_units: list[str] = field(default_factory=list)
    deferred_units: dict[str, str] = field(default_factory=dict)
    changed_accounts: list[str] = field(default_factory=list)
    changed_sysctls: list[str] = field(default_factory=list)
    skipped_groups: list[str] = field(default_factory=list)
    units: dict[str, dict[str, Any]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    daemon_reloaded: bool = False

    @property
    def changed(self) -> bool:
        return bool(
            self.changed_paths
            or self.changed_units
            or self.changed_accounts
            or self.changed_sysctls
            or self.daemon_reloaded
        )


@dataclass
class Changes:
    """What one call has found to change: its report, and the steps that make the changes, in order."""

    host: Host
    #: only compare
    check: bool
    result: Result = field(default_factory=Result)
    steps: list[Callable[[], object]] = field(default_factory=list)
    #: what is only true once the units are as wanted
    last_steps: list[Callable[[], object]] = field(default_factory=list)

    def note(self, name: str, before: str, after: str, suffix: str = "") -> None:
        """Show a difference; ``suffix`` says of what, where it is not the content."""
        header = name + suffix
        self.result.diff.append({"before_header": header, "after_header": header, "before": before, "after": after})

    def note_path(self, path: str, before: str, after: str, suffix: str = "") -> None:
        self.note(path, before, after, suffix)
        self.result.changed_paths.append(path)

    def must(self, argv: list[str], what: str, timeout: float | None = None) -> str:
        """Output of a command; :class:`HostStateError` where it fails."""
        code, out, err = self.host.run(argv, timeout or self.host.timeout)
        if code != 0:
            raise HostStateError(f"{what}: {' '.join(argv)} ended with {code}: {(err or out).strip()}")
        return out
