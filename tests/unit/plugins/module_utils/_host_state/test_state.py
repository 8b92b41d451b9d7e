# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host state logic on a root of its own, with a systemctl that keeps what it is told."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Host, Result
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.paths import meaning
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.state import HostState
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.sysctls import sysctl_path
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.units import parse_show
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import (
    HostStateError,
    Wanted,
    unit_name,
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
        return [" ".join(a for a in call[1:] if a != "--") for call in self.calls if call[:2] != ["systemctl", "show"]]

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


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    return FakeHost(tmp_path)


def read(host: FakeHost, path: str) -> str:
    return (host.root / path.lstrip("/")).read_text()


def write(host: FakeHost, path: str, text: str, mode: int = 0o644) -> None:
    target = host.root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    target.chmod(mode)


# -- files ----------------------------------------------------------------------------------------------------------


def test_new_file_with_its_parents(host: FakeHost) -> None:
    done = host.converge(files=[{"path": "/etc/sparkthor/a/b.conf", "content": MARK + "A=1\n", "mode": "0640"}])
    assert done.changed_paths == ["/etc", "/etc/sparkthor", "/etc/sparkthor/a", "/etc/sparkthor/a/b.conf"]
    assert read(host, "/etc/sparkthor/a/b.conf") == MARK + "A=1\n"
    assert stat.S_IMODE((host.root / "etc/sparkthor/a/b.conf").stat().st_mode) == 0o640
    assert [p.name for p in (host.root / "etc/sparkthor/a").iterdir()] == ["b.conf"], "a temporary file stayed"


def test_own_file_is_replaced_without_backup(host: FakeHost) -> None:
    write(host, "/etc/x", MARK + "A=1\n")
    done = host.converge(files=[{"path": "/etc/x", "content": MARK + "A=2\n"}])
    assert done.diff == [
        {"before_header": "/etc/x", "after_header": "/etc/x", "before": MARK + "A=1\n", "after": MARK + "A=2\n"}
    ]
    assert not (host.root / "etc/x.sparkthor-orig").exists()


def test_foreign_file_is_kept_once(host: FakeHost) -> None:
    write(host, "/etc/x", "by hand\n", 0o640)
    host.converge(files=[{"path": "/etc/x", "content": MARK + "A=2\n"}])
    assert read(host, "/etc/x.sparkthor-orig") == "by hand\n"
    assert stat.S_IMODE((host.root / "etc/x.sparkthor-orig").stat().st_mode) == 0o640
    write(host, "/etc/x", "by hand again\n")
    host.converge(files=[{"path": "/etc/x", "content": MARK + "A=2\n"}])
    assert read(host, "/etc/x.sparkthor-orig") == "by hand\n"


def test_foreign_file_without_backup(host: FakeHost) -> None:
    write(host, "/etc/x", "by hand\n")
    host.converge(files=[{"path": "/etc/x", "content": MARK, "backup": False}])
    assert not (host.root / "etc/x.sparkthor-orig").exists()


@pytest.mark.parametrize("check", [True, False])
def test_refuse_names_the_file_and_changes_nothing(host: FakeHost, check: bool) -> None:
    write(host, "/etc/x", "by hand\n")
    before = snapshot(host.root)
    spec = {"path": "/etc/x", "content": MARK + "A=1\n", "foreign": "refuse"}
    with pytest.raises(HostStateError, match="/etc/x was not written by this collection"):
        host.apply(check=check, files=[{"path": "/etc/first", "content": MARK}, spec])
    assert snapshot(host.root) == before


def test_adopt_leaves_what_says_the_same(host: FakeHost) -> None:
    write(host, "/etc/x", "# mine\nA=1  \n\n")
    spec = {"path": "/etc/x", "content": MARK + "A=1\n", "foreign": "adopt"}
    assert not host.apply(files=[spec]).changed
    assert read(host, "/etc/x") == "# mine\nA=1  \n\n"
    write(host, "/etc/x", "A=2\n")
    with pytest.raises(HostStateError, match="/etc/x"):
        host.apply(files=[spec])


def test_foreign_needs_a_marker_of_ours() -> None:
    with pytest.raises(HostStateError, match="foreign: refuse needs the line"):
        Wanted.parse({"files": [{"path": "/etc/x", "content": "A=1\n", "foreign": "refuse"}]})


def test_link_in_place_of_a_file_is_replaced_and_kept(host: FakeHost) -> None:
    write(host, "/etc/elsewhere", "theirs\n")
    (host.root / "etc/x").symlink_to("elsewhere")
    host.converge(files=[{"path": "/etc/x", "content": MARK}])
    assert not (host.root / "etc/x").is_symlink()
    assert read(host, "/etc/elsewhere") == "theirs\n"
    assert (host.root / "etc/x.sparkthor-orig").readlink() == Path("elsewhere")


def test_secret_is_never_shown(host: FakeHost) -> None:
    write(host, "/etc/key", "old-SECRET\n", 0o600)
    done = host.converge(files=[{"path": "/etc/key", "content": "new-SECRET\n", "secret": True}])
    assert done.changed_paths == ["/etc/key"]
    assert "SECRET" not in repr(done)
    assert done.diff[0]["before"] != done.diff[0]["after"]
    assert stat.S_IMODE((host.root / "etc/key").stat().st_mode) == 0o600


def test_open_secret_is_refused() -> None:
    with pytest.raises(HostStateError, match="/etc/key: a secret must not be open to others"):
        Wanted.parse({"files": [{"path": "/etc/key", "content": "x", "secret": True, "mode": "0644"}]})


def test_mode_alone(host: FakeHost) -> None:
    write(host, "/etc/x", MARK, 0o666)
    done = host.converge(files=[{"path": "/etc/x", "content": MARK}])
    assert done.diff[0]["before"] == "owner root\ngroup root\nmode 0666\n"
    assert done.diff[0]["after"] == "owner root\ngroup root\nmode 0644\n"


def test_failed_write_leaves_the_old_file(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    write(host, "/etc/x", MARK + "old\n")

    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(HostStateError, match="/etc/x cannot be written: No space left"):
        host.apply(files=[{"path": "/etc/x", "content": MARK + "new\n"}])
    assert read(host, "/etc/x") == MARK + "old\n"
    assert [p.name for p in (host.root / "etc").iterdir()] == ["x"]


@pytest.mark.parametrize("mode", [420, "420", "644", "0888", "rw"])
def test_mode_must_be_four_octal_digits(mode: Any) -> None:
    with pytest.raises(HostStateError, match="four octal digits"):
        Wanted.parse({"files": [{"path": "/etc/x", "content": "", "mode": mode}]})


@pytest.mark.parametrize("path", ["etc/x", "/etc/../x", "/etc//x", "/etc/x/"])
def test_path_must_be_absolute_and_normal(path: str) -> None:
    with pytest.raises(HostStateError, match="absolute"):
        Wanted.parse({"files": [{"path": path, "content": ""}]})


def test_a_path_is_declared_once() -> None:
    with pytest.raises(HostStateError, match="/etc/x is named in files and again in absent"):
        Wanted.parse({"files": [{"path": "/etc/x", "content": ""}], "absent": ["/etc/x"]})


def test_unknown_owner(host: FakeHost) -> None:
    spec = {"path": "/etc/x", "content": MARK, "owner": "nobody-here"}
    assert host.apply(check=True, files=[spec]).changed_paths == ["/etc", "/etc/x"]
    with pytest.raises(HostStateError, match="/etc/x: user nobody-here does not exist"):
        host.apply(files=[spec])


# -- directories, links, absent, restore -----------------------------------------------------------------------------


def test_directories(host: FakeHost) -> None:
    (host.root / "var").mkdir(mode=0o755)
    (host.root / "var/loose").mkdir()
    (host.root / "var/loose").chmod(0o777)
    done = host.converge(
        directories=[
            {"path": "/var/loose", "mode": "0750"},
            {"path": "/var/new", "mode": "0700"},
            {"path": "/var/new/in"},
        ]
    )
    assert done.changed_paths == ["/var/loose", "/var/new", "/var/new/in"]
    assert stat.S_IMODE((host.root / "var/new").stat().st_mode) == 0o700


def test_directory_behind_a_link_is_accepted(host: FakeHost) -> None:
    (host.root / "big").mkdir(mode=0o755)
    (host.root / "models").symlink_to("big")
    assert not host.apply(directories=[{"path": "/models"}]).changed


def test_file_in_place_of_a_directory(host: FakeHost) -> None:
    write(host, "/var", "")
    with pytest.raises(HostStateError, match="/var is not a directory"):
        host.apply(directories=[{"path": "/var"}])


def test_links(host: FakeHost) -> None:
    write(host, "/usr/lib/t/multi-user.target", "")
    (host.root / "lib").symlink_to("usr/lib")
    wanted = {"path": "/etc/t/default.target", "target": "/usr/lib/t/multi-user.target"}
    host.converge(links=[wanted])
    assert (host.root / "etc/t/default.target").readlink() == Path("/usr/lib/t/multi-user.target")


def test_link_that_leads_to_the_same_place_is_right(host: FakeHost) -> None:
    write(host, "/usr/lib/t/a.target", "")
    (host.root / "lib").symlink_to("usr/lib")
    (host.root / "etc").mkdir()
    (host.root / "etc/d").symlink_to("/lib/t/a.target")
    assert not host.apply(links=[{"path": "/etc/d", "target": "/usr/lib/t/a.target"}]).changed


def test_absent(host: FakeHost) -> None:
    write(host, "/etc/d/x", "")
    write(host, "/etc/f", "")
    done = host.converge(absent=["/etc/d", "/etc/f", "/etc/never-was"])
    assert done.changed_paths == ["/etc/d", "/etc/f"]
    assert list((host.root / "etc").iterdir()) == []


@pytest.mark.parametrize("path", ["/", "/etc", "/usr/lib", "/etc/systemd/system"])
def test_system_directories_are_never_removed(path: str) -> None:
    with pytest.raises(HostStateError, match="never removed"):
        Wanted.parse({"absent": [path]})


def test_restore_gives_back_what_was_there(host: FakeHost) -> None:
    write(host, "/etc/foreign", "theirs\n", 0o640)
    write(host, "/etc/untouched", "theirs too\n")
    write(host, "/proc/sys/vm/swappiness", "60\n")
    (host.root / "etc/default.target").symlink_to("graphical.target")
    wanted = {
        "files": [{"path": "/etc/foreign", "content": MARK}, {"path": "/etc/ours", "content": MARK}],
        "links": [
            {"path": "/etc/default.target", "target": "multi-user.target"},
            {"path": "/etc/new-link", "target": "x"},
        ],
        "sysctls": {"vm.swappiness": 1},
    }
    before = {k: v for k, v in snapshot(host.root).items() if "/etc/" in k or "/proc/" in k}
    host.converge(**wanted)
    names = ["/etc/foreign", "/etc/ours", "/etc/untouched", "/etc/default.target", "/etc/new-link", "vm.swappiness"]
    done = host.converge(restore=names)
    assert done.changed_paths == ["/etc/foreign", "/etc/ours", "/etc/default.target", "/etc/new-link"]
    assert done.changed_sysctls == ["vm.swappiness"]
    after = {k: v for k, v in snapshot(host.root).items() if "/etc/" in k or "/proc/" in k}
    assert after.keys() == before.keys()
    assert {k: v for k, v in after.items() if "swappiness" not in k} == {
        k: v for k, v in before.items() if "swappiness" not in k
    }
    assert read(host, "/proc/sys/vm/swappiness").strip() == "60"


# -- accounts --------------------------------------------------------------------------------------------------------


def test_new_user_owns_new_files(host: FakeHost) -> None:
    (host.root / "srv").mkdir(mode=0o755)
    done = host.converge(
        groups=[{"name": "sparkthor"}],
        users=[{"name": "sparkthor", "groups": ["video", "render"], "home": "/var/lib/sparkthor"}],
        directories=[{"path": "/srv/d", "owner": "sparkthor"}],
        files=[{"path": "/srv/d/f", "content": MARK, "owner": "sparkthor"}],
    )
    assert done.changed_accounts == ["group sparkthor", "user sparkthor"]
    assert done.skipped_groups == ["render"]
    useradd = next(call for call in host.calls if call[0] == "useradd")
    assert useradd[useradd.index("--groups") + 1] == "video"
    assert useradd[useradd.index("--gid") + 1] == "sparkthor"
    assert useradd[useradd.index("--shell") + 1] == "/usr/sbin/nologin"


def test_user_gains_a_group_it_lacks(host: FakeHost) -> None:
    host.accounts.users["sparkthor"] = {"home": "/x", "shell": "/bin/sh", "groups": ["sparkthor"]}
    done = host.converge(users=[{"name": "sparkthor", "groups": ["video"]}])
    assert done.changed_accounts == ["user sparkthor"]
    assert ["usermod", "--append", "--groups", "video", "sparkthor"] in host.calls


def test_account_tool_fails(host: FakeHost) -> None:
    real = host.run
    host.run = lambda argv, t: (9, "", "useradd: locked") if argv[0] == "useradd" else real(argv, t)  # type: ignore[method-assign]
    with pytest.raises(HostStateError, match=r"user x cannot be set up: useradd .* ended with 9: useradd: locked"):
        host.apply(users=[{"name": "x"}])


# -- sysctls ---------------------------------------------------------------------------------------------------------


def test_sysctls(host: FakeHost) -> None:
    write(host, "/proc/sys/vm/swappiness", "60\n")
    write(host, "/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n")
    done = host.converge(sysctls={"vm.swappiness": 1, "net.ipv4.tcp_rmem": "4096 131072 6291456"})
    assert done.changed_sysctls == ["vm.swappiness"]
    assert done.diff[0]["before"] == "vm.swappiness = 60\n"
    assert read(host, "/proc/sys/vm/swappiness") == "1\n"


def test_unknown_sysctl(host: FakeHost) -> None:
    predicted = host.apply(check=True, sysctls={"vm.nothing": 1})
    assert predicted.changed
    assert "vm.nothing cannot be read" in predicted.warnings[0]
    with pytest.raises(HostStateError, match=r"vm\.nothing cannot be read on this host: No such file"):
        host.apply(sysctls={"vm.nothing": 1})


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("vm.swappiness", "vm/swappiness"),
        ("net/ipv4/conf/eth0.1/forwarding", "net/ipv4/conf/eth0.1/forwarding"),
        ("net.ipv4.conf.eth0/1.forwarding", "net/ipv4/conf/eth0.1/forwarding"),
    ],
)
def test_sysctl_path(key: str, path: str) -> None:
    assert sysctl_path(key) == path


