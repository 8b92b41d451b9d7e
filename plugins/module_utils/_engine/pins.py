# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an engine is made of: pins, wheels for a target, the environment built from them, and parity between hosts.

Standard library only. The controller decides with it which wheels a host needs, the host how to build from them.
"""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_json, write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.versions import release
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry

RAY_MINIMUM = "2.54"
#: what a lock of Python packages pins; other engines come as images or programs
LOCKED = registry.DEFAULT.name
MARKER = ".sparkthor-engine.json"


class EngineError(Exception):
    """A sentence for the user: what is wrong, with which value, and how to fix it."""


class Pin(NamedTuple):
    """One exactly pinned distribution; the name is canonical."""

    name: str
    version: str
    #: SHA-256 of the files that may stand for it
    hashes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


class Target(NamedTuple):
    """What a host can run: Python as "3.11", machine as the kernel names it, glibc as "2.36"."""

    python: str
    machine: str
    glibc: str

    @property
    def interpreter(self) -> str:
        return "cp" + self.python.replace(".", "")

    @property
    def label(self) -> str:
        return f"{self.interpreter}-{self.machine}"

    def platforms(self) -> list[str]:
        """Platform tags that run here, best first. glibc is compatible downwards, so every lower one counts."""
        major, minor = (int(part) for part in self.glibc.split(".")[:2])
        if major != 2:
            raise EngineError(f"glibc {self.glibc}: only glibc 2.x is known")
        tags = []
        aliases = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
        for lower in range(minor, 4, -1):
            tags.append(f"manylinux_2_{lower}_{self.machine}")
            if lower in aliases:
                tags.append(f"{aliases[lower]}_{self.machine}")
        return [*tags, f"linux_{self.machine}"]


_PYTHON = re.compile(r"\A3\.\d{1,2}\Z")
_GLIBC = re.compile(r"\A2\.\d{1,3}\Z")
_MACHINES = ("aarch64", "x86_64")


def make_target(python: str, machine: str, glibc: str) -> Target:
    """Check what a host says about itself."""
    if not _PYTHON.match(python):
        raise EngineError(f"Python {python!r}: expected a version such as 3.12")
    if machine not in _MACHINES:
        raise EngineError(f"machine {machine!r}: expected one of {', '.join(_MACHINES)}")
    if not _GLIBC.match(glibc):
        raise EngineError(f"glibc {glibc!r}: expected a version such as 2.39")
    return Target(python, machine, glibc)


def canonical(name: str) -> str:
    """The one spelling under which distributions are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


_HASH = re.compile(r"\s+--hash=(\S+)")
_SHA256 = re.compile(r"\Asha256:([0-9a-f]{64})\Z")
_PIN = re.compile(r"\A([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?\s*==\s*([A-Za-z0-9][A-Za-z0-9.!+_-]*)\Z")


def parse_lock(text: str, source: str) -> list[Pin]:
    """Read a lock: each line ``name==version``, comments, hashes and line continuations allowed, nothing else.

    A lock is per target and complete, so ranges, markers, other files and index addresses have no place in it.
    """
    pins: dict[str, Pin] = {}
    for first, line in _logical_lines(text):
        content = _HASH.sub("", line).strip()
        match = _PIN.match(content)
        if match is None or "*" in content:
            raise EngineError(
                f"{source}, line {first}: {content!r} is not an exact pin. A lock holds lines such as ray==2.60.0 "
                "only: no ranges, no markers (it is made for one target), no options and no addresses."
            )
        hashes = []
        for value in _HASH.findall(line):
            digest = _SHA256.match(value)
            if digest is None:
                raise EngineError(f"{source}, line {first}: {value!r} is not sha256: and 64 hexadecimal digits")
            hashes.append(digest[1])
        pin = Pin(canonical(match[1]), match[2], tuple(hashes))
        known = pins.setdefault(pin.name, pin)
        if known.version != pin.version:
            raise EngineError(f"{source}, line {first}: {pin} contradicts {known}")
        pins[pin.name] = pin._replace(hashes=tuple(dict.fromkeys([*known.hashes, *pin.hashes])))
    if not pins:
        raise EngineError(f"{source}: no pins in it")
    return list(pins.values())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number and content of each line that says something, without its comment; continued ones put together."""
    pending, first = "", 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        content = re.sub(r"(\A|\s)#.*\Z", "", line).strip()
        first = first if pending else number
        if content.endswith("\\"):
            pending += content[:-1].strip() + " "
            continue
        content, pending = pending + content, ""
        if content.strip():
            yield first, content


def read_lock(path: str, variable: str) -> list[Pin]:
    """The pins of a lock on the controller, each with the SHA-256 of its wheels; errors name the variable."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise EngineError(f"{variable}: {path}: {error.strerror}") from error
    pins = parse_lock(text, path)
    bare = [str(pin) for pin in pins if not pin.hashes]
    if bare:
        more = f" and {len(bare) - 6} more" if len(bare) > 6 else ""
        raise EngineError(
            f"{variable}: {path} has no SHA-256 for {', '.join(bare[:6])}{more}, and root would run whatever is "
            "found under these names. Write it with uv pip compile --generate-hashes, or add --hash=sha256:... to the "
            "line of a wheel of your own (pip hash FILE prints it)."
        )
    return pins


