# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd units: what happens to them, decided before anything is changed."""

from __future__ import annotations

import os
import re
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Changes
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.originals import Originals
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.sessions import desktop_users
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import (
    HostStateError,
    UnitSpec,
    Wanted,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import systemd

PENDING = "/run/sparkthor-pending"
SYSTEMD_PATHS = (
    "/etc/systemd/system/",
    "/run/systemd/system/",
    "/usr/local/lib/systemd/system/",
    "/usr/lib/systemd/system/",
    "/lib/systemd/system/",
)
SYSTEMD_MANAGER_PATHS = ("/etc/systemd/system.conf",)
SHOW_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,MainPID,NeedDaemonReload,"
    "ConditionResult,ConditionTimestampMonotonic"
)
RUNNING = ("active", "activating", "reloading", "refreshing")
ENABLED = ("enabled", "enabled-runtime", "alias", "indirect", "static", "generated", "linked", "linked-runtime")


class UnitManager:
    """What happens to the units.

    The decisions are taken once, from the state before anything is changed plus the planned files, so that check
    mode and the real run cannot come to different answers.
    """

    def __init__(self, changes: Changes, wanted: Wanted, originals: Originals) -> None:
        self.changes = changes
        self.originals = originals
        self.units = wanted.units
        self.files = wanted.files
        self.before = self._show() if self.units else {}
        self.changed_paths = set(changes.result.changed_paths)
        self.need_reload = any(_is_systemd_path(path) for path in self.changed_paths) or any(
            values.get("NeedDaemonReload") == "yes" for values in self.before.values()
        )
        self.to_enable: list[str] = []
        self.to_disable: list[str] = []
        self.to_mask: list[str] = []
        self.to_unmask: list[str] = []
        self.to_stop: list[UnitSpec] = []
        self.verbs: list[tuple[UnitSpec, str]] = []
        self.restarts: list[UnitSpec] = []
        #: restarts and reloads that a later call has to do
        self.deferred: list[tuple[UnitSpec, str]] = []
        for unit in self.units:
            if unit.defer:
                self._defer(unit)
            else:
                self._decide(unit)

    def _show(self) -> dict[str, dict[str, str]]:
        names = [unit.name for unit in self.units]
        out = self.changes.must(["systemctl", "show", f"--property={SHOW_PROPERTIES}", "--", *names], "units", 60)
        return parse_unit_show(out, names)

    def _arriving_content(self, name: str) -> bytes | None:
        """The content of a unit file which this very call writes (a template's file serves its instances)."""
        names = {name}
        if "@" in name:
            names.add(name[: name.index("@") + 1] + name[name.rindex(".") :])
        for spec in self.files:
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
            self.changes.result.deferred_units[unit.name] = verb or ("stop" if unit in self.to_stop else "enable")
            if verb:
                self.deferred.append((unit, verb))
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
                if not self.changes.check:
                    raise HostStateError(f"{message}; install the package that brings it, or mark it optional")
                # An earlier task of the same play may install the package that brings it
                self.changes.result.warnings.append(f"{message} yet; it is taken as new")
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
            if running and unit.spare_desktop and (users := desktop_users(self.changes.host.run)):
                shown = self.before[unit.name].get("Id") or unit.name
                self.changes.result.warnings.append(
                    f"{shown} goes on, because {', '.join(users)} is logged in on the desktop: reboot this host, which"
                    " then starts without it, or end that session at once (-e os_hardening_headless_isolate=true)"
                )
            elif running or active in ("deactivating", "failed"):
                self.to_stop.append(unit)
            return
        stale = running and (
            self._touched(unit.restart_on, _owed(unit, "restart"))
            or self._runs_with_other_environment(unit)
            or (active == "active" and self._runs_from_elsewhere(unit))
        )
        if unit.state == "restarted" or stale:
            self._verb(unit, "restart")
        elif unit.state == "started" and not running:
            if not self._unmet(unit):
                self._verb(unit, "start")
        elif unit.state == "reloaded":
            self._verb(unit, "reload" if running else "start")
        elif running and self._touched(unit.reload_on, _owed(unit, "reload")):
            self._verb(unit, "reload")

    def _runs_with_other_environment(self, unit: UnitSpec) -> bool:
        """What the main process was given. A file that is right again says nothing about who was started meanwhile."""
        if not unit.environment:
            return False
        given = self._read_main_process(unit, "environ")
        return given != [] and any(f"{name}={value}".encode() not in given for name, value in unit.environment.items())

    def _runs_from_elsewhere(self, unit: UnitSpec) -> bool:
        """A process goes on loading from the folder that a link led to at its start, damaged or not."""
        if not unit.program_from:
            return False
        words = self._read_main_process(unit, "cmdline")
        if not words or not words[0].startswith(b"/"):
            return False
        # what lies in the folder may be a link itself, as an environment's Python is
        folder = os.path.realpath(self.changes.host.at(os.path.dirname(os.fsdecode(words[0]))))
        wanted = os.path.realpath(self.changes.host.at(unit.program_from))
        return os.path.commonpath([folder, wanted]) != wanted

    def _read_main_process(self, unit: UnitSpec, name: str) -> list[bytes]:
        pid = self.before[unit.name].get("MainPID") or "0"
        try:
            with open(self.changes.host.at(f"/proc/{pid}/{name}"), "rb") as stream:
                return stream.read().split(b"\0")
        except OSError:  # it has just ended: whoever starts it next reads the files anew
            return []

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

    def _touched(self, watched: list[str], owed: str) -> bool:
        """A restart or reload that an interrupted run still owes counts as well."""
        if watched and os.path.exists(self.changes.host.at(f"{PENDING}/{owed}")):
            return True
        return any(
            path == watch or path.startswith(watch.rstrip("/") + "/")
            for watch in watched
            for path in self.changed_paths
        )

    def predict(self) -> None:
        self._report()
        for unit in self.units:
            self.changes.result.units[unit.name] = _summary(self.before[unit.name])

    def _report(self) -> None:
        result = self.changes.result
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
            self.changes.note(f"unit {name}", text[0], text[1])
            result.changed_units.append(name)
        result.restarted_units = [unit.name for unit in self.restarts]
        result.daemon_reloaded = self.need_reload

    def remember_pending(self) -> None:
        """Should this run die between a file and the restart or reload it asks for, the next one must still do it."""
        owed = [_owed(unit, verb) for unit, verb in (*self.verbs, *self.deferred) if verb in ("restart", "reload")]
        if not owed:
            return
        folder = self.changes.host.at(PENDING)
        os.makedirs(folder, mode=0o755, exist_ok=True)
        for name in owed:
            with open(os.path.join(folder, name), "w", encoding="ascii"):
                pass

    def leave(self) -> None:
        """Stop and disable with the files as they were."""
        self._report()
        for name in self.to_mask:
            self.originals.remember("masked", name, self.before[name].get("ActiveState", ""))
        for unit in self.units:
            self._remember(unit)
        for unit in self.to_stop:
            self._systemctl("stop", unit)
        if self.to_stop:
            # an error while it was being stopped is no reason to show the unit as failed
            shown = self._show()
            failed = [unit.name for unit in self.to_stop if shown[unit.name].get("ActiveState") == "failed"]
            if failed:
                self.changes.must(["systemctl", "reset-failed", "--", *failed], "units")
        if self.to_disable:
            self.changes.must(["systemctl", "disable", "--", *self.to_disable], "units cannot be disabled")

    def _remember(self, unit: UnitSpec) -> None:
        """What a unit of others was before we enabled, disabled, started or stopped it; ours goes with its file."""
        shown = self.before[unit.name]
        if unit.restored or unit.name in self.to_mask or shown.get("LoadState") != "loaded" or _is_ours(unit.name):
            return
        before: dict[str, Any] = {}
        if unit.name in (*self.to_enable, *self.to_disable):
            before["enabled"] = unit.name in self.to_disable
        if unit in self.to_stop or any(one is unit and verb == "start" for one, verb in self.verbs):
            before["state"] = "started" if unit in self.to_stop else "stopped"
        if before:
            self.originals.remember("units", unit.name, before)

    def arrive(self) -> None:
        acted = bool(self.changes.result.changed_units)
        if self.need_reload:
            self.changes.must(["systemctl", "daemon-reload"], "systemd cannot read its units again")
        for verb, names in (("unmask", self.to_unmask), ("mask", self.to_mask), ("enable", self.to_enable)):
            if names:
                self.changes.must(["systemctl", verb, "--", *names], f"units: {verb} failed")
        for name in self.to_unmask:
            self.originals.forget("masked", name)
        for unit, verb in self.verbs:
            if self._failed(unit):
                # A unit that hit its start limit would refuse to start
                self.changes.must(["systemctl", "reset-failed", "--", unit.name], unit.name)
            self._systemctl(verb, unit)
            self._settle(unit, verb)
        for unit in self.to_stop:
            self._settle(unit, "stop")
        if not self.units:
            return
        shown = self._show() if acted or self.need_reload else self.before
        for unit in self.units:
            self.changes.result.units[unit.name] = _summary(shown[unit.name])

    def _settle(self, unit: UnitSpec, verb: str) -> None:
        """A start has read the files as well as a restart has, and what stands still owes nothing."""
        for owed in ("reload",) if verb == "reload" else ("restart", "reload"):
            pending = self.changes.host.at(f"{PENDING}/{_owed(unit, owed)}")
            if os.path.exists(pending):
                os.unlink(pending)

    def _systemctl(self, verb: str, unit: UnitSpec) -> None:
        argv = ["systemctl", verb, *(["--no-block"] if unit.no_block else []), "--", unit.name]
        code, out, err = self.changes.host.run(argv, self.changes.host.timeout)
        if code == 0:
            return
        journal = self.changes.host.run(
            ["journalctl", "--no-pager", "--quiet", "--output=cat", "--lines=15", f"--unit={unit.name}"], 20
        )[1]
        raise HostStateError(
            f"unit {unit.name}: {verb} failed ({code}): {(err or out).strip()}\n"
            f"last lines of its journal:\n{journal.strip() or '(none)'}"
        )


