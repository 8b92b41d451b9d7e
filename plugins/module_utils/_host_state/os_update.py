# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Updates of a host's packages with a way back: what would change, the former packages put aside, the change itself.

Debian's packages alone.  Firmware is read and never written.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Command
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files

FOLDER = "/var/lib/sparkthor-update"
ARCHIVES = "/var/cache/apt/archives"
_APT = ("apt-get", "--quiet", "--assume-yes", "--option", "DPkg::Lock::Timeout=300")
#: an administrator's file stays as it is
_KEEP = ("--option", "Dpkg::Options::=--force-confdef", "--option", "Dpkg::Options::=--force-confold")
_INST = re.compile(r"^Inst (\S+?)(?::(\w+))? (?:\[([^\]]+)\] )?\((\S+) ", re.MULTILINE)
_REMV = re.compile(r"^(?:Remv|Purg) (\S+) \[([^\]]+)\]", re.MULTILINE)
#: what stays although there is an update of it: held, or its update would break another one; the words of apt 2 and 3
_KEPT_BACK = re.compile(
    r"^(?:The following packages have been kept back|Not upgrading):\n((?: +\S.*\n?)+)", re.MULTILINE
)
#: packages after which the running kernel or driver is no longer the installed one
_NEEDS_REBOOT = re.compile(
    r"^(?:linux-(?:image|modules)|nvidia-(?:driver|dkms|kernel|l4t)|libnvidia|nvidia-spark-grub)"
)


class UpdateError(Exception):
    """Why packages were not changed, or could not be."""


@dataclass
class Plan:
    """What an update changes: ``{name, old, new}`` of each, names that come, ``{name, old}`` of those that go, and the
    names of those that stay although there is an update of them."""

    updates: list[dict[str, str]] = field(default_factory=list)
    new: list[dict[str, str]] = field(default_factory=list)
    removed: list[dict[str, str]] = field(default_factory=list)
    kept_back: list[str] = field(default_factory=list)

    @property
    def former(self) -> list[tuple[str, str]]:
        """Name and version of what the way back needs."""
        return [(one["name"], one["old"]) for one in (*self.updates, *self.removed)]

    @property
    def words(self) -> list[str]:
        """What apt-get install is told, so that every host gets what was planned and nothing else."""
        wanted = [f"{one['name']}={one['new']}" for one in (*self.updates, *self.new)]
        return [*wanted, *(f"{one['name']}-" for one in self.removed)]

    @property
    def reboots(self) -> bool:
        return any(_NEEDS_REBOOT.match(one["name"]) for one in (*self.updates, *self.new))


def parse(text: str) -> Plan:
    """What ``apt-get --simulate`` says it would do."""
    plan = Plan()
    for name, arch, old, new in _INST.findall(text):
        full = f"{name}:{arch}" if arch else name
        if old:
            plan.updates.append({"name": full, "old": old, "new": new})
        else:
            plan.new.append({"name": full, "new": new})
    plan.removed = [{"name": name, "old": old} for name, old in _REMV.findall(text)]
    plan.kept_back = [name for found in _KEPT_BACK.findall(text) for name in found.split()]
    return plan


def merged(earlier: Plan, plan: Plan, installed: dict[str, str]) -> Plan:
    """One plan whose way back is that of the earlier one, as far as it was carried out, and of this one.

    ``installed``: package -> version.
    """
    known = {**{name.partition(":")[0]: version for name, version in installed.items()}, **installed}

    def there(changes: list[dict[str, str]]) -> dict[str, dict[str, str]]:
        """Those that have happened, with the version that they came to."""
        return {
            one["name"]: {**one, "new": known[one["name"]]}
            for one in changes
            if known.get(one["name"], one.get("old")) != one.get("old")
        }

    done, came = there(earlier.updates), there(earlier.new)
    now = {one["name"]: {**one, "old": done.get(one["name"], one)["old"]} for one in (*plan.updates, *plan.removed)}
    gone = {one["name"] for one in plan.removed}
    updates = {**done, **now}
    # what came with the earlier one has nothing to go back to
    new = {**came, **{one["name"]: one for one in plan.new}}
    new |= {name: {"name": name, "new": updates[name]["new"]} for name in came if name in updates and name not in gone}
    removed = [one for one in earlier.removed if one["name"] not in known]
    removed += [now[name] for name in now if name in gone and name not in came]
    return Plan(
        [one for name, one in updates.items() if name not in (*gone, *came)],
        [one for name, one in new.items() if name not in gone],
        removed,
        plan.kept_back,
    )


