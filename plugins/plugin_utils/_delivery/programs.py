# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An engine that is a few programs, not a Python package: those of a folder of the controller, made into one wheel.

A wheel goes the way of every other engine: checked by its SHA-256, sent once, installed beside the one in use, kept for
a way back. Its version is made of what the programs hold, so that the same programs are the same engine.
"""

from __future__ import annotations

import base64
import hashlib
import os
import struct
import zipfile
from collections.abc import Sequence

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import (
    Engine,
    EngineError,
    Pin,
    Target,
    read_lock,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.local_path import local

VARIABLE = "engine_programs"
#: e_machine of an ELF file
_MACHINES = {62: "x86_64", 183: "aarch64"}
_STAMP = (1980, 1, 1, 0, 0, 0)


def read_programs(folder: str, names: Sequence[str], name: str, requirements: str) -> Engine:
    """The engine that these programs of a folder are; ``requirements`` is the lock that pins uv.

    Raises EngineError, which names variable and file.
    """
    place = local(folder)
    sums = _sums(place, names)
    told = "".join(f"{program} {sums[program]}\n" for program in sorted(names))
    version = f"0.{int(hashlib.sha256(told.encode()).hexdigest()[:12], 16)}"
    uv = next((pin for pin in read_lock(local(requirements), "engine_requirements") if pin.name == "uv"), None)
    if uv is None:
        raise EngineError(f"engine_requirements: {requirements} does not pin uv, which installs the programs: add it")
    return Engine(place, [uv, Pin(name, version)], {name: version})


def add_wheel(engine: Engine, names: Sequence[str], target: Target, folder: str) -> Engine:
    """Put the programs' wheel where the others are, and name its SHA-256. Raises EngineError for another machine."""
    uv, program_pin = engine.pins
    for program in names:
        machine = machine_of(os.path.join(engine.source, program))
        if machine not in ("", target.machine):
            raise EngineError(
                f"{VARIABLE}: {engine.source}/{program} is a program for {machine}, and this host is {target.machine}: "
                "name a folder with a build for it in the host's own variables"
            )
    wheel = f"{program_pin.name.replace('-', '_')}-{program_pin.version}-py3-none-linux_{target.machine}.whl"
    path = os.path.join(folder, wheel)
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        with push.locked(push.user_cache("locks", f"{wheel}.lock")):
            if not os.path.exists(path):
                _write(path, engine.source, names, program_pin, target)
    (_size, sha256) = push.digests(folder, [wheel])[wheel]
    return engine._replace(pins=[uv, program_pin._replace(hashes=(sha256,))])


def machine_of(path: str) -> str:
    """The machine that a program is for; empty for a script, which runs on any. Raises EngineError for neither."""
    with open(path, "rb") as file:
        head = file.read(20)
    if head[:2] == b"#!":
        return ""
    if len(head) < 20 or head[:4] != b"\x7fELF":
        raise EngineError(f"{VARIABLE}: {path} is no program for Linux; name the folder that its build has written")
    number: int = struct.unpack("<H" if head[5] == 1 else ">H", head[18:20])[0]
    return _MACHINES.get(number, f"machine {number}")


def _sums(folder: str, names: Sequence[str]) -> dict[str, str]:
    lacking = [name for name in names if not os.path.isfile(os.path.join(folder, name))]
    if lacking:
        raise EngineError(f"{VARIABLE}: {folder} lacks {', '.join(lacking)}; name the folder that holds the programs")
    return {name: sha256 for name, (_size, sha256) in push.digests(folder, names).items()}


def _write(path: str, source: str, names: Sequence[str], program_pin: Pin, target: Target) -> None:
    """The same bytes wherever it is made."""
    stem = f"{program_pin.name.replace('-', '_')}-{program_pin.version}"
    tag = f"py3-none-linux_{target.machine}"
    record: list[str] = []
    scratch = f"{path}.part"
    with zipfile.ZipFile(scratch, "w") as archive:

        def add(name: str, data: bytes, mode: int) -> None:
            entry = zipfile.ZipInfo(name, date_time=_STAMP)
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}")

        for program in sorted(names):
            with open(os.path.join(source, program), "rb") as file:
                add(f"{stem}.data/scripts/{program}", file.read(), 0o755)
        info = f"{stem}.dist-info"
        add(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {program_pin.name}\nVersion: {program_pin.version}\n".encode(),
            0o644,
        )
        about = f"Wheel-Version: 1.0\nGenerator: sparkthor.cluster\nRoot-Is-Purelib: false\nTag: {tag}\n"
        add(f"{info}/WHEEL", about.encode(), 0o644)
        entry = zipfile.ZipInfo(f"{info}/RECORD", date_time=_STAMP)
        entry.external_attr = 0o100644 << 16
        archive.writestr(entry, "\n".join([*record, f"{info}/RECORD,,", ""]))
    os.replace(scratch, path)