def _owed(unit: UnitSpec, verb: str) -> str:
    """The file that says what an interrupted run owes: of a restart it has the unit's own name."""
    return unit.name if verb == "restart" else f"{unit.name}.{verb}"


def parse_unit_show(text: str, names: list[str]) -> dict[str, dict[str, str]]:
    """The properties of each unit by its name; every one of them has to be answered for."""
    blocks = systemd.parse_show(text)
    if len(blocks) != len(names):
        raise HostStateError(f"systemctl show answered {len(blocks)} blocks for {len(names)} units")
    # zip has no "strict" in the oldest Python that sanity checks
    return dict(zip(names, blocks))  # noqa: B905


def _is_systemd_path(path: str) -> bool:
    return path.startswith(SYSTEMD_PATHS) or path.startswith(SYSTEMD_MANAGER_PATHS)


def _is_ours(name: str) -> bool:
    return name.startswith("sparkthor")


def _summary(shown: dict[str, str]) -> dict[str, Any]:
    return {
        "active": shown.get("ActiveState", ""),
        "sub": shown.get("SubState", ""),
        "enabled": shown.get("UnitFileState", ""),
        "load": shown.get("LoadState", ""),
        "main_pid": int(shown.get("MainPID") or 0),
        "need_daemon_reload": shown.get("NeedDaemonReload") == "yes",
    }