@pytest.mark.parametrize("key", ["swappiness", "/vm/swappiness", "../etc/passwd", "vm..x", "a b.c", ""])
def test_bad_sysctl_key(key: str) -> None:
    with pytest.raises(HostStateError, match="not a sysctl key"):
        sysctl_path(key)


# -- units -----------------------------------------------------------------------------------------------------------

PATH = "/etc/systemd/system/x.service"


def test_new_unit_is_written_enabled_and_started(host: FakeHost) -> None:
    done = host.converge(
        files=[{"path": PATH, "content": UNIT}],
        units=[{"name": "x", "enabled": True, "state": "started", "restart_on": [PATH]}],
    )
    assert host.verbs() == ["daemon-reload", "enable x.service", "start x.service"]
    assert done.changed_units == ["x.service"]
    assert done.restarted_units == []
    assert done.daemon_reloaded
    assert done.units["x.service"]["active"] == "active"
    assert done.units["x.service"]["enabled"] == "enabled"


def test_running_unit_restarts_when_its_file_changes(host: FakeHost) -> None:
    write(host, PATH, UNIT)
    host.unit("x.service", "active", "enabled")
    changed = UNIT.replace("true", "false")
    wanted = [{"name": "x.service", "enabled": True, "state": "started", "restart_on": ["/etc/systemd/system"]}]
    done = host.converge(files=[{"path": PATH, "content": changed}], units=wanted)
    assert host.verbs() == ["daemon-reload", "restart x.service"]
    assert done.restarted_units == ["x.service"]


