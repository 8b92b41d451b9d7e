# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, as a unit of its own:
# pylint: disable=ansible-bad-function
"""What a host's ranks did when the engine hung, kept before the restart takes it away.

The watchdog wants it, the hosts' own ``sparkthor-hang.path`` sees that and starts this program, as root with the one
capability that reads other users' processes.  The watchdog goes on when all hosts have answered, or after
:data:`DEADLINE`: a restart is never late by more.  Records lie in :data:`FOLDER`, for the doctor and the capture.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from .._lib import command, files, mask
from .._lib.deadline import Deadline, ask_until
from . import gpu_state, life, places, serving
from .engines import registry

#: starts this program when one of the first two files below is written
UNIT = "/etc/systemd/system/sparkthor-hang.path"
#: the watchdog writes it on the head
WANTED = f"{places.RUN}/hang-wanted"
#: the serving user's programs write it on the other hosts
REQUEST = f"{places.RUN}/requests/hang"
#: changed when this host has been read
TAKEN = f"{places.RUN}/hang-taken"
#: changed on the head when the other hosts have answered
OTHERS = f"{places.RUN}/requests/hang-others"
#: records, newest last by name; root's alone
FOLDER = "/var/lib/sparkthor-hangs"
KEPT = 5
#: seconds that a restart waits for the records of all hosts, and that one host has for its own
DEADLINE = 8.0
BUDGET = 4.0
#: NCCL's RAS service (NCCL 2.24 and newer) of any rank on this host tells of all ranks of the job
RAS = ("127.0.0.1", 28028)
PROCESSES, THREADS, LINES = 16, 64, 120
#: characters of one stack, of RAS's answer and of a journal
STACK, REPORT, LOG = 20_000, 40_000, 40_000
#: the title of a rank that Ray started
_RAY_RANK = "ray::RayWorker"


@dataclasses.dataclass(frozen=True)
class Paths:
    """Where a host keeps what concerns a hang; a test has others."""

    wanted: str = WANTED
    request: str = REQUEST
    taken: str = TAKEN
    others: str = OTHERS
    folder: str = FOLDER


def stamp(path: str) -> int:
    """When the file was written, in nanoseconds; 0 where it is absent."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def wait(before: Mapping[str, int], seconds: float) -> list[str]:
    """Until each of these files has another stamp than ``before``; those that have not after ``seconds``."""
    return ask_until(
        lambda: [path for path, old in before.items() if stamp(path) == old], lambda late: not late, seconds, 0.1
    )


# ---------------------------------------------------------------------------------------------------------------
# What is read
# ---------------------------------------------------------------------------------------------------------------


def engine_title(command_line: str) -> str:
    """What to call a process of an engine, by its words joined by NUL; empty for one that is none."""
    first = command_line.split("\0", 1)[0].strip()
    if first.startswith(_RAY_RANK):
        return first
    # titles that processes give themselves, and names of programs
    if registry.any_is_ours(name := first.rpartition("/")[2]):
        return name
    return next((one.program for one in registry.ENGINES.values() if one.command_line.search(command_line)), "")


def _is_rank(title: str) -> bool:
    return title.startswith((_RAY_RANK, *(name for one in registry.ENGINES.values() for name in one.rank_titles)))


def _text(path: str, limit: int = 4000) -> str:
    try:
        with open(path, "rb") as stream:
            return stream.read(limit).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def why(path: str) -> str:
    """What stands in a request, of which there may be one of the serving user's: neither a link nor a pipe is one."""
    try:
        return files.read_plain(path, 300).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def threads(pid: int, proc: str = "/proc") -> list[dict[str, Any]]:
    """What the threads of a process wait for, alike ones together: ``name``, ``state``, ``waits_in``, ``count``."""
    folder = os.path.join(proc, str(pid), "task")
    stacks: collections.Counter[tuple[str, str, str]] = collections.Counter()
    with contextlib.suppress(OSError):
        for tid in sorted(os.listdir(folder), key=int)[:1024]:
            one = life.read_process(tid, folder)
            if one is not None:
                where = _text(os.path.join(folder, tid, "wchan"))
                stacks[one.name, one.state, "" if where == "0" else where] += 1
    return [
        {"name": name, "state": state, "waits_in": where, "count": count}
        for (name, state, where), count in stacks.most_common(THREADS)
    ]


def trusted(path: str) -> bool:
    """Whether root may run a program: root's own, and nobody else's to write, its folders included."""
    path = os.path.realpath(path)
    while True:
        try:
            state = os.stat(path)
        except OSError:
            return False
        if state.st_uid != 0 or (state.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not state.st_mode & stat.S_ISVTX):
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def ras(seconds: float, address: tuple[str, int] = RAS) -> str:
    """NCCL's own report on all ranks of the job; empty where no rank of this host answers."""
    deadline = Deadline(seconds)
    parts: list[bytes] = []
    try:
        with socket.create_connection(address, deadline.left()) as link:
            link.sendall(b"client protocol 2\n")
            link.settimeout(deadline.left())
            if not link.recv(200).startswith(b"SERVER PROTOCOL"):
                return ""
            # one that waits longer for silent ranks would answer after the restart
            link.sendall(b"timeout 2\nverbose status\n")
            while sum(map(len, parts)) < REPORT:
                link.settimeout(deadline.left())
                if not (part := link.recv(65536)):
                    break
                parts.append(part)
    except OSError:
        pass
    return b"".join(parts).decode("utf-8", "replace").removeprefix("OK\n").strip()[:REPORT]


