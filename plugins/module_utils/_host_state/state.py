# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole state a role wants on one host, compared and applied in one call.

Everything is first planned from what can be read, then applied.  Check mode stops after the plan, so what it reports
is what the real run does.  Units come last because their state depends on the files; a unit that is to be stopped or
disabled is handled first, so that it stops with the configuration it was started with.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_json, write_atomic

MARKER = "Ansible managed: sparkthor.cluster"
BACKUP_SUFFIX = ".sparkthor-orig"
LEDGER = "/var/lib/sparkthor/host_state.json"
PENDING = "/run/sparkthor-pending"
SYSTEMD_PATHS = (
    "/etc/systemd/system/",
    "/run/systemd/system/",
    "/usr/local/lib/systemd/system/",
    "/usr/lib/systemd/system/",
    "/lib/systemd/system/",
)
SYSTEMD_MANAGER_PATHS = ("/etc/systemd/system.conf",)
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
SHOW_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,MainPID,NeedDaemonReload,"
    "ConditionResult,ConditionTimestampMonotonic"
)
RUNNING = ("active", "activating", "reloading", "refreshing")
ENABLED = ("enabled", "enabled-runtime", "alias", "indirect", "static", "generated", "linked", "linked-runtime")
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
    """The wanted state is invalid or could not be reached; the message says what to mend."""


# (argv, seconds) -> (exit status, stdout, stderr)
Command = Callable[[list[str], float], tuple[int, str, str]]


# ---------------------------------------------------------------------------------------------------------------
# What is wanted
# ---------------------------------------------------------------------------------------------------------------


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
    optional: bool = False
    no_block: bool = False
    defer: bool = False

    @property
    def leaves(self) -> bool:
        """It is to be stopped or disabled: done before the files change."""
        return self.state == "stopped" or self.enabled is False


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
        directories = [Owned(**Owned.fields(d, "directories", "0755")) for d in params.get("directories") or []]
        files = []
        for item in params.get("files") or []:
            secret = bool(item.get("secret"))
            spec = FileSpec(
                **Owned.fields(item, "files", "0600" if secret else "0644"),
                content=str(item["content"]).encode(),
                secret=secret,
                foreign=item.get("foreign") or "replace",
                backup=item.get("backup") is not False,
            )
            if secret and spec.mode & 0o077:
                raise HostStateError(f"files: {spec.path}: a secret must not be open to others: mode {spec.mode:04o}")
            if spec.foreign != "replace" and not has_marker(spec.content):
                raise HostStateError(
                    f"files: {spec.path}: foreign: {spec.foreign} needs the line '# {MARKER}' in the content, "
                    "or the next run could not tell the file is ours"
                )
            files.append(spec)
        links = [(_path(i["path"], "links"), str(i["target"])) for i in params.get("links") or []]
        absent = [_path(p, "absent") for p in params.get("absent") or []]
        restore = [p if not p.startswith("/") else _path(p, "restore") for p in params.get("restore") or []]
        for path in absent:
            if path in PROTECTED:
                raise HostStateError(f"absent: {path} is a system directory and is never removed")
        seen: dict[str, str] = {}
        for kind, paths in (
            ("files", [f.path for f in files]),
            ("links", [p for p, target in links]),
            ("directories", [d.path for d in directories]),
            ("absent", absent),
            ("restore", [p for p in restore if p.startswith("/")]),
        ):
            for path in paths:
                if path in seen:
                    raise HostStateError(f"{path} is named in {seen[path]} and again in {kind}")
                seen[path] = kind
        units = []
        for item in params.get("units") or []:
            known = {k: item[k] for k in ("enabled", "masked", "state") if item.get(k) is not None}
            unit = UnitSpec(
                name=unit_name(item["name"]),
                restart_on=list(item.get("restart_on") or []),
                reload_on=list(item.get("reload_on") or []),
                environment={str(k): str(v) for k, v in (item.get("environment") or {}).items()},
                optional=bool(item.get("optional")),
                no_block=bool(item.get("no_block")),
                defer=bool(item.get("defer")),
                **known,
            )
            if unit.name in restore:
                raise HostStateError(f"{unit.name} is named in units and again in restore")
            if unit.masked and (unit.enabled or unit.state in ("started", "restarted", "reloaded")):
                raise HostStateError(f"units: {unit.name} cannot be masked and enabled or running")
            units.append(unit)
        names = [u.name for u in units]
        for name in names:
            if names.count(name) > 1:
                raise HostStateError(f"units: {name} is named twice")
        return cls(
            groups=list(params.get("groups") or []),
            users=list(params.get("users") or []),
            directories=directories,
            files=files,
            links=links,
            absent=absent,
            restore=restore,
            sysctls={str(k): str(v) for k, v in (params.get("sysctls") or {}).items()},
            units=units,
        )