def test_other_changes_reload_and_restart_nothing(host: FakeHost) -> None:
    host.unit("x.service", "active", "enabled")
    (host.root / "etc").mkdir()
    done = host.converge(
        files=[{"path": "/etc/other", "content": MARK}],
        units=[{"name": "x.service", "state": "started", "restart_on": ["/etc/oth", PATH]}],
    )
    assert host.verbs() == []
    assert done.changed_paths == ["/etc/other"]
    assert not done.changed_units
    assert not done.daemon_reloaded


def test_a_failed_unit_that_is_to_be_stopped_is_forgotten_as_failed(host: FakeHost) -> None:
    host.unit("x.service", "failed", "disabled")
    done = host.apply(units=[{"name": "x.service", "state": "stopped"}])
    assert host.verbs() == ["stop x.service", "reset-failed x.service"]
    assert done.changed_units == ["x.service"]
    assert "failed" in done.diff[0]["before"]


def test_stopped_unit_is_not_restarted_by_restart_on(host: FakeHost) -> None:
    host.unit("x.service", "inactive", "disabled")
    host.converge(files=[{"path": PATH, "content": UNIT}], units=[{"name": "x.service", "restart_on": [PATH]}])
    assert host.verbs() == ["daemon-reload"]


def test_reload_on(host: FakeHost) -> None:
    host.unit("x.service", "active", "enabled")
    host.converge(files=[{"path": "/etc/x", "content": MARK}], units=[{"name": "x.service", "reload_on": ["/etc/x"]}])
    assert host.verbs() == ["reload x.service"]


