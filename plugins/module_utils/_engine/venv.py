# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's Python environment on a host: built beside the one in use, switched in one step, checked in passing.

::

    <path>                    a link to the environment in use, e.g. /opt/sparkthor/venv
    <path>s/<digest>.<n>      environments; one is complete when it holds its marker
    <parent>/wheels/<digest>  the wheels it was made from

A build that was killed leaves a folder without marker, which the next run removes. Nothing that runs is ever written
to: a damaged environment is built anew beside the old one. Environments that are kept are used again as they are, so
going back to one needs no wheel and no network.

Standard library only: this runs on the hosts.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import cuda_kernels, program_kernels
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import (
    LOCKED,
    MARKER,
    EngineError,
    canonical,
    extract_uv,
    installed_versions,
    read_marker,
    same_version,
    site_packages,
    uv_install_argv,
    uv_wheel,
    wheel_lines,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.vllm_kernels import kernel_notes, kernel_problem
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.deadline import lock
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry as engines
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import free_bytes
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import parse_manifest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Store, private_store

Runner = Callable[[Sequence[str], Mapping[str, str], float], tuple[int, str, str]]

#: files of at least this size are checked one by one in the quick check
_BIG = 1 << 20
#: provided by the GPU's driver or looked up by the libraries themselves, not by the loader
_NOT_OURS = (
    "libcuda.so",
    "libnvidia-",
    "libtorch",
    "libc10",
    "libshm",
    "libcudart",
    "libcublas",
    "libcudnn",
    "libnccl",
)

_PROBE = (
    "import json, platform, sys; "
    "print(json.dumps({'version': platform.python_version(), 'machine': platform.machine(), "
    "'glibc': platform.libc_ver()[1], 'implementation': platform.python_implementation()}))"
)


class WantedVenv(NamedTuple):
    path: str
    digest: str
    pins: dict[str, str]  # canonical name -> version
    wheels: dict[str, str]  # file name -> SHA-256
    python: str  # interpreter to build with: a name or a path
    python_minor: str  # "3.11": what the wheels were chosen for
    kind: str = ""  # of the host: what its GPU needs
    calls: tuple[str, ...] = ()  # what the model calls of the engine's libraries


def wanted_of(params: Mapping[str, Any], wheels: Mapping[str, str]) -> WantedVenv:
    """What the arguments of the module ``engine_venv`` ask for, once the controller has added the target."""
    target = params["target"]
    return WantedVenv(
        path=params["path"],
        digest=target["digest"],
        pins=target["pins"],
        wheels=dict(wheels),
        python=params["python"],
        python_minor=target["python"],
        kind=str(target.get("kind", "")),
        calls=tuple(params["calls"]),
    )


def facts(params: Mapping[str, Any]) -> dict[str, Any]:
    """The fact ``sparkthor_engine`` of a host that has what these arguments ask for."""
    target = params["target"]
    return {
        "path": params["path"],
        "digest": target["digest"],
        "python": target["python"],
        "machine": target["machine"],
        "versions": interesting(target["pins"]),
    }


class Found(NamedTuple):
    """The environment in use, as far as it can be told without running it."""

    real: str  # folder the link leads to, empty if there is none
    digest: str
    versions: dict[str, str]
    problems: list[str]  # why it is not what is wanted


def run(argv: Sequence[str], environment: Mapping[str, str], timeout: float) -> tuple[int, str, str]:
    """A command with these variables added to its environment."""
    settings = [f"{name}={value}" for name, value in environment.items()]
    return run_limited(["env", *settings, *argv] if settings else list(argv), timeout)


def store_of(path: str) -> Store:
    """Where wheels wait to be installed as the environment ``path``."""
    return private_store(os.path.join(os.path.dirname(path), "wheels"))


def apply(params: Mapping[str, Any], check: bool) -> dict[str, Any]:
    """The result of the module; ``need`` in it names wheels that are to be sent before anything can be built."""
    target = params["target"]
    manifest = parse_manifest(target["manifest"])
    wanted = wanted_of(params, {entry.path: entry.sha256 for entry in manifest})
    full = params["verify"] == "full"
    state = inspect(wanted, full)
    staged = not params["activate"]
    built = state.real if not state.problems else kept_whole(wanted, full)
    result = {
        "changed": not built if staged else bool(state.problems),
        # another model may call what the last one did not
        "warnings": kernel_remarks(wanted, built) if built else [],
        "problems": state.problems,
        "ansible_facts": {"sparkthor_engine": facts(params)},
        **({"command": [f"{built}/bin/python"]} if built else {}),
    }
    if not state.problems or (staged and built):
        return result
    note = "".join(f"# {problem}\n" for problem in state.problems if problem != "absent")
    result["diff"] = {
        "before_header": wanted.path,
        "after_header": wanted.path,
        "before": _listing(state.versions) + note,
        "after": _listing(wanted.pins),
    }
    if built:
        if not check:
            with alone(wanted.path, params["timeout"]):
                switch(wanted.path, built)
        return result
    store = store_of(wanted.path)
    # wheels that lie here since the last build are read again before root runs what is in them
    plan = store.plan(wanted.digest, manifest, full=True)
    if plan.need:
        store.check_space(plan.bytes_needed, "the engine's wheels")
    try:
        check_room(wanted.path, int(target.get("unpacked", 0)) + plan.bytes_needed)
    except EngineError as error:
        raise EngineError(f"Nothing was changed: {error}") from error
    if check:
        return result
    if plan.need:
        return {**result, "need": plan.need}
    with alone(wanted.path, params["timeout"]):
        # a run that lost its controller goes on here: what it finished meanwhile need not be built again
        folder = kept_whole(wanted, full)
        if not folder:
            store.commit(wanted.digest, manifest, plan.wrong)
            folder = build(wanted, store.folder(wanted.digest), run, params["timeout"])
        if not staged:
            switch(wanted.path, folder)
        result |= {"command": [f"{folder}/bin/python"], "warnings": kernel_remarks(wanted, folder)}
        prune(wanted.path, [folder, state.real, *params["needed"]], params["keep"])
    for name in store.names():
        if name != wanted.digest:
            store.remove(name)
    store.clean_incoming()
    return result


def _listing(pins: Mapping[str, str]) -> str:
    return "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))


def probe_python(python: str, run: Runner) -> dict[str, str]:
    """Version, machine and glibc of an interpreter on this host."""
    if shutil.which(python) is None:
        raise EngineError(f"engine_python: {python!r} is not on this host")
    rc, out, err = run([python, "-I", "-c", _PROBE], {}, 30)
    if rc != 0:
        reason = (err.strip().splitlines() or [f"exit code {rc}"])[-1]
        raise EngineError(f"engine_python: {python!r} does not run on this host: {reason}")
    found: dict[str, str] = json.loads(out)
    if found.pop("implementation") != "CPython":
        raise EngineError(f"engine_python: {python!r} is not CPython")
    return found


def _top(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(name for name in os.listdir(folder) if name != "__pycache__")
    return []


def _folders(place: str) -> list[str]:
    """Environments, whole or not; names that begin with a dot are the builder's own."""
    return [name for name in _top(place) if not name.startswith(".")]


def _big_files(site: str) -> dict[str, int]:
    found = {}
    for parent, folders, names in os.walk(site):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = os.path.join(parent, name)
            size = os.lstat(path).st_size
            if size >= _BIG:
                found[os.path.relpath(path, site)] = size
    return found


def fingerprint(venv: str, minor: str) -> dict[str, Any]:
    """What the quick check compares: names at the top of the environment, and the sizes of its big files."""
    site = site_packages(venv, minor)
    return {
        "packages": _top(site),
        "programs": _top(os.path.join(venv, "bin")),
        "big": _big_files(site),
        "python": os.path.realpath(os.path.join(venv, "bin", "python")),
    }


def inspect(wanted: WantedVenv, full: bool = False) -> Found:
    """Is the environment in use the one that is wanted, and whole?"""
    if not os.path.islink(wanted.path):
        if os.path.lexists(wanted.path):
            raise EngineError(
                f"engine_venv_path: {wanted.path} exists and is not a link made by this collection. Move it away, or "
                "choose another engine_venv_path."
            )
        return Found("", "", {}, ["absent"])
    return _inspect_folder(os.path.realpath(wanted.path), wanted, full)


def kept_whole(wanted: WantedVenv, full: bool = False) -> str:
    """An environment that was made from the wanted wheels and is whole, in use or not; empty where there is none."""
    place = environments(wanted.path)
    names = [name for name in _folders(place) if name.startswith(f"{wanted.digest}.")]
    folders = (os.path.join(place, name) for name in names)
    return next((folder for folder in folders if not _inspect_folder(folder, wanted, full).problems), "")


def _inspect_folder(real: str, wanted: WantedVenv, full: bool) -> Found:
    marker = read_marker(real)
    if not marker:
        return Found(real, "", {}, ["not complete"])
    minor, digest = str(marker.get("minor", "")), str(marker.get("digest", ""))
    versions = installed_versions(real, minor)
    problems = []
    if os.stat(real).st_uid != os.geteuid():
        problems.append("it belongs to another user")
    if digest != wanted.digest:
        problems.append("made from other wheels")
    problems += _differences(real, minor, marker.get("fingerprint") or {})
    for name, version in sorted(wanted.pins.items()):
        if digest == wanted.digest and not same_version(version, versions.get(name, "")):
            problems.append(f"{name} {versions.get(name, 'is missing')} instead of {version}")
    if full and not problems:
        problems += damaged_files(real, minor)
    return Found(real, digest, versions, problems)


def _differences(venv: str, minor: str, kept: Mapping[str, Any]) -> list[str]:
    site = site_packages(venv, minor)
    problems = []
    for what, folder in (("packages", site), ("programs", os.path.join(venv, "bin"))):
        before, now = set(kept.get(what) or []), set(_top(folder))
        problems += [f"{name} was removed" for name in sorted(before - now)]
        problems += [f"{name} was added" for name in sorted(now - before)]
    for name, size in sorted((kept.get("big") or {}).items()):
        try:
            now_size = os.lstat(os.path.join(site, name)).st_size
        except OSError:
            problems.append(f"{name} was removed")
            continue
        if now_size != size:
            problems.append(f"{name} has {now_size} bytes instead of {size}")
    python = os.path.join(venv, "bin", "python")
    if os.path.realpath(python) != kept.get("python") or not os.path.exists(python):
        problems.append("its Python interpreter was replaced")
    return problems


def damaged_files(venv: str, minor: str) -> list[str]:
    """Every file against the hash its package recorded: reads the whole environment."""
    site = site_packages(venv, minor)
    problems = []
    for name in _top(site):
        record = os.path.join(site, name, "RECORD")
        if not name.endswith(".dist-info") or not os.path.exists(record):
            continue
        with open(record, encoding="utf-8", newline="") as file:
            for path, digest, _size in csv.reader(file):
                method, _unused, wanted = digest.partition("=")
                if method != "sha256":
                    continue
                full_path = os.path.join(site, path)
                if not os.path.exists(full_path):
                    problems.append(f"{path} was removed")
                elif record_hash(full_path) != wanted:
                    problems.append(f"{path} was changed")
    return problems


def record_hash(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def environments(path: str) -> str:
    return f"{path}s"


def check_room(path: str, unpacked: int) -> None:
    """The new environment is built while the old one is in use."""
    free = free_bytes(environments(path))
    if unpacked * 1.05 > free:
        raise EngineError(
            f"engine_venv_path: the environment needs {unpacked * 1.05 / 2**30:.1f} GiB under {environments(path)}, "
            f"but only {free / 2**30:.1f} GiB are free there. Free some or choose another engine_venv_path."
        )


@contextlib.contextmanager
def alone(path: str, patience: float) -> Iterator[None]:
    """One builder at a time. The kernel lets go of the lock when its holder dies."""
    place = environments(path)
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, ".lock"), "w", encoding="utf-8") as file:
        if not lock(file, patience):
            raise EngineError(
                f"another run has been building in {place} for more than {patience:.0f} s: wait or end it"
            )
        yield


def build(wanted: WantedVenv, wheel_dir: str, run: Runner, timeout: float) -> str:
    """Build the environment in a folder of its own and return that folder; it is not in use yet."""
    place = environments(wanted.path)
    os.makedirs(place, exist_ok=True)
    _remove_unfinished(place, os.path.realpath(wanted.path))
    number = 0
    while os.path.lexists(target := os.path.join(place, f"{wanted.digest}.{number}")):
        number += 1
    interpreter = probe_python(wanted.python, run)
    if not interpreter["version"].startswith(f"{wanted.python_minor}."):
        raise EngineError(
            f"engine_python: {wanted.python!r} is Python {interpreter['version']} on this host, but the wheels are for "
            f"{wanted.python_minor}. Set engine_python to a Python {wanted.python_minor} or use a lock for this one."
        )
    tools = os.path.join(place, ".building")
    shutil.rmtree(tools, ignore_errors=True)
    os.makedirs(tools)
    try:
        name = uv_wheel(wanted.wheels)
        uv = extract_uv(os.path.join(wheel_dir, name), wanted.wheels[name], tools)
        # the cache lies beside the environment, so that uv links files instead of copying them
        environment = {
            "UV_CACHE_DIR": os.path.join(tools, "cache"),
            "UV_NO_CONFIG": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_OFFLINE": "1",
            "HOME": tools,
        }
        _must(run([uv, "venv", "--quiet", "--python", wanted.python, target], environment, 120), "uv venv")
        lines = os.path.join(tools, "requirements.txt")
        write_atomic(lines, wheel_lines(wheel_dir, wanted.wheels))
        argv = uv_install_argv(uv, f"{target}/bin/python", f"--requirement={lines}")
        _must(run(argv, environment, timeout), "uv pip install")
    finally:
        shutil.rmtree(tools, ignore_errors=True)
    versions = installed_versions(target, wanted.python_minor)
    for name, version in wanted.pins.items():
        if not same_version(version, versions.get(name, "")):
            raise EngineError(f"{name} {version} was installed, but {versions.get(name, 'nothing')} is there")
    _check_libraries(target, wanted.python_minor, run)
    libraries = _libraries(target, wanted.python_minor)
    # without its marker the new environment is no environment; the one in use stays
    _check_kernels(wanted, libraries)
    marker = {
        "libraries": libraries,
        "digest": wanted.digest,
        # one that was installed anew has the same digest, and what serves is restarted where this file differs
        "folder": os.path.basename(target),
        "minor": wanted.python_minor,
        "python": interpreter["version"],
        "pins": wanted.pins,
        "fingerprint": fingerprint(target, wanted.python_minor),
    }
    write_atomic(os.path.join(target, MARKER), json.dumps(marker))
    return target


def _libraries(venv: str, minor: str) -> dict[str, cuda_kernels.Kernels]:
    package = os.path.join(site_packages(venv, minor), LOCKED)
    return {**program_kernels.kernels_of(venv), **cuda_kernels.of_package(package)}


def _known_libraries(venv: str) -> Mapping[str, Any]:
    """Kernels by library, as they were written down when the environment was built."""
    marker = read_marker(venv)
    return marker.get("libraries") or _libraries(venv, str(marker.get("minor", "")))


def difference(arguments: Mapping[str, Any]) -> str:
    """What is not as the arguments of the module ``engine_venv`` want it.  Raises EngineError."""
    wanted = wanted_of(arguments, {})
    found = inspect(wanted)
    if not found.problems:
        kernel_remarks(wanted, found.real)
    return "; ".join(found.problems)


def kernel_remarks(wanted: WantedVenv, folder: str) -> list[str]:
    """What is to be said of a built environment's kernels. Raises EngineError where they cannot serve the model."""
    return _check_kernels(wanted, _known_libraries(folder))


def _check_kernels(wanted: WantedVenv, kernels: Mapping[str, Any]) -> list[str]:
    """What is to be said of the kernels of each library; refuses what cannot serve the model on this host."""
    read = {name: cuda_kernels.Kernels(*map(tuple, each)) for name, each in kernels.items()}
    programs = {name: each for name, each in read.items() if name in engines.BY_PROGRAMS.programs}
    found = {name: each for name, each in read.items() if name not in programs}
    if unfit := program_kernels.unfit(wanted.kind, programs):
        raise EngineError(unfit)
    remarks = program_kernels.slow(wanted.kind, programs) if programs else []
    version = wanted.pins.get(LOCKED, "")
    if not version:
        return remarks
    if problem := kernel_problem(wanted.kind, version, found, wanted.calls):
        device = cuda_kernels.DEVICES[wanted.kind]
        raise EngineError(
            f"{problem}. Give engine_requirements a build with CUDA 13 kernels for it, or a wheel built on the host "
            f'with TORCH_CUDA_ARCH_LIST="{device // 10}.{device % 10}" in engine_wheel_dir. The engine in use was left '
            "as it is."
        )
    return [*remarks, *kernel_notes(wanted.kind, version, found, wanted.calls)]


def _check_libraries(venv: str, minor: str, run: Runner) -> None:
    missing = missing_libraries(venv, minor, run)
    if missing:
        lines = "; ".join(f"{library} (wanted by {user})" for library, user in sorted(missing.items()))
        raise EngineError(
            f"libraries of the operating system are missing on this host: {lines}. Install the packages that bring "
            "them (Debian and Ubuntu: libnuma.so.1 comes with libnuma1, libstdc++.so.6 with libstdc++6)."
        )


def _must(outcome: tuple[int, str, str], what: str) -> None:
    rc, out, err = outcome
    if rc != 0:
        text = (err.strip() or out.strip() or f"exit code {rc}")[-1500:]
        raise EngineError(f"{what} failed: {text}")


def missing_libraries(venv: str, minor: str, run: Runner) -> dict[str, str]:
    """System libraries that the engine's own shared objects need and this host lacks: library -> who wants it."""
    site = site_packages(venv, minor)
    wanted = [
        os.path.join(site, "ray", "_raylet.so"),
        os.path.join(site, "ray", "core", "src", "ray", "raylet", "raylet"),
    ]
    with contextlib.suppress(OSError):
        package = os.path.join(site, LOCKED)
        wanted += [os.path.join(package, name) for name in sorted(os.listdir(package)) if name.endswith(".so")]
    wanted += program_kernels.programs_of(venv)
    missing: dict[str, str] = {}
    for path in wanted:
        if os.path.exists(path):
            rc, out, _err = run(["ldd", path], {}, 30)
            if rc == 0:
                for library in parse_ldd(out):
                    missing.setdefault(library, os.path.relpath(path, site))
    inside = (
        {name for _parent, _folders, names in os.walk(site) for name in names if ".so" in name} if missing else set()
    )
    return {library: user for library, user in missing.items() if library not in inside}


def parse_ldd(text: str) -> list[str]:
    """Names of libraries the loader did not find, those left out that an engine finds by itself or a driver brings."""
    found = re.findall(r"^\s*(\S+) => not found$", text, re.MULTILINE)
    return [name for name in found if not name.startswith(_NOT_OURS)]


def switch(path: str, target: str) -> None:
    """Let the link lead to the new environment, in one step."""
    scratch = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(scratch)
    os.symlink(os.path.relpath(target, os.path.dirname(path)), scratch)
    os.replace(scratch, path)


def _remove_unfinished(place: str, linked: str) -> None:
    """An environment that lost its marker in use is no leftover of a build."""
    folders = {os.path.realpath(folder): folder for folder in (os.path.join(place, name) for name in _folders(place))}
    unfinished = {
        real
        for real, folder in folders.items()
        if real != linked
        and stat.S_ISDIR(os.lstat(folder).st_mode)
        and not os.path.exists(os.path.join(folder, MARKER))
    }
    for folder in unfinished - in_use(unfinished):
        shutil.rmtree(folder, ignore_errors=True)


def in_use(folders: Iterable[str], proc: str = "/proc") -> set[str]:
    """Those of the folders that a process runs from: it has mapped programs or extension modules of them."""
    waiting = set(folders)
    venvs: set[str] = set()
    for name in os.listdir(proc) if waiting else ():
        if not name.isdigit():
            continue
        with (
            contextlib.suppress(OSError),
            open(os.path.join(proc, name, "maps"), encoding="utf-8", errors="replace") as maps,
        ):
            for line in maps:
                venvs |= {folder for folder in waiting if f" {folder}/" in line}
                waiting -= venvs
    return venvs


def prune(path: str, needed: Iterable[str], keep: int, proc: str = "/proc") -> list[str]:
    """Remove all environments but those needed, those that a process runs from, and the newest ``keep`` of the others;
    returns what was removed.

    The link says what the next start runs from, not what runs: several builds may come between two restarts of an
    engine, and it would lose what it loads late.
    """
    place, spared = environments(path), {os.path.realpath(folder) for folder in needed if folder}
    others = {os.path.realpath(folder): folder for folder in (os.path.join(place, name) for name in _folders(place))}
    others = {real: folder for real, folder in others.items() if real not in spared}
    running = in_use(others, proc)
    idle = sorted((real for real in others if real not in running), key=_made, reverse=True)
    removed = [others[real] for real in idle[keep:]]
    for folder in removed:
        shutil.rmtree(folder, ignore_errors=True)
    return removed


def _made(folder: str) -> float:
    """When an environment was completed."""
    with contextlib.suppress(OSError):
        return os.stat(os.path.join(folder, MARKER)).st_mtime
    return 0.0


def interesting(versions: Mapping[str, str]) -> dict[str, str]:
    """The versions people ask for."""
    names = (
        *(one.packages[0] for one in engines.ENGINES.values() if one.packages),
        "ray",
        "torch",
        "transformers",
        "nvidia-nccl-cu13",
        "nvidia-nccl-cu12",
        "flashinfer-python",
    )
    return {name: versions[canonical(name)] for name in names if canonical(name) in versions}