class Reader:
    """Reads one host; all that takes time at once, and no longer than ``budget`` seconds in all."""

    def __init__(
        self,
        run: Callable[[Sequence[str], float], tuple[int, str, str]] = command.run_limited,
        proc: str = "/proc",
        py_spy: str = "",
        budget: float = BUDGET,
        ask_nccl: Callable[[float], str] = ras,
    ) -> None:
        self.run = run
        self.proc = proc
        self.py_spy = py_spy
        self.budget = budget
        self.ask_nccl = ask_nccl

    def processes(self) -> list[dict[str, Any]]:
        """The engine's processes of this host, ranks first."""
        records = []
        with contextlib.suppress(OSError):
            for pid in sorted((int(name) for name in os.listdir(self.proc) if name.isdigit()), reverse=True):
                title = engine_title(_text(os.path.join(self.proc, str(pid), "cmdline")))
                one = life.read_process(str(pid), self.proc) if title else None
                if one is not None:
                    entry = {"pid": pid, "title": title, "state": one.state, "cpu_seconds": one.cpu_seconds}
                    records.append({**entry, "threads": threads(pid, self.proc)})
        records.sort(key=lambda entry: (not _is_rank(str(entry["title"])), entry["pid"]))
        return records[:PROCESSES]

    def _stack(self, pid: int) -> str:
        # non-blocking: a process that is stopped by us while it hangs in a driver could stay so
        rc, out, err = self.run([self.py_spy, "dump", "--nonblocking", "--pid", str(pid)], self.budget * 0.75)
        return out[:STACK] if rc == 0 else f"{os.path.basename(self.py_spy)}: {err.strip()[:300]}"

    def _log(self) -> str:
        argv = ["journalctl", "--no-pager", "--quiet", "--boot", "--output=short-iso", f"--lines={LINES}"]
        units = ["--unit=sparkthor-ray.service", "--unit=sparkthor-vllm*.service"]
        rc, out, _err = self.run([*argv, *units], self.budget * 0.75)
        return out[-LOG:] if rc == 0 else ""

    def read(self) -> dict[str, Any]:
        """``processes`` with their threads and, where py-spy is there, stacks; ``nccl``, ``gpus``, ``log``.

        What did not answer in time stands in ``late``.
        """
        begun = time.monotonic()
        record: dict[str, Any] = {"processes": self.processes(), "nccl": "", "gpus": [], "log": ""}
        jobs: dict[str, Callable[[], Any]] = {
            "nccl": lambda: self.ask_nccl(self.budget * 0.75),
            "gpus": lambda: gpu_state.read(lambda argv: self.run(argv, self.budget * 0.75)),
            "log": self._log,
        }
        if self.py_spy:
            for entry in record["processes"]:
                jobs[f"stack of {entry['pid']}"] = partial(self._stack, int(entry["pid"]))
        answers: dict[str, Any] = {}

        def answer(name: str, job: Callable[[], Any]) -> None:
            answers[name] = job()

        started = [threading.Thread(target=answer, args=one, daemon=True) for one in jobs.items()]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join(max(0.0, begun + self.budget - time.monotonic()))
        for name, value in list(answers.items()):
            pid = name.removeprefix("stack of ")
            if pid == name:
                record[name] = value
            else:
                next(entry for entry in record["processes"] if str(entry["pid"]) == pid)["stack"] = value
        record["late"] = sorted(set(jobs) - set(answers))
        record["seconds"] = round(time.monotonic() - begun, 2)
        return record


def keep(record: Mapping[str, Any], folder: str = FOLDER) -> str:
    """Write a record for root alone and remove all but the newest :data:`KEPT`. Its path; raises ``OSError``."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, time.strftime("%Y%m%dT%H%M%SZ.json", time.gmtime(float(record["taken"]))))
    files.write_atomic(path, json.dumps(record, indent=1) + "\n", mode=0o600)
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".json"))[:-KEPT]:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))
    return path


def found_py_spy(given: Iterable[str]) -> str:
    """The first of these that root may run; empty where none is."""
    return next((path for path in given if path and os.access(path, os.X_OK) and trusted(path)), "")


def main(argv: list[str] | None = None, paths: Paths | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sparkthor_host hang", description="Keep what this host's ranks do now.")
    parser.add_argument("--py-spy", action="append", default=[], help="a program that shows Python's stacks")
    given = parser.parse_args(argv)
    places = paths or Paths()
    asked = max((places.wanted, places.request), key=stamp)
    reason = why(asked) if stamp(asked) else ""
    wall = time.time()
    record = Reader(py_spy=found_py_spy([*given.py_spy, "/usr/local/bin/py-spy", "/usr/bin/py-spy"])).read()
    record = {"version": 1, "taken": round(wall, 3), "reason": reason, **record}
    status = 0
    try:
        # what looks like a secret; whoever takes a record off the host knows this host's own as well
        print(f"kept {keep(mask.masked(record, []), places.folder)}", flush=True)
    except OSError as error:
        print(f"{places.folder} cannot be written: {error.strerror}", file=sys.stderr, flush=True)
        status = 1
    # whoever waits for it must not wait for what will not come
    with contextlib.suppress(OSError):
        serving.write_file(places.taken, f"{wall}\n")
    return status
