# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running commands, locks and small file helpers: everything that touches the machine goes through here."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path


class LabError(Exception):
    """Something the user can read and act on; printed as one line, exit status 2."""


def say(text: str) -> None:
    """One progress line. stderr, so that the output of `exec` and `ssh` stays clean."""
    print(f"sparklab: {text}", file=sys.stderr, flush=True)


def words(text: str) -> list[str]:
    """A list written as prose."""
    return text.split()


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    check: bool = True,
    stdin: str | None = None,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = 120,
) -> subprocess.CompletedProcess[str]:
    """Run a command, capture its output; on failure the error carries its last lines."""
    parts = [os.fspath(part) for part in argv]
    try:
        done = subprocess.run(
            parts,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            env={**os.environ, **(env or {}), "LC_ALL": "C.UTF-8"},
            cwd=cwd,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as exc:
        raise LabError(f"the command {parts[0]} is needed and was not found") from exc
    except subprocess.TimeoutExpired as exc:
        raise LabError(f"{' '.join(parts)}: no end after {timeout} s") from exc
    if check and done.returncode:
        tail = " | ".join((done.stderr or done.stdout).strip().splitlines()[-4:])
        raise LabError(f"{' '.join(parts)}: exit {done.returncode}: {tail}")
    return done


def ok(argv: Sequence[str | os.PathLike[str]]) -> bool:
    """Whether a command succeeds; its output does not matter."""
    return run(argv, check=False).returncode == 0


def wait_until(condition: Callable[[], object], seconds: float, every: float = 0.05) -> bool:
    """Poll until the condition holds; False when the time is over."""
    end = time.monotonic() + seconds
    while True:
        if condition():
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(every)


@contextlib.contextmanager
def locked(path: Path, *, waiting: str | None = None) -> Iterator[None]:
    """Hold an exclusive lock on a file; says what it waits for if somebody else has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                say(waiting)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file under its final name only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as handle:
        handle.write(text)
        os.fchmod(handle.fileno(), mode)
    scratch.replace(path)


def mounts_below(path: Path) -> list[str]:
    """Mount points at or below a path, innermost first."""
    prefix = os.path.realpath(path)
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4].encode().decode("unicode_escape")
        if point == prefix or point.startswith(prefix + "/"):
            found.append(point)
    return sorted(found, key=len, reverse=True)
