# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host in a folder: systemctl, accounts and files as far as host_state uses them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Host, Result
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.state import HostState
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import (
    Wanted,
)

MARK = "# Ansible managed: sparkthor.cluster\n"
UNIT = MARK + "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"


class FakeAccounts:
    """The running user plays root, so that the tests need no privilege."""

    def __init__(self) -> None:
        self.users: dict[str, dict[str, Any]] = {"root": {"home": "/root", "shell": "/bin/bash", "groups": ["root"]}}
        self.groups: set[str] = {"root", "video"}

    def uid(self, name: str) -> int | None:
        return os.getuid() if name in self.users else None

    def gid(self, name: str) -> int | None:
        return os.getgid() if name in self.groups else None

    def user(self, name: str) -> dict[str, Any] | None:
        return self.users.get(name)

    def user_name(self, uid: int) -> str:
        return "root"

    def group_name(self, gid: int) -> str:
        return "root"


class FakeHost:
    """systemctl, useradd and groupadd as far as the module uses them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.accounts = FakeAccounts()
        self.units: dict[str, dict[str, str]] = {}
        self.calls: list[list[str]] = []
        self.fail: dict[str, str] = {}
        #: what loginctl shows of the one session there is
        self.session = ""

    def unit(self, name: str, active: str = "inactive", file_state: str = "disabled", **more: str) -> None:
        self.units[name] = {
            "Id": name,
            "LoadState": "loaded",
            "ActiveState": active,
            "SubState": "",
            "UnitFileState": file_state,
            "MainPID": "0",
            "NeedDaemonReload": "no",
            **more,
        }

    def run(self, argv: list[str], timeout: float) -> tuple[int, str, str]:
        assert timeout > 0
        self.calls.append(argv)
        words = [a for a in argv[1:] if not a.startswith("-")]
        if argv[0] == "journalctl":
            return 0, "exec format error\n", ""
        if argv[0] == "loginctl":
            return 0, (self.session if "show-session" in argv else "1 1000 ada seat0\n" * bool(self.session)), ""
        if argv[0] == "groupadd":
            self.accounts.groups.add(argv[-1])
            return 0, "", ""
        if argv[0] == "useradd":
            groups = argv[argv.index("--groups") + 1].split(",") if "--groups" in argv else []
            home, shell = argv[argv.index("--home-dir") + 1], argv[argv.index("--shell") + 1]
            self.accounts.users[argv[-1]] = {"home": home, "shell": shell, "groups": [*groups, argv[-1]]}
            self.accounts.groups.add(argv[-1])
            return 0, "", ""
        if argv[0] == "usermod":
            user = self.accounts.users[argv[-1]]
            if "--groups" in argv:
                user["groups"] += argv[argv.index("--groups") + 1].split(",")
            return 0, "", ""
        if argv[0] == "userdel":
            del self.accounts.users[argv[-1]]
            # its own group goes along, as with USERGROUPS_ENAB in login.defs
            self.accounts.groups.discard(argv[-1])
            return 0, "", ""
        if argv[0] == "groupdel":
            self.accounts.groups.remove(argv[-1])
            return 0, "", ""
        assert argv[0] == "systemctl"
        verb, names = words[0], words[1:]
        if verb in self.fail:
            return 1, "", self.fail[verb]
        if verb == "show":
            return 0, "\n".join(self._block(name) for name in names), ""
        if verb == "daemon-reload":
            self._load()
            return 0, "", ""
        for name in names:
            self._verb(verb, name)
        return 0, "", ""

    def _block(self, name: str) -> str:
        missing = {"Id": name, "LoadState": "not-found", "ActiveState": "inactive", "UnitFileState": ""}
        return "".join(f"{k}={v}\n" for k, v in self.units.get(name, missing).items())

    def _load(self) -> None:
        folder = self.root / "etc/systemd/system"
        for path in folder.glob("*.service") if folder.is_dir() else ():
            if path.name not in self.units:
                self.unit(path.name, file_state="disabled" if "[Install]" in path.read_text() else "static")
        for unit in self.units.values():
            unit["NeedDaemonReload"] = "no"

    def _verb(self, verb: str, name: str) -> None:
        unit = self.units.setdefault(name, {"Id": name, "LoadState": "not-found", "ActiveState": "inactive"})
        changes = {
            "start": {"ActiveState": "active"},
            "restart": {"ActiveState": "active"},
            # systemd remembers a failure over a stop
            "stop": {} if unit["ActiveState"] == "failed" else {"ActiveState": "inactive"},
            "enable": {"UnitFileState": "enabled"},
            "disable": {"UnitFileState": "disabled"},
            "mask": {"LoadState": "masked", "UnitFileState": "masked"},
            "unmask": {"LoadState": "loaded", "UnitFileState": "disabled"},
            "reload": {},
            "reset-failed": {"ActiveState": "inactive"} if unit["ActiveState"] == "failed" else {},
        }
        unit.update(changes[verb])

    def verbs(self) -> list[str]:
        asked = (["systemctl", "show"], ["loginctl", "list-sessions"], ["loginctl", "show-session"])
        return [" ".join(a for a in call[1:] if a != "--") for call in self.calls if call[:2] not in asked]

    def apply(self, check: bool = False, **params: Any) -> Result:
        self.calls = []
        host = Host(run=self.run, root=str(self.root), accounts=self.accounts)  # type: ignore[arg-type]
        return HostState(Wanted.parse(params), host, check).run()

    def converge(self, **params: Any) -> Result:
        """Check, apply, apply again: the prediction must be what happens, and the second run must find nothing."""
        before = snapshot(self.root)
        predicted = self.apply(check=True, **params)
        assert snapshot(self.root) == before, "check mode changed something"
        assert self.verbs() == [], "check mode ran a command"
        done = self.apply(**params)
        calls = self.calls
        for name in (
            "diff",
            "changed_paths",
            "changed_units",
            "restarted_units",
            "changed_accounts",
            "changed_sysctls",
        ):
            assert getattr(predicted, name) == getattr(done, name), name
        assert predicted.daemon_reloaded == done.daemon_reloaded
        again = self.apply(**params)
        assert not again.changed, again.diff
        assert len([c for c in self.calls if c[1:2] == ["show"]]) == len(self.calls), "a no-op ran more than one show"
        assert len(self.calls) <= 1
        self.calls = calls
        return done


def snapshot(root: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for path in sorted(root.rglob("*")):
        content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path)] = (stat.S_IMODE(path.lstat().st_mode), content)
    return found


def read(host: FakeHost, path: str) -> str:
    return (host.root / path.lstrip("/")).read_text()


def write(host: FakeHost, path: str, text: str, mode: int = 0o644) -> None:
    target = host.root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    target.chmod(mode)