def test_a_deferred_unit_is_left_alone_and_its_restart_owed(host: FakeHost) -> None:
    unit = {"name": "x.service", "enabled": True, "state": "started", "restart_on": ["/etc/x.conf"]}
    host.unit("x.service", "active", "enabled")
    files = {"files": [{"path": "/etc/x.conf", "content": "1\n"}]}
    (host.root / "etc").mkdir()
    done = host.apply(**files, units=[{**unit, "defer": True}])
    assert done.deferred_units == {"x.service": "restart"}
    assert (done.changed_paths, done.changed_units, done.restarted_units) == (["/etc/x.conf"], [], [])
    assert host.verbs() == []
    # said again until it is done, whoever does it
    assert host.apply(**files, units=[{**unit, "defer": True}]).deferred_units == {"x.service": "restart"}
    assert host.apply(units=[unit]).restarted_units == ["x.service"]
    assert host.apply(**files, units=[{**unit, "defer": True}]).deferred_units == {}


def test_a_deferred_unit_that_does_not_run_is_to_be_started(host: FakeHost) -> None:
    host.unit("x.service", "inactive", "disabled")
    unit = {"name": "x.service", "enabled": True, "state": "started", "defer": True}
    done = host.apply(units=[unit])
    assert done.deferred_units == {"x.service": "start"}
    assert not done.changed
    assert host.apply(units=[{**unit, "state": None}]).deferred_units == {"x.service": "enable"}