def requirement_lines(pins: Iterable[Pin]) -> str:
    """The pins as pip and uv read them, each with the hashes that it may have."""
    return "".join(" ".join([str(pin), *(f"--hash=sha256:{digest}" for digest in pin.hashes)]) + "\n" for pin in pins)


def unexpected_wheels(chosen: Mapping[Pin, str], sums: Mapping[str, str]) -> dict[str, str]:
    """Wheels whose SHA-256 the lock does not name: file name -> what it is."""
    return {name: sums[name] for pin, name in chosen.items() if sums[name] not in pin.hashes}


def same_version(wanted: str, found: str) -> bool:
    """True if a found version satisfies a wanted one; a wanted version without local part accepts any local part."""
    if wanted == found:
        return True
    return "+" not in wanted and found.split("+")[0] == wanted


def check_lock(pins: Sequence[Pin], source: str, ray_version: str = "", engine_version: str = "") -> dict[str, str]:
    """The lock must hold what the rest of the collection relies on. Returns the versions of Ray and the engine."""
    versions = {pin.name: pin.version for pin in pins}
    for name in ("ray", LOCKED, "uv"):
        if name not in versions:
            raise EngineError(
                f"{source}: {name} is not pinned in it. The engine's lock must pin ray, {LOCKED} and uv "
                "(uv installs the rest, and comes out of its own wheel)."
            )
    if release(versions["ray"]) < release(RAY_MINIMUM):
        raise EngineError(
            f"{source}: ray {versions['ray']} is too old. Ray before {RAY_MINIMUM} has no token authentication "
            "(CVE-2023-48022, CVE-2025-62593, CVE-2026-27482): pin a newer one."
        )
    for variable, name, wanted in (
        ("engine_ray_version", "ray", ray_version),
        ("engine_vllm_version", LOCKED, engine_version),
    ):
        if wanted and not same_version(wanted, versions[name]):
            raise EngineError(
                f"{variable} is {wanted!r}, but {source} pins {name}=={versions[name]}: change one of the two."
            )
    return {name: versions[name] for name in ("ray", LOCKED)}


class Engine(NamedTuple):
    """A lock, checked."""

    source: str
    pins: list[Pin]
    versions: dict[str, str]  # of Ray and the engine


def read_engine(path: str, ray_version: str = "", engine_version: str = "") -> Engine:
    """Read and check a lock on the controller; raises EngineError that names the file and the line."""
    pins = read_lock(path, "engine_requirements")
    return Engine(path, pins, check_lock(pins, path, ray_version, engine_version))


class Wheel(NamedTuple):
    filename: str
    name: str
    version: str
    pythons: tuple[str, ...]
    abis: tuple[str, ...]
    platforms: tuple[str, ...]


def parse_wheel(filename: str) -> Wheel | None:
    """Take a wheel's file name apart; None for anything else."""
    if not filename.endswith(".whl"):
        return None
    parts = filename[:-4].split("-")
    if len(parts) not in (5, 6):
        return None
    return Wheel(
        filename,
        canonical(parts[0]),
        parts[1],
        tuple(parts[-3].split(".")),
        tuple(parts[-2].split(".")),
        tuple(parts[-1].split(".")),
    )


def wheel_rank(wheel: Wheel, target: Target) -> int | None:
    """How well a wheel suits a target, lower is better; None if it does not run there."""
    minor = int(target.python.split(".")[1])
    platforms = [*target.platforms(), "any"]
    rank = min((platforms.index(tag) for tag in wheel.platforms if tag in platforms), default=None)
    if rank is None:
        return None
    for python in wheel.pythons:
        exact = python == target.interpreter
        generation = re.fullmatch(r"cp3(\d+)", python)
        if exact and target.interpreter in wheel.abis:
            return rank
        if generation and int(generation[1]) <= minor and "abi3" in wheel.abis:
            return rank + 100
        pure = re.fullmatch(r"py3(\d*)", python)
        if "none" in wheel.abis and (exact or (pure and int(pure[1] or 0) <= minor)):
            return rank + 1000
    return None


def select_wheels(pins: Iterable[Pin], filenames: Iterable[str], target: Target) -> tuple[dict[Pin, str], list[Pin]]:
    """For each pin the file name of the best wheel in a folder, and the pins without any."""
    by_name: dict[str, list[Wheel]] = {}
    for filename in filenames:
        wheel = parse_wheel(filename)
        if wheel is not None:
            by_name.setdefault(wheel.name, []).append(wheel)
    chosen: dict[Pin, str] = {}
    missing: list[Pin] = []
    for pin in pins:
        ranked = sorted(
            (rank, wheel.filename)
            for wheel in by_name.get(pin.name, [])
            if same_version(pin.version, wheel.version) and (rank := wheel_rank(wheel, target)) is not None
        )
        if ranked:
            chosen[pin] = ranked[0][1]
        else:
            missing.append(pin)
    return chosen, missing


