# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wheels on the controller: which a target needs, fetching those that are missing, once for all hosts alike."""

from __future__ import annotations

import os
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import pins as _engine
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import (
    Engine,
    EngineError,
    Pin,
    Target,
    read_engine,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import machine
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import TIMED_OUT, run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import programs, push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.local_path import local

#: seconds; a CUDA engine is several gigabytes
DOWNLOAD_LIMIT = 7200


#: the interpreter that facts know; another one is asked on the host
DEFAULT_PYTHON = "/usr/bin/python3"


class WheelSet(NamedTuple):
    folder: str
    manifest: list[Entry]
    digest: str

    def unpacked(self) -> int:
        """Bytes the wheels take when they are installed."""
        total = 0
        for entry in self.manifest:
            with zipfile.ZipFile(os.path.join(self.folder, entry.path)) as archive:
                total += sum(member.file_size for member in archive.infolist())
        return total


def read_engine_of(arguments: Mapping[str, Any], target: Target) -> Engine:
    """What the arguments of the engine's modules name: a lock, programs, whose wheel is made here for the target, or
    both."""
    names = ("requirements", "ray_version", "engine_version", "programs")
    path, ray, version, built = (str(arguments.get(name) or "") for name in names)
    served = registry.engine_of(arguments)
    lock = None if served.programs else read_engine(local(path), ray, version)
    if lock and not built:
        return lock
    other = served if served.programs else registry.BY_PROGRAMS
    engine = programs.read_programs(built, other.programs, other.packages[0], path)
    folder = wheel_folder(str(arguments.get("wheel_dir") or ""), target)
    made = programs.add_wheel(engine, other.programs, target, folder)
    return lock._replace(pins=[*lock.pins, made.pins[-1]]) if lock else made


def target_argument(engine: Engine, target: Target, wheels: WheelSet, node: Mapping[str, Any]) -> dict[str, Any]:
    """What the host's side of ``engine_venv`` is told in its option ``target``."""
    return {
        "python": target.python,
        "machine": target.machine,
        "kind": node.get("kind", ""),
        "digest": wheels.digest,
        "pins": {pin.name: pin.version for pin in engine.pins},
        "manifest": [list(entry) for entry in wheels.manifest],
    }


def target_of(node: Mapping[str, Any], probed: Mapping[str, str] | None = None) -> Target | None:
    """The target of a host, from what was probed there or from its facts; None if neither says enough."""
    if probed:
        return _engine.make_target(".".join(probed["version"].split(".")[:2]), probed["machine"], probed["glibc"])
    python = (node.get("python") or {}).get("version", "")
    system = node.get("os") or {}
    _name, usual = machine.SYSTEMS.get((system.get("id", ""), system.get("version", "")), ("", ""))
    glibc = node.get("glibc") or usual
    if python and node.get("arch") and glibc:
        return _engine.make_target(".".join(python.split(".")[:2]), str(node["arch"]), str(glibc))
    return None


def wheel_folder(wheel_dir: str, target: Target) -> str:
    return local(wheel_dir) if wheel_dir else push.user_cache("wheels", target.label)


def _names(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


def prepare_wheels(engine: Engine, folder: str, target: Target, download: bool) -> WheelSet:
    """The wheels of a lock for a target; fetches what the folder lacks. Says all that cannot be had in one message."""
    chosen, missing = _engine.select_wheels(engine.pins, _names(folder), target)
    if missing and download:
        # forks of one run wait here for the first of them, then find everything in place
        with push.locked(push.user_cache("locks", f"{target.label}.lock")):
            missing = _engine.missing_pins(engine.pins, _names(folder), target)
            if missing:
                problem = _fetch(missing, folder, target)
                chosen, missing = _engine.select_wheels(engine.pins, _names(folder), target)
                if missing:
                    raise EngineError(lacking(missing, folder, target, engine.source, problem))
            chosen, missing = _engine.select_wheels(engine.pins, _names(folder), target)
    if missing:
        raise EngineError(lacking(missing, folder, target, engine.source))
    sums = push.digests(folder, sorted(chosen.values()))
    wrong = _engine.unexpected_wheels(chosen, {name: sha256 for name, (_size, sha256) in sums.items()})
    if wrong:
        raise EngineError(unexpected(wrong, folder, engine.source))
    manifest = [Entry(name, size, sha256) for name, (size, sha256) in sorted(sums.items())]
    return WheelSet(folder, manifest, _engine.set_digest({entry.path: entry.sha256 for entry in manifest}))


def missing_wheels(engine: Engine, folder: str, target: Target) -> list[Pin]:
    return _engine.missing_pins(engine.pins, _names(folder), target)


def lacking(missing: list[Pin], folder: str, target: Target, source: str, problem: str = "") -> str:
    names = ", ".join(str(pin) for pin in missing[:12]) + (
        f" and {len(missing) - 12} more" if len(missing) > 12 else ""
    )
    return (
        f"engine_wheel_dir: {folder} lacks wheels of {source} for Python {target.python} on {target.machine} "
        f"(glibc {target.glibc}): {names}. Put them there (an index may have none for this target: build them, or pin "
        f"a version that has one), or let the controller fetch them with engine_download: true."
        + (f" The last attempt said: {problem}" if problem else "")
    )


def unexpected(wrong: Mapping[str, str], folder: str, source: str) -> str:
    names = ", ".join(f"{name} ({digest})" for name, digest in sorted(wrong.items())[:6])
    more = f" and {len(wrong) - 6} more" if len(wrong) > 6 else ""
    return (
        f"engine_wheel_dir: {folder} has wheels whose SHA-256 {source} does not name: {names}{more}. Remove them and "
        "let the controller fetch them again; for a wheel of your own add its --hash=sha256:... to the lock."
    )


def _fetch(missing: list[Pin], folder: str, target: Target) -> str:
    """``pip download``; the reason if it did not get everything. One bad pin must not hide the others."""
    os.makedirs(folder, exist_ok=True)
    problem = _pip(missing, folder, target)
    if problem and len(missing) > 1:
        # pip gives up at the first it cannot find; asking one by one names them all
        for pin in missing:
            problem = _pip([pin], folder, target) or problem
    return problem


def _pip(missing: list[Pin], folder: str, target: Target) -> str:
    with tempfile.NamedTemporaryFile("w", prefix="sparkthor-", suffix=".txt", encoding="utf-8") as file:
        file.write(_engine.requirement_lines(missing))
        file.flush()
        argv = _engine.pip_download_argv([sys.executable, "-m", "pip"], file.name, folder, target)
        rc, _out, err = run_limited(argv, DOWNLOAD_LIMIT)
    if rc == TIMED_OUT:
        return f"pip download took longer than {DOWNLOAD_LIMIT} s"
    if rc == 0:
        return ""
    if "DO NOT MATCH THE HASHES" in err:
        return f"what the index has is not what the lock names: {' '.join(err.partition('HASHES')[2].split())[-600:]}"
    lines = [line for line in err.splitlines() if line.startswith("ERROR")] or err.splitlines()
    return (lines or [f"pip download ended with {rc}"])[-1].removeprefix("ERROR: ")