class OsUpdate:
    """The packages of one host."""

    def __init__(self, run: Command, folder: str = FOLDER, archives: str = ARCHIVES, timeout: float = 1800.0) -> None:
        self._run = run
        self._folder = folder
        self._archives = archives
        self._timeout = timeout

    @property
    def _record(self) -> str:
        return os.path.join(self._folder, "record.json")

    @property
    def _back(self) -> str:
        return os.path.join(self._folder, "back")

    def _do(self, argv: Sequence[str], what: str, seconds: float = 0.0) -> str:
        code, out, err = self._run(list(argv), seconds or self._timeout)
        if code != 0:
            raise UpdateError(f"{what} ended with {code}: {(err or out).strip()[-600:]}")
        return out

    def plan(self, names: Sequence[str], refresh: bool = True) -> Plan:
        """What would change: of these packages, or of all that is installed.  Raises :class:`UpdateError`."""
        if refresh:
            self._do([*_APT, "update"], "apt-get update", 600)
        words = ["install", "--only-upgrade", *names] if names else ["dist-upgrade"]
        return parse(self._do([*_APT, "--simulate", *words], "apt-get --simulate"))

    # -- the way back -------------------------------------------------------------------------------------------

    def _kept(self, name: str, version: str) -> str:
        """The file of a package that is at hand; empty where there is none. apt writes the colon of an epoch as %3a."""
        plain, _colon, arch = name.partition(":")
        pattern = f"{glob.escape(plain)}_{glob.escape(version.replace(':', '%3a'))}_{arch or '*'}.deb"
        for folder in (self._back, self._archives):
            if found := sorted(glob.glob(os.path.join(folder, pattern))):
                return found[0]
        if found := sorted(glob.glob(os.path.join(self._back, pattern.replace("%3a", "?")))):
            return found[0]
        # dpkg-repack leaves the epoch out
        bare = pattern.replace(version.replace(":", "%3a"), version.partition(":")[2] or version)
        return next(iter(sorted(glob.glob(os.path.join(self._back, bare)))), "")

    def fetch(self, plan: Plan) -> list[str]:
        """Put the former packages aside and fetch the new ones; those that nobody has any more, ``name=version``.

        What an update that broke off has changed already is part of the way back of this one.
        """
        earlier = self._unfinished()
        if earlier:
            plan = merged(earlier, plan, self.versions())
        os.makedirs(self._back, mode=0o700, exist_ok=True)
        # into the own folder; an installation would leave out what lies on a disk of this host
        get = ["sh", "-c", 'cd "$0" && exec apt-get --quiet --option APT::Sandbox::User=root download "$@"', self._back]
        missing = [f"{name}={version}" for name, version in plan.former if not self._kept(name, version)]
        if missing and self._run([*get, *missing], self._timeout)[0] != 0:
            # one that is no longer in any repository must not keep the others
            for one in missing:
                self._run([*get, one], self._timeout)
        for name, version in plan.former:
            if not self._kept(name, version):
                self._run(["sh", "-c", 'cd "$0" && exec dpkg-repack "$1"', self._back, name], 300.0)
        self._set_aside(plan)
        if plan.words:
            self._do([*_APT, "--download-only", "--allow-remove-essential", "install", *plan.words], "the download")
        kept = {name: self._kept(name, version) for name, version in plan.former}
        self._remember({"plan": asdict(plan), "files": kept, "state": "updating" if earlier else "fetched"})
        return [f"{name}={version}" for name, version in plan.former if not kept[name]]

    def _unfinished(self) -> Plan | None:
        """The last update, if it neither ended nor was taken back."""
        with contextlib.suppress(UpdateError):
            record, earlier = self._recorded()
            return earlier if record.get("state") == "updating" else None
        return None

    def _set_aside(self, plan: Plan) -> None:
        """Copy what only apt's cache has: a cleaning, or the installation itself, may empty that."""
        for name, version in plan.former:
            path = self._kept(name, version)
            if path and os.path.dirname(path) != self._back:
                own = os.path.join(self._back, os.path.basename(path))
                try:
                    shutil.copyfile(path, f"{own}.new")
                    os.replace(f"{own}.new", own)
                except OSError as error:
                    raise UpdateError(f"{path} cannot be put aside: {error.strerror or error}") from error

    def _remember(self, record: dict[str, Any]) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        files.write_atomic(self._record, json.dumps(record, indent=1) + "\n", mode=0o600)

    def _recorded(self) -> tuple[dict[str, Any], Plan]:
        record = files.read_json(self._record)
        given = record.get("plan")
        if not isinstance(given, dict):
            raise UpdateError(f"{self._record} is absent or torn: no update was prepared on this host")
        return record, Plan(**{name: list(given.get(name) or ()) for name in ("updates", "new", "removed")})

    def versions(self) -> dict[str, str]:
        """Of all installed packages."""
        shape = "--showformat=${binary:Package}\t${Version}\t${db:Status-Status}\n"
        out = self._do(["dpkg-query", "--show", shape], "dpkg-query", 60)
        rows = (line.split("\t") for line in out.splitlines())
        return {row[0]: row[1] for row in rows if len(row) == 3 and row[2] == "installed"}

    def _differing(self, wanted: dict[str, str]) -> list[str]:
        there = self.versions()
        known = {**{name.partition(":")[0]: version for name, version in there.items()}, **there}
        return [f"{name} is {known.get(name, 'absent')}, not {version}" for name, version in wanted.items()
                if known.get(name) != version]  # fmt: skip

    # -- the change ---------------------------------------------------------------------------------------------

    def apply(self) -> Plan:
        """Install what was fetched.  Raises :class:`UpdateError` with the host in whatever state dpkg left it."""
        record, plan = self._recorded()
        if plan.words:
            self._remember({**record, "state": "updating"})
            self._do([*_APT, *_KEEP, "install", *plan.words], "apt-get install")
        if wrong := self._differing({one["name"]: one["new"] for one in (*plan.updates, *plan.new)}):
            raise UpdateError(f"after the update {'; '.join(wrong[:5])}")
        self._remember({**record, "state": "updated"})
        if plan.words:
            self._clear(record.get("files") or {})
        return plan

    def _clear(self, kept: dict[str, str]) -> None:
        """Only the way back of the newest update stays; one that failed left the earlier ones alone."""
        names = {os.path.basename(str(path)) for path in kept.values() if path}
        for name in set(files.list_folder(self._back)) - names:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._back, name))

    def take_back(self) -> Plan:
        """Put the former packages back and remove those that came.  Raises :class:`UpdateError`."""
        record, plan = self._recorded()
        if record.get("state") in ("fetched", "taken_back"):
            return Plan()
        # one that is gone must not keep the others, and is named when they are back
        kept = [str(path) for path in (record.get("files") or {}).values() if path and os.path.exists(path)]
        words = [*kept, *(f"{one['name']}-" for one in plan.new)]
        argv = [*_APT, *_KEEP, "--allow-downgrades", "install", *words]
        if words and self._run(argv, self._timeout)[0] != 0:
            # a package whose own script failed is half configured
            self._run(["dpkg", "--configure", "--pending"], self._timeout)
            self._run(["dpkg", "--install", "--force-downgrade", *kept], self._timeout)
            self._do(argv, "the way back")
        if wrong := self._differing(dict(plan.former)):
            raise UpdateError(f"after the way back {'; '.join(wrong[:5])}")
        self._remember({**record, "state": "taken_back"})
        return plan

    # -- what is only read --------------------------------------------------------------------------------------

    def firmware(self) -> dict[str, str]:
        """Versions by name, as far as a tool of the host shows them: BIOS, VBIOS, and what fwupd knows (EC, PD, …)."""
        versions: dict[str, str] = {}
        with contextlib.suppress(OSError):
            versions["BIOS"] = (
                files.read_plain("/sys/class/dmi/id/bios_version", 200).decode("utf-8", "replace").strip()
            )
        code, out, _err = self._run(["nvidia-smi", "--query-gpu=vbios_version", "--format=csv,noheader"], 10.0)
        if code == 0 and out.strip() and "N/A" not in out:
            versions["VBIOS"] = ", ".join(sorted(set(out.split())))
        code, out, _err = self._run(["fwupdmgr", "get-devices", "--json", "--no-unreported-check"], 30.0)
        with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError):
            for device in json.loads(out)["Devices"] if code == 0 else ():
                if device.get("Version"):
                    versions[str(device["Name"])[:60]] = str(device["Version"])[:60]
        return {name: version for name, version in sorted(versions.items()) if version}