def has_marker(content: bytes) -> bool:
    """Ours or foreign: the marker stands in the first lines (a script's first line is its interpreter)."""
    return MARKER.encode() in b"\n".join(content.split(b"\n", 5)[:5])


def meaning(content: bytes) -> list[bytes]:
    """What is left of a configuration file without comment lines, blank lines and trailing white space."""
    lines = (line.rstrip() for line in content.splitlines())
    return [line for line in lines if line and not line.lstrip().startswith((b"#", b";"))]


# ---------------------------------------------------------------------------------------------------------------
# The host
# ---------------------------------------------------------------------------------------------------------------


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


class HostState:
    """Compares and applies; `run` is the one entry."""

    def __init__(self, wanted: Wanted, host: Host, check: bool) -> None:
        self.wanted = wanted
        self.host = host
        self.check = check
        self.result = Result()
        self.steps: list[Callable[[], None]] = []
        # what is only true once the units are as wanted
        self.last_steps: list[Callable[[], None]] = []
        self._ledger: dict[str, dict[str, Any]] | None = None
        self._made_dirs: set[str] = set()

    def run(self) -> Result:
        self._plan_accounts()
        for directory in self.wanted.directories:
            self._plan_directory(directory)
        for spec in self.wanted.files:
            self._plan_file(spec)
        for path, target in self.wanted.links:
            self._plan_link(path, target)
        for path in self.wanted.absent:
            self._plan_absent(path)
        for name in self.wanted.restore:
            self._plan_restore(name)
        for key, value in self.wanted.sysctls.items():
            self._plan_sysctl(key, value)
        before = self._show() if self.wanted.units else {}
        manager = UnitManager(self, before)
        if self.check:
            manager.predict()
            return self.result
        manager.remember_pending()
        manager.leave()
        for step in self.steps:
            step()
        manager.arrive()
        for step in self.last_steps:
            step()
        return self.result

    # -- accounts -------------------------------------------------------------------------------------------------

    def _account(self, name: str, argv: list[str], before: str, after: str) -> None:
        self._note(name, before, after)
        self.result.changed_accounts.append(name)
        self.steps.append(lambda: self._must(argv, f"{name} cannot be set up"))

    def _plan_accounts(self) -> None:
        accounts = self.host.accounts
        declared = {g["name"] for g in self.wanted.groups} | {u["name"] for u in self.wanted.users}
        for group in self.wanted.groups:
            name = group["name"]
            if accounts.gid(name) is None:
                argv = ["groupadd"] + (["--system"] if group.get("system", True) else []) + [name]
                self._account(f"group {name}", argv, "", f"group {name}\n")
        group_names = {g["name"] for g in self.wanted.groups}
        for user in self.wanted.users:
            name = user["name"]
            extra = []
            for group_name in user.get("groups") or []:
                if group_name in declared or accounts.gid(group_name) is not None:
                    extra.append(group_name)
                elif group_name not in self.result.skipped_groups:
                    self.result.skipped_groups.append(group_name)
            home = user.get("home")
            shell = user.get("shell")
            present = accounts.user(name)
            if present is None:
                argv = ["useradd", "--no-create-home", "--home-dir", home or "/nonexistent"]
                argv += ["--shell", shell or "/usr/sbin/nologin"]
                argv += ["--system"] if user.get("system", True) else []
                has_own = name in group_names or accounts.gid(name) is not None
                argv += ["--gid", name] if has_own else ["--user-group"]
                argv += ["--groups", ",".join(extra)] if extra else []
                text = self._user_text(name, home or "/nonexistent", shell or "/usr/sbin/nologin", extra)
                self._account(f"user {name}", [*argv, name], "", text)
                continue
            argv = ["usermod"]
            if home and present["home"] != home:
                argv += ["--home", home]
            if shell and present["shell"] != shell:
                argv += ["--shell", shell]
            lacking = [g for g in extra if g not in present["groups"]]
            if lacking:
                argv += ["--append", "--groups", ",".join(lacking)]
            if len(argv) > 1:
                before = self._user_text(name, present["home"], present["shell"], present["groups"])
                after = self._user_text(
                    name, home or present["home"], shell or present["shell"], [*present["groups"], *lacking]
                )
                self._account(f"user {name}", [*argv, name], before, after)

    @staticmethod
    def _user_text(name: str, home: str, shell: str, groups: list[str]) -> str:
        return f"user {name}\nhome {home}\nshell {shell}\ngroups {' '.join(sorted(set(groups)))}\n"

    # -- owner, group, mode ---------------------------------------------------------------------------------------

    def _ids(self, spec: Owned) -> tuple[int, int]:
        uid = self.host.accounts.uid(spec.owner)
        gid = self.host.accounts.gid(spec.group)
        if uid is None:
            raise HostStateError(f"{spec.path}: user {spec.owner} does not exist on this host")
        if gid is None:
            raise HostStateError(f"{spec.path}: group {spec.group} does not exist on this host")
        return uid, gid

    def _attributes_differ(self, spec: Owned, info: os.stat_result) -> bool:
        """A user this run is still to create owns nothing yet, so that is a difference, not an error."""
        declared = {u["name"] for u in self.wanted.users}
        groups = {g["name"] for g in self.wanted.groups} | declared
        uid, gid = self.host.accounts.uid(spec.owner), self.host.accounts.gid(spec.group)
        if not self.check:
            if uid is None and spec.owner not in declared:
                raise HostStateError(f"{spec.path}: user {spec.owner} does not exist on this host")
            if gid is None and spec.group not in groups:
                raise HostStateError(f"{spec.path}: group {spec.group} does not exist on this host")
        return info.st_uid != uid or info.st_gid != gid or stat.S_IMODE(info.st_mode) != spec.mode

    def _attributes_text(self, info: os.stat_result) -> str:
        owner = self.host.accounts.user_name(info.st_uid)
        group = self.host.accounts.group_name(info.st_gid)
        return f"owner {owner}\ngroup {group}\nmode {stat.S_IMODE(info.st_mode):04o}\n"

    @staticmethod
    def _wanted_text(spec: Owned) -> str:
        return f"owner {spec.owner}\ngroup {spec.group}\nmode {spec.mode:04o}\n"

    # -- directories ----------------------------------------------------------------------------------------------

    def _plan_directory(self, spec: Owned) -> None:
        real = self.host.at(spec.path)
        try:
            info = os.stat(real)
        except FileNotFoundError:
            if os.path.islink(real):
                raise HostStateError(f"{spec.path} is a link that leads nowhere; a directory is wanted") from None
            self._plan_parents(spec.path)
            self._made_dirs.add(spec.path)
            self._change_path(spec.path, "", "directory\n" + self._wanted_text(spec))
            self.steps.append(lambda: self._make_directory(spec))
            return
        except NotADirectoryError:
            raise HostStateError(f"{spec.path}: a part of the path is a file") from None
        if not stat.S_ISDIR(info.st_mode):
            raise HostStateError(f"{spec.path} is not a directory; move it out of the way")
        if self._attributes_differ(spec, info):
            self._change_path(spec.path, self._attributes_text(info), self._wanted_text(spec), " (attributes)")
            self.steps.append(lambda: self._set_attributes(spec))

    def _plan_parents(self, path: str) -> None:
        parent = os.path.dirname(path)
        if parent in self._made_dirs or os.path.isdir(self.host.at(parent)):
            return
        if os.path.lexists(self.host.at(parent)):
            raise HostStateError(f"{path}: {parent} is not a directory")
        self._plan_parents(parent)
        spec = Owned(parent, "root", "root", 0o755)
        self._made_dirs.add(parent)
        self._change_path(parent, "", "directory\n" + self._wanted_text(spec))
        self.steps.append(lambda: self._make_directory(spec))

    def _make_directory(self, spec: Owned) -> None:
        uid, gid = self._ids(spec)
        real = self.host.at(spec.path)
        try:
            # Narrow until it has its owner; the parent may be open to others
            os.mkdir(real, 0o700)
            os.chown(real, uid, gid)
            os.chmod(real, spec.mode)
        except OSError as error:
            raise HostStateError(f"{spec.path} cannot be made: {error.strerror}") from error

    def _set_attributes(self, spec: Owned) -> None:
        uid, gid = self._ids(spec)
        real = self.host.at(spec.path)
        try:
            os.chown(real, uid, gid)
            os.chmod(real, spec.mode)
        except OSError as error:
            raise HostStateError(f"{spec.path}: owner or mode cannot be set: {error.strerror}") from error

    # -- files ----------------------------------------------------------------------------------------------------

    def _plan_file(self, spec: FileSpec) -> None:
        real = self.host.at(spec.path)
        try:
            info: os.stat_result | None = os.lstat(real)
        except FileNotFoundError:
            info = None
        except NotADirectoryError:
            raise HostStateError(f"{spec.path}: a part of the path is a file") from None
        if info is None:
            self._plan_parents(spec.path)
            self._change_path(spec.path, "", self._shown(spec, spec.content))
            self.steps.append(lambda: self._write(spec))
            return
        if stat.S_ISLNK(info.st_mode):
            before, same, ours = f"link to {os.readlink(real)}\n".encode(), False, False
        elif stat.S_ISREG(info.st_mode):
            with open(real, "rb") as stream:
                before = stream.read()
            same = before == spec.content
            # Content that can carry no marker (a key, a program) is judged by its path alone
            ours = has_marker(before) or not has_marker(spec.content)
        else:
            raise HostStateError(f"{spec.path} is not a regular file; move it out of the way")
        if not same and not ours:
            alike = stat.S_ISREG(info.st_mode) and meaning(before) == meaning(spec.content)
            if spec.foreign == "adopt" and alike:
                return
            if spec.foreign in ("refuse", "adopt"):
                raise HostStateError(
                    f"{spec.path} was not written by this collection and differs from what is wanted; nothing was "
                    "changed. Remove it, or allow its replacement (a copy is kept beside it)"
                )
        if not same:
            self._change_path(spec.path, self._shown(spec, before), self._shown(spec, spec.content))
            self.steps.append(lambda: self._write(spec, keep=not ours and spec.backup))
            if stat.S_ISLNK(info.st_mode):
                return
        if self._attributes_differ(spec, info):
            text = self._attributes_text(info)
            if same:
                self._change_path(spec.path, text, self._wanted_text(spec), " (attributes)")
                self.steps.append(lambda: self._set_attributes(spec))
            else:
                self._note(spec.path, text, self._wanted_text(spec), " (attributes)")

    @staticmethod
    def _shown(spec: FileSpec, content: bytes) -> str:
        if not content:
            return ""
        if spec.secret:
            # The two sides of a diff must differ to be shown at all, yet tell nothing about the content
            wanted = "new" if content is spec.content else "present"
            return f"({wanted} secret content is not shown)\n"
        try:
            return content.decode()
        except UnicodeDecodeError:
            return f"({len(content)} bytes that are not text)\n"

    def _write(self, spec: FileSpec, keep: bool = False) -> None:
        uid, gid = self._ids(spec)
        try:
            if keep:
                keep_original(self.host.at(spec.path))
            write_atomic(self.host.at(spec.path), spec.content, uid, gid, spec.mode)
        except OSError as error:
            raise HostStateError(f"{spec.path} cannot be written: {error.strerror}") from error

    # -- links ----------------------------------------------------------------------------------------------------

    def _plan_link(self, path: str, target: str) -> None:
        real = self.host.at(path)
        if os.path.islink(real):
            present = os.readlink(real)
            if present == target or self._same_place(path, present, target):
                return
            before = f"link to {present}\n"
            original: str | None = present
        elif os.path.lexists(real):
            raise HostStateError(f"{path} is not a link; move it out of the way (a link to {target} is wanted)")
        else:
            self._plan_parents(path)
            before, original = "", None
        self._change_path(path, before, f"link to {target}\n")

        def apply() -> None:
            self._remember("links", path, original)
            self._link(path, target)

        self.steps.append(apply)

    def _link(self, path: str, target: str) -> None:
        real = self.host.at(path)
        temporary = f"{real}.sparkthor-new"
        try:
            if os.path.lexists(temporary):
                os.unlink(temporary)
            os.symlink(target, temporary)
            os.replace(temporary, real)
        except OSError as error:
            raise HostStateError(f"link {path} cannot be made: {error.strerror}") from error

    def _same_place(self, path: str, one: str, other: str) -> bool:
        """/lib/systemd/... and /usr/lib/systemd/... are one place; a link that already leads there is right."""
        places = []
        for target in (one, other):
            absolute = target if target.startswith("/") else os.path.join(os.path.dirname(path), target)
            real = self.host.at(os.path.normpath(absolute))
            if not os.path.exists(real):
                return False
            places.append(os.path.realpath(real))
        return places[0] == places[1]

    # -- absent, restore ------------------------------------------------------------------------------------------

    def _plan_absent(self, path: str) -> None:
        real = self.host.at(path)
        if not os.path.lexists(real):
            return
        is_tree = os.path.isdir(real) and not os.path.islink(real)
        # of directories only: on an overlay every file has another device number than the directory it is in
        if is_tree and os.path.ismount(real):
            raise HostStateError(f"absent: {path} is a mount point; unmount it first")
        self._change_path(path, "directory\n" if is_tree else "present\n", "")

        def apply() -> None:
            try:
                if is_tree:
                    shutil.rmtree(real)
                else:
                    os.unlink(real)
            except OSError as error:
                raise HostStateError(f"{path} cannot be removed: {error.strerror}") from error

        self.steps.append(apply)

    def _plan_restore(self, name: str) -> None:
        """Undo: put back what stood there before us; take away what is ours; leave what is foreign."""
        if name.endswith(UNIT_SUFFIXES) and not name.startswith("/"):
            original = self._recorded("masked", name)
            if original is not None:
                state = "started" if original in RUNNING else None
                self.wanted.units.append(UnitSpec(name=name, masked=False, state=state))
                # a run that dies before it has unmasked must leave the next one the knowledge to do it
                self.last_steps.append(lambda: self._forget("masked", name))
            return
        if not name.startswith("/"):
            original = self._recorded("sysctls", name)
            if original is not None:
                self._plan_sysctl(name, str(original), forget=True)
            return
        real = self.host.at(name)
        kept = real + BACKUP_SUFFIX
        if os.path.lexists(kept):
            self._change_path(name, "ours\n", "as it was before\n")
            self.steps.append(lambda: os.replace(kept, real))
            return
        links = self._load_ledger().get("links", {})
        if name in links:
            original = links[name]
            if os.path.islink(real) and os.readlink(real) != original:
                self._change_path(name, f"link to {os.readlink(real)}\n", f"link to {original}\n" if original else "")

                def back() -> None:
                    if original:
                        self._link(name, original)
                    else:
                        os.unlink(real)
                    self._forget("links", name)

                self.steps.append(back)
            else:
                # somebody was faster; what is put there from now on is not ours to take back
                self.steps.append(lambda: self._forget("links", name))
            return
        if os.path.isfile(real) and not os.path.islink(real):
            with open(real, "rb") as stream:
                ours = has_marker(stream.read())
            if ours:
                self._plan_absent(name)

    # -- sysctls --------------------------------------------------------------------------------------------------

    def _plan_sysctl(self, key: str, value: str, forget: bool = False) -> None:
        path = "/proc/sys/" + sysctl_path(key)
        real = self.host.at(path)
        try:
            with open(real, encoding="ascii", errors="replace") as stream:
                present = stream.read()
        except OSError as error:
            message = f"sysctls: {key} cannot be read on this host: {error.strerror}"
            if not self.check:
                raise HostStateError(message) from error
            self.result.warnings.append(message)
            present = ""
        if present.split() == value.split():
            if forget:
                self.steps.append(lambda: self._forget("sysctls", key))
            return
        self._note(f"sysctl {key}", f"{key} = {' '.join(present.split())}\n", f"{key} = {' '.join(value.split())}\n")
        self.result.changed_sysctls.append(key)

        def apply() -> None:
            if not forget:
                self._remember("sysctls", key, " ".join(present.split()))
            try:
                with open(real, "w", encoding="ascii") as stream:
                    stream.write(value + "\n")
            except OSError as error:
                raise HostStateError(f"sysctls: {key}={value} was not taken: {error.strerror}") from error
            if forget:
                self._forget("sysctls", key)

        self.steps.append(apply)

    # -- the ledger: what was there before us, where no file beside it can say -----------------------------------------

    def _load_ledger(self) -> dict[str, dict[str, Any]]:
        if self._ledger is None:
            self._ledger = read_json(self.host.at(LEDGER))
        return self._ledger

    def _recorded(self, kind: str, name: str) -> Any:
        return self._load_ledger().get(kind, {}).get(name)

    def _remember(self, kind: str, name: str, original: Any) -> None:
        entries = self._load_ledger().setdefault(kind, {})
        if name not in entries:
            entries[name] = original
            self._save_ledger()

    def _forget(self, kind: str, name: str) -> None:
        entries = self._load_ledger().get(kind, {})
        # None is an entry as well: of a place where nothing was
        if name in entries:
            del entries[name]
            self._save_ledger()

    def _save_ledger(self) -> None:
        real = self.host.at(LEDGER)
        os.makedirs(os.path.dirname(real), mode=0o755, exist_ok=True)
        write_atomic(real, json.dumps(self._load_ledger(), indent=1, sort_keys=True))

    # -- shared ---------------------------------------------------------------------------------------------------

    def _note(self, name: str, before: str, after: str, suffix: str = "") -> None:
        header = name + suffix
        self.result.diff.append({"before_header": header, "after_header": header, "before": before, "after": after})

    def _change_path(self, path: str, before: str, after: str, suffix: str = "") -> None:
        self._note(path, before, after, suffix)
        self.result.changed_paths.append(path)

    def _must(self, argv: list[str], what: str, timeout: float | None = None) -> str:
        code, out, err = self.host.run(argv, timeout or self.host.timeout)
        if code != 0:
            raise HostStateError(f"{what}: {' '.join(argv)} ended with {code}: {(err or out).strip()}")
        return out

    def _show(self) -> dict[str, dict[str, str]]:
        names = [unit.name for unit in self.wanted.units]
        out = self._must(["systemctl", "show", f"--property={SHOW_PROPERTIES}", "--", *names], "units", 60)
        return parse_show(out, names)