@pytest.mark.parametrize(
    ("given", "restarted"),
    [
        (b"A=1\0B=2 3\0", False),
        (b"A=1\0B=2 3\0C=4\0", False),
        (b"A=1\0B=2\0", True),
        (b"A=1\0", True),
        (b"XA=1\0B=2 3\0", True),
        (None, False),  # it ended meanwhile
    ],
)
def test_a_process_started_with_another_environment_is_restarted(host: FakeHost, given, restarted) -> None:
    host.unit("x.service", "active", "enabled", MainPID="77")
    if given is not None:
        (host.root / "proc/77").mkdir(parents=True)
        (host.root / "proc/77/environ").write_bytes(given)
    unit = {"name": "x.service", "state": "started", "environment": {"A": 1, "B": "2 3"}, "defer": True}
    assert host.apply(units=[unit]).deferred_units == ({"x.service": "restart"} if restarted else {})


def test_a_unit_without_a_process_is_not_asked_for_its_environment(host: FakeHost) -> None:
    host.unit("x.service", "activating", "enabled", MainPID="0")
    host.apply(units=[{"name": "x.service", "state": "started", "environment": {"A": "1"}}])
    assert host.verbs() == []


def test_restart_owed_by_an_interrupted_run(host: FakeHost) -> None:
    host.unit("x.service", "active", "enabled")
    wanted = {
        "files": [{"path": "/etc/x", "content": MARK}],
        "units": [{"name": "x.service", "restart_on": ["/etc/x"]}],
    }
    host.fail["restart"] = "Connection reset"
    with pytest.raises(HostStateError, match=r"x\.service: restart failed"):
        host.apply(**wanted)
    host.fail.clear()
    assert host.apply(**wanted).restarted_units == ["x.service"]
    assert not host.apply(**wanted).changed


@pytest.mark.parametrize("taken_back_by", ["restore", "user"])
def test_a_link_is_taken_back_once(host: FakeHost, taken_back_by: str) -> None:
    path = "/etc/systemd/system/default.target"
    place = host.root / path[1:]
    host.apply(links=[{"path": path, "target": "/usr/lib/systemd/system/multi-user.target"}])
    if taken_back_by == "user":
        place.unlink()
    # nothing was there before
    assert host.apply(restore=[path]).changed is (taken_back_by == "restore")
    assert not place.is_symlink()
    place.symlink_to("/usr/lib/systemd/system/graphical.target")
    assert not host.apply(restore=[path]).changed
    assert os.readlink(place).endswith("graphical.target")