def missing_pins(pins: Iterable[Pin], filenames: Iterable[str], target: Target) -> list[Pin]:
    return select_wheels(pins, filenames, target)[1]


def pip_download_argv(pip: Sequence[str], requirements: str, folder: str, target: Target) -> list[str]:
    """``pip download`` for a target that need not resemble this machine. Indexes are pip's own settings.

    ``requirements``: a file with :func:`requirement_lines`; pip keeps no file that has another hash.
    """
    argv = [
        *pip,
        "download",
        "--quiet",
        "--require-hashes",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
        "--implementation=cp",
        f"--python-version={target.python}",
        f"--abi={target.interpreter}",
        f"--dest={folder}",
        f"--find-links={folder}",
    ]
    argv += [f"--platform={tag}" for tag in target.platforms()]
    return [*argv, f"--requirement={requirements}"]


def set_digest(wheels: Mapping[str, str]) -> str:
    """The identity of a set of wheels, file name → SHA-256: equal sets make equal environments."""
    lines = "".join(f"{name} {digest}\n" for name, digest in sorted(wheels.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def extract_uv(wheel: str, sha256: str, folder: str) -> str:
    """Unpack uv's executable from its wheel: the one tool that must exist before anything can be installed.

    uv checks all other wheels as it installs them; its own nobody else would.
    """
    with open(wheel, "rb") as file:
        found = hashlib.sha256(file.read()).hexdigest()
    if found != sha256:
        raise EngineError(f"{wheel} is not the wheel of uv that was chosen: its SHA-256 is {found}, not {sha256}")
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, "uv")
    with zipfile.ZipFile(wheel) as archive:
        member = next((name for name in archive.namelist() if name.endswith(".data/scripts/uv")), None)
        if member is None:
            raise EngineError(f"{wheel}: no executable of uv in it")
        write_atomic(target, archive.read(member), mode=0o755)
    return target


def uv_install_argv(uv: str, python: str, *what: str) -> list[str]:
    """Install offline: no index, no resolver, exactly these files, and none whose hash is not given."""
    return [
        *(uv, "pip", "install", "--quiet", f"--python={python}"),
        *("--offline", "--no-index", "--no-deps", "--require-hashes"),
        *what,
    ]


def wheel_lines(folder: str, wheels: Mapping[str, str]) -> str:
    """Requirements for uv out of wheels in a folder (file name -> SHA-256)."""
    return "".join(
        f"{canonical(name.split('-')[0])} @ file://{quote(f'{folder}/{name}')} --hash=sha256:{sha256}\n"
        for name, sha256 in sorted(wheels.items())
    )


def uv_wheel(wheels: Mapping[str, str]) -> str:
    """The file name of uv's wheel."""
    name = next((name for name in wheels if name.startswith("uv-")), "")
    if not name:
        raise EngineError("no wheel of uv among the wheels")
    return name


def site_packages(venv: str, python: str) -> str:
    return os.path.join(venv, "lib", f"python{python}", "site-packages")


def installed_versions(venv: str, python: str) -> dict[str, str]:
    """Distributions of an environment, from the names of their metadata folders alone: one directory listing."""
    versions: dict[str, str] = {}
    try:
        names = os.listdir(site_packages(venv, python))
    except FileNotFoundError:
        return versions
    for name in names:
        if name.endswith(".dist-info") and "-" in name:
            distribution, version = name[: -len(".dist-info")].split("-", 1)
            versions[canonical(distribution)] = version
    return versions


def read_marker(venv: str) -> dict[str, Any]:
    """What was recorded when the environment was complete; empty if it never was."""
    return read_json(os.path.join(venv, MARKER))


def compare_parity(hosts: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Names on which hosts disagree. A name that a host lacks counts as a difference."""
    names = sorted({name for versions in hosts.values() for name in versions})
    return [name for name in names if len({versions.get(name, "") for versions in hosts.values()}) > 1]


def releases(versions: Mapping[str, str]) -> dict[str, str]:
    """Without the local part, which differs where the same release was built for another machine."""
    return {name: version.partition("+")[0] for name, version in versions.items()}


def versions_across(facts: Mapping[str, Mapping[str, Any] | None]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Versions by host from the facts ``sparkthor_engine``, and names among them that must agree and do not.

    A host without an engine has no say.
    """
    engines: dict[str, dict[str, str]] = {}
    for host, engine in facts.items():
        if not engine:
            continue
        engines[host] = {"python": engine["python"], **releases(engine["versions"])}
        if engine.get("image_id"):
            engines[host]["image"] = engine["image_id"].removeprefix("sha256:")[:12]
    # libraries of one vendor's wheels are named by its CUDA; only what speaks across hosts must agree
    spoken = ("python", "ray", *registry.ENGINES, "torch", "image")
    return engines, [name for name in compare_parity(engines) if name in spoken]


def parity_table(hosts: Mapping[str, Mapping[str, str]], names: Sequence[str]) -> str:
    """Who has what, for the names given: one line a host."""
    rows = [["host", *names]]
    rows += [[host, *(versions.get(name) or "-" for name in names)] for host, versions in hosts.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