def keep_original(path: str) -> None:
    """Keep what stood there before us, once: a second foreign edit must not replace the true original."""
    kept = path + BACKUP_SUFFIX
    if os.path.lexists(kept):
        return
    if os.path.islink(path):
        os.symlink(os.readlink(path), kept)
        return
    info = os.stat(path)
    with open(path, "rb") as stream:
        write_atomic(kept, stream.read(), info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode))


def sysctl_path(key: str) -> str:
    """The kernel's rule: the first separator decides, the other one is a literal part of a name."""
    first = re.search(r"[./]", key)
    if not re.fullmatch(r"[A-Za-z0-9_./*@:-]+", key) or ".." in key or key.startswith(("/", ".")) or first is None:
        raise HostStateError(f"sysctls: {key!r} is not a sysctl key")
    return key if first.group() == "/" else key.translate(str.maketrans("./", "/."))


def parse_show(text: str, names: list[str]) -> dict[str, dict[str, str]]:
    """One block of KEY=VALUE lines per unit, in the order asked for."""
    blocks = [block for block in re.split(r"\n\s*\n", text.strip()) if block.strip()]
    if len(blocks) != len(names):
        raise HostStateError(f"systemctl show answered {len(blocks)} blocks for {len(names)} units")
    shown = {}
    for number, name in enumerate(names):
        values = {}
        for line in blocks[number].splitlines():
            key, sign, value = line.partition("=")
            if sign:
                values[key] = value
        shown[name] = values
    return shown