@pytest.mark.parametrize("stopped", [False, True])
def test_a_start_pays_a_restart_that_is_owed(host: FakeHost, stopped: bool) -> None:
    host.unit("x.service", "active", "enabled")
    unit = {"name": "x.service", "state": "started", "restart_on": ["/etc/x"]}
    wanted = {"files": [{"path": "/etc/x", "content": MARK}], "units": [unit]}
    host.fail["restart"] = "bad configuration"
    with pytest.raises(HostStateError, match=r"x\.service: restart failed"):
        host.apply(**wanted)
    host.fail.clear()
    if stopped:
        host.apply(units=[{"name": "x.service", "state": "stopped"}])
        host._verb("start", "x.service")  # by hand
    else:
        host.units["x.service"]["ActiveState"] = "failed"
        assert host.apply(**wanted).restarted_units == []
    # the files that it was started with are these
    assert host.units["x.service"]["ActiveState"] == "active"
    assert not host.apply(**wanted).changed


def test_daemon_reload_when_systemd_says_so(host: FakeHost) -> None:
    host.unit("x.service", "active", "enabled", NeedDaemonReload="yes")
    assert host.converge(units=[{"name": "x.service", "state": "started"}]).daemon_reloaded
    assert host.verbs() == ["daemon-reload"]


def test_unit_is_stopped_before_its_file_goes(host: FakeHost) -> None:
    write(host, PATH, UNIT)
    host.unit("x.service", "active", "enabled")
    present = []
    real = host.run

    def run(argv: list[str], timeout: float) -> tuple[int, str, str]:
        if argv[1] in ("stop", "disable"):
            present.append((host.root / PATH.lstrip("/")).exists())
        return real(argv, timeout)

    host.run = run  # type: ignore[method-assign]
    host.apply(absent=[PATH], units=[{"name": "x.service", "state": "stopped", "enabled": False}])
    assert present == [True, True]
    assert host.verbs() == ["stop x.service", "disable x.service", "daemon-reload"]


def test_missing_unit_that_is_to_be_stopped_is_fine(host: FakeHost) -> None:
    assert not host.apply(units=[{"name": "gone.service", "state": "stopped", "enabled": False}]).changed


def test_missing_unit(host: FakeHost) -> None:
    wanted = {"units": [{"name": "gone.service", "enabled": True, "state": "started"}]}
    predicted = host.apply(check=True, **wanted)
    assert predicted.changed_units == ["gone.service"]
    assert "gone.service does not exist on this host yet" in predicted.warnings[0]
    with pytest.raises(HostStateError, match=r"gone\.service does not exist on this host; install"):
        host.apply(**wanted)
    wanted["units"][0]["optional"] = True
    assert not host.apply(**wanted).changed


def test_masking(host: FakeHost) -> None:
    host.unit("sleep.target", "inactive", "static")
    host.unit("apt-daily.timer", "active", "enabled")
    done = host.converge(units=[{"name": "sleep.target", "masked": True}, {"name": "apt-daily.timer", "masked": True}])
    assert host.verbs() == ["stop apt-daily.timer", "mask sleep.target apt-daily.timer"]
    assert done.changed_units == ["sleep.target", "apt-daily.timer"]
    host.converge(units=[{"name": "sleep.target", "masked": False}])
    assert host.verbs() == ["unmask sleep.target"]


def test_restore_unmasks_only_what_we_masked(host: FakeHost) -> None:
    host.unit("apt-daily.timer", "active", "enabled")
    host.unit("sleep.target", "inactive", "static")
    host.unit("theirs.service", "inactive", "masked", LoadState="masked")
    names = ["apt-daily.timer", "sleep.target", "theirs.service"]
    host.converge(units=[{"name": name, "masked": True} for name in names])
    done = host.converge(restore=names)
    assert done.changed_units == ["apt-daily.timer", "sleep.target"]
    assert host.verbs() == ["unmask apt-daily.timer sleep.target", "start apt-daily.timer"]
    assert host.units["theirs.service"]["LoadState"] == "masked"


def test_a_unit_is_known_as_masked_until_it_is_unmasked(host: FakeHost) -> None:
    host.unit("sleep.target", "inactive", "static")
    host.apply(units=[{"name": "sleep.target", "masked": True}])
    host.fail["unmask"] = "Connection reset"
    with pytest.raises(HostStateError, match="unmask"):
        host.apply(restore=["sleep.target"])
    host.fail.clear()
    host.apply(restore=["sleep.target"])
    assert host.verbs() == ["unmask sleep.target"]
    assert not host.apply(restore=["sleep.target"]).changed