# ---------------------------------------------------------------------------------------------------------------
# Units
# ---------------------------------------------------------------------------------------------------------------


class UnitManager:
    """What happens to the units.

    The decisions are taken once, from the state before anything is changed plus the planned files, so that check
    mode and the real run cannot come to different answers.
    """

    def __init__(self, state: HostState, before: dict[str, dict[str, str]]) -> None:
        self.state = state
        self.units = state.wanted.units
        self.before = before
        self.changed_paths = set(state.result.changed_paths)
        self.need_reload = any(_is_systemd_path(path) for path in self.changed_paths) or any(
            values.get("NeedDaemonReload") == "yes" for values in before.values()
        )
        self.to_enable: list[str] = []
        self.to_disable: list[str] = []
        self.to_mask: list[str] = []
        self.to_unmask: list[str] = []
        self.to_stop: list[UnitSpec] = []
        self.verbs: list[tuple[UnitSpec, str]] = []
        self.restarts: list[UnitSpec] = []
        self.deferred_restarts: list[UnitSpec] = []
        for unit in self.units:
            if unit.defer:
                self._defer(unit)
            else:
                self._decide(unit)

    # -- decisions ----------------------------------------------------------------------------------------------------

    def _arriving_content(self, name: str) -> bytes | None:
        """The content of a unit file which this very call writes (a template's file serves its instances)."""
        names = {name}
        if "@" in name:
            names.add(name[: name.index("@") + 1] + name[name.rindex(".") :])
        for spec in self.state.wanted.files:
            folder, base = os.path.split(spec.path)
            if base in names and folder + "/" in SYSTEMD_PATHS:
                return spec.content
        return None

    def _defer(self, unit: UnitSpec) -> None:
        """Decide, say so, and leave the unit as it is: a later call acts, once all hosts have come that far."""
        lists: tuple[list[Any], ...] = (
            self.to_enable,
            self.to_disable,
            self.to_mask,
            self.to_unmask,
            self.to_stop,
            self.verbs,
            self.restarts,
        )
        before = [len(found) for found in lists]
        self._decide(unit)
        if before != [len(found) for found in lists]:
            verb = next((verb for one, verb in self.verbs if one is unit), "")
            self.state.result.deferred_units[unit.name] = verb or ("stop" if unit in self.to_stop else "enable")
            if verb == "restart":
                self.deferred_restarts.append(unit)
        for found, length in zip(lists, before, strict=True):
            del found[length:]

    def _decide(self, unit: UnitSpec) -> None:
        shown = self.before[unit.name]
        load, file_state = shown.get("LoadState", ""), shown.get("UnitFileState", "")
        active = shown.get("ActiveState", "")
        masked = load == "masked" or file_state in ("masked", "masked-runtime")
        arriving = self._arriving_content(unit.name)
        exists = load not in ("not-found", "") or arriving is not None
        running = active in RUNNING
        needs = unit.enabled is True or unit.state in ("started", "restarted", "reloaded")
        if not exists:
            if unit.optional:
                return
            if needs:
                message = f"unit {unit.name} does not exist on this host"
                if not self.state.check:
                    raise HostStateError(f"{message}; install the package that brings it, or mark it optional")
                # An earlier task of the same play may install the package that brings it
                self.state.result.warnings.append(f"{message} yet; it is taken as new")
                if unit.enabled:
                    self.to_enable.append(unit.name)
                if unit.state:
                    self._verb(unit, "start")
                return
        if unit.masked is True and not masked:
            self.to_mask.append(unit.name)
            if unit.state is None and running and exists and not unit.name.endswith(".target"):
                # A masked unit that goes on running is not what anybody means
                self.to_stop.append(unit)
        if unit.masked is False and masked:
            self.to_unmask.append(unit.name)
            masked = False
            if file_state.startswith("masked"):
                file_state = "disabled"
        if masked and needs and unit.optional:
            return
        if masked and needs:
            raise HostStateError(f"unit {unit.name} is masked on this host; set masked: false to unmask it")
        if unit.enabled is not None and exists and not masked:
            self._decide_enabled(unit, file_state, arriving)
        self._decide_state(unit, running, active)

    def _decide_enabled(self, unit: UnitSpec, file_state: str, arriving: bytes | None) -> None:
        if unit.enabled and file_state in ("", "disabled", "static", "bad") and arriving is not None:
            if not re.search(rb"^\[Install\]\s*$", arriving, re.MULTILINE):
                raise HostStateError(f"unit {unit.name} has no [Install] section and cannot be enabled")
            self.to_enable.append(unit.name)
        elif unit.enabled and file_state == "static":
            raise HostStateError(f"unit {unit.name} has no [Install] section and cannot be enabled")
        elif unit.enabled and file_state not in ENABLED:
            self.to_enable.append(unit.name)
        elif unit.enabled is False and file_state in ("enabled", "enabled-runtime", "linked", "linked-runtime"):
            self.to_disable.append(unit.name)

    def _decide_state(self, unit: UnitSpec, running: bool, active: str) -> None:
        if unit.state == "stopped":
            if running or active in ("deactivating", "failed"):
                self.to_stop.append(unit)
            return
        stale = running and (self._touched(unit.restart_on, unit.name) or self._runs_with_other_environment(unit))
        if unit.state == "restarted" or stale:
            self._verb(unit, "restart")
        elif unit.state == "started" and not running:
            if not self._unmet(unit):
                self._verb(unit, "start")
        elif unit.state == "reloaded":
            self._verb(unit, "reload" if running else "start")
        elif running and self._touched(unit.reload_on):
            self._verb(unit, "reload")

    def _runs_with_other_environment(self, unit: UnitSpec) -> bool:
        """What the main process was given. A file that is right again says nothing about who was started meanwhile."""
        pid = self.before[unit.name].get("MainPID") or "0"
        if not unit.environment or pid == "0":
            return False
        try:
            with open(self.state.host.at(f"/proc/{pid}/environ"), "rb") as stream:
                given = set(stream.read().split(b"\0"))
        except OSError:  # it has just ended: whoever starts it next reads the files anew
            return False
        return any(f"{name}={value}".encode() not in given for name, value in unit.environment.items())

    def _failed(self, unit: UnitSpec) -> bool:
        return self.before[unit.name].get("ActiveState") == "failed"

    def _unmet(self, unit: UnitSpec) -> bool:
        """An optional unit that systemd already declined to start here (in a container, say) is not asked again."""
        shown = self.before[unit.name]
        declined = shown.get("ConditionResult") == "no" and shown.get("ConditionTimestampMonotonic", "0") != "0"
        return unit.optional and declined and not self.changed_paths

    def _verb(self, unit: UnitSpec, verb: str) -> None:
        self.verbs.append((unit, verb))
        if verb == "restart":
            self.restarts.append(unit)

    def _touched(self, watched: list[str], pending_for: str = "") -> bool:
        """A restart that an interrupted run still owes counts as well."""
        if watched and pending_for and os.path.exists(self.state.host.at(f"{PENDING}/{pending_for}")):
            return True
        return any(
            path == watch or path.startswith(watch.rstrip("/") + "/")
            for watch in watched
            for path in self.changed_paths
        )

    # -- check mode ---------------------------------------------------------------------------------------------------

    def predict(self) -> None:
        self._report()
        for unit in self.units:
            self.state.result.units[unit.name] = _summary(self.before[unit.name])

    def _report(self) -> None:
        result = self.state.result
        lines: dict[str, list[tuple[str, str]]] = {}
        for names, before, after in (
            (self.to_unmask, "masked", "not masked"),
            (self.to_mask, "not masked", "masked"),
            (self.to_enable, "not enabled", "enabled"),
            (self.to_disable, "enabled", "disabled"),
            ([u.name for u in self.to_stop if not self._failed(u)], "running", "stopped"),
            ([u.name for u in self.to_stop if self._failed(u)], "failed", "stopped"),
        ):
            for name in names:
                lines.setdefault(name, []).append((before, after))
        for unit, verb in self.verbs:
            before = "running" if verb in ("restart", "reload") else "not running"
            lines.setdefault(unit.name, []).append((before, {"start": "running"}.get(verb, f"running ({verb}ed)")))
        for name, pairs in lines.items():
            text = ["".join(f"{pair[side]}\n" for pair in pairs) for side in (0, 1)]
            self.state._note(f"unit {name}", text[0], text[1])
            result.changed_units.append(name)
        result.restarted_units = [unit.name for unit in self.restarts]
        result.daemon_reloaded = self.need_reload

    # -- apply --------------------------------------------------------------------------------------------------------

    def remember_pending(self) -> None:
        """Should this run die between a file and the restart it asks for, the next one must still restart."""
        owed = [*self.restarts, *self.deferred_restarts]
        if not owed:
            return
        folder = self.state.host.at(PENDING)
        os.makedirs(folder, mode=0o755, exist_ok=True)
        for unit in owed:
            with open(os.path.join(folder, unit.name), "w", encoding="ascii"):
                pass

    def leave(self) -> None:
        """Stop and disable with the files as they were."""
        self._report()
        for name in self.to_mask:
            self.state._remember("masked", name, self.before[name].get("ActiveState", ""))
        for unit in self.to_stop:
            self._systemctl("stop", unit)
        if self.to_stop:
            # what ended with an error while it was being stopped is no failure that anybody should look into
            shown = self.state._show()
            failed = [unit.name for unit in self.to_stop if shown[unit.name].get("ActiveState") == "failed"]
            if failed:
                self.state._must(["systemctl", "reset-failed", "--", *failed], "units")
        if self.to_disable:
            self.state._must(["systemctl", "disable", "--", *self.to_disable], "units cannot be disabled")

    def arrive(self) -> None:
        acted = bool(self.state.result.changed_units)
        if self.need_reload:
            self.state._must(["systemctl", "daemon-reload"], "systemd cannot read its units again")
        for verb, names in (("unmask", self.to_unmask), ("mask", self.to_mask), ("enable", self.to_enable)):
            if names:
                self.state._must(["systemctl", verb, "--", *names], f"units: {verb} failed")
        for unit, verb in self.verbs:
            if self._failed(unit):
                # A unit that hit its start limit would refuse to start
                self.state._must(["systemctl", "reset-failed", "--", unit.name], unit.name)
            self._systemctl(verb, unit)
        # a start has read the files as well as a restart has, and what stands still owes nothing
        for unit in [*(unit for unit, verb in self.verbs if verb in ("start", "restart")), *self.to_stop]:
            pending = self.state.host.at(f"{PENDING}/{unit.name}")
            if os.path.exists(pending):
                os.unlink(pending)
        if not self.units:
            return
        shown = self.state._show() if acted or self.need_reload else self.before
        for unit in self.units:
            self.state.result.units[unit.name] = _summary(shown[unit.name])

    def _systemctl(self, verb: str, unit: UnitSpec) -> None:
        argv = ["systemctl", verb, *(["--no-block"] if unit.no_block else []), "--", unit.name]
        code, out, err = self.state.host.run(argv, self.state.host.timeout)
        if code == 0:
            return
        journal = self.state.host.run(
            ["journalctl", "--no-pager", "--quiet", "--output=cat", "--lines=15", f"--unit={unit.name}"], 20
        )[1]
        raise HostStateError(
            f"unit {unit.name}: {verb} failed ({code}): {(err or out).strip()}\n"
            f"last lines of its journal:\n{journal.strip() or '(none)'}"
        )


def _is_systemd_path(path: str) -> bool:
    return path.startswith(SYSTEMD_PATHS) or path.startswith(SYSTEMD_MANAGER_PATHS)


def _summary(shown: dict[str, str]) -> dict[str, Any]:
    return {
        "active": shown.get("ActiveState", ""),
        "sub": shown.get("SubState", ""),
        "enabled": shown.get("UnitFileState", ""),
        "load": shown.get("LoadState", ""),
        "main_pid": int(shown.get("MainPID") or 0),
        "need_daemon_reload": shown.get("NeedDaemonReload") == "yes",
    }