def test_optional_unit_that_somebody_masked_stays_masked(host: FakeHost) -> None:
    host.unit("x.service", "inactive", "masked", LoadState="masked")
    assert not host.apply(units=[{"name": "x.service", "state": "started", "optional": True}]).changed


def test_masked_unit_that_should_run(host: FakeHost) -> None:
    host.unit("x.service", "inactive", "masked", LoadState="masked")
    with pytest.raises(HostStateError, match=r"x\.service is masked on this host"):
        host.apply(units=[{"name": "x.service", "state": "started"}])
    host.converge(units=[{"name": "x.service", "state": "started", "enabled": True, "masked": False}])
    assert host.verbs() == ["unmask x.service", "enable x.service", "start x.service"]


def test_unit_without_install_section(host: FakeHost) -> None:
    text = MARK + "[Service]\nExecStart=/bin/true\n"
    for check in (True, False):
        with pytest.raises(HostStateError, match=r"has no \[Install\] section"):
            host.apply(check=check, files=[{"path": PATH, "content": text}], units=[{"name": "x", "enabled": True}])


def test_failed_unit_is_reset_and_started(host: FakeHost) -> None:
    host.unit("x.service", "failed", "enabled")
    host.converge(units=[{"name": "x.service", "state": "started"}])
    assert host.verbs() == ["reset-failed x.service", "start x.service"]


def test_optional_unit_whose_condition_fails_is_asked_once(host: FakeHost) -> None:
    unmet = {"ConditionResult": "no", "ConditionTimestampMonotonic": "4711"}
    host.unit("timesyncd.service", "inactive", "enabled", **unmet)
    wanted = {"name": "timesyncd.service", "state": "started"}
    assert not host.apply(units=[{**wanted, "optional": True}]).changed
    assert host.apply(units=[wanted]).changed_units == ["timesyncd.service"]
    host.unit("timesyncd.service", "inactive", "enabled", **{**unmet, "ConditionTimestampMonotonic": "0"})
    assert host.apply(units=[{**wanted, "optional": True}]).changed_units == ["timesyncd.service"]


def test_failure_carries_the_journal(host: FakeHost) -> None:
    host.unit("x.service", "inactive", "enabled")
    host.fail["start"] = "Job for x.service failed."
    with pytest.raises(HostStateError, match=r"x\.service: start failed \(1\): Job for x(?s:.*)exec format error"):
        host.apply(units=[{"name": "x.service", "state": "started"}])


def test_no_block(host: FakeHost) -> None:
    host.unit("x.service", "inactive", "enabled")
    host.converge(units=[{"name": "x.service", "state": "started", "no_block": True}])
    assert ["systemctl", "start", "--no-block", "--", "x.service"] in host.calls


def test_template_instance_of_a_new_template(host: FakeHost) -> None:
    template = "/etc/systemd/system/x@.service"
    predicted = host.apply(
        check=True, files=[{"path": template, "content": UNIT}], units=[{"name": "x@a.service", "enabled": True}]
    )
    assert predicted.changed_units == ["x@a.service"]
    assert predicted.warnings == []


def test_unit_declared_twice() -> None:
    with pytest.raises(HostStateError, match=r"x\.service is named twice"):
        Wanted.parse({"units": [{"name": "x"}, {"name": "x.service"}]})


def test_unit_masked_and_running() -> None:
    with pytest.raises(HostStateError, match="cannot be masked and enabled or running"):
        Wanted.parse({"units": [{"name": "x", "masked": True, "state": "started"}]})


@pytest.mark.parametrize(
    ("name", "full"), [("nginx", "nginx.service"), ("a.timer", "a.timer"), ("dotted.name", "dotted.name.service")]
)
def test_unit_name(name: str, full: str) -> None:
    assert unit_name(name) == full


def test_show_with_too_few_blocks() -> None:
    with pytest.raises(HostStateError, match="answered 1 blocks for 2 units"):
        parse_show("Id=a\n", ["a", "b"])


def test_no_units_means_no_command(host: FakeHost) -> None:
    host.apply(files=[{"path": "/etc/x", "content": MARK}])
    assert host.calls == []


def test_meaning() -> None:
    assert meaning(b"# c\n; c\n\nA=1 \n  B\n") == [b"A=1", b"  B"]
