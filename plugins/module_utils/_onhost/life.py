# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""What a host's rank shows while it owes an answer: CPU time, compilers, the GPU's utilization and power.

Read only then, for nothing of this is needed while tokens are counted. With executor mp each host's own program reads
it here and sends it to the head; with Ray the head asks the dashboard, whose agents measure the same.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .._lib import foreign
from . import container, patience, serving
from .engines import registry
from .engines.base import EngineOnHost

#: a step of a process's CPU clock is 10 ms: over a shorter time a quiet rank looks dead
WINDOW = 10.0
#: the same for what the dashboard tells: it collects every 15 s, so this is two of its intervals, and never three
RAY_WINDOW = 25.0
GPU_EVERY = 6.0
GROUPS = "/sys/fs/cgroup/system.slice"
_COMPILERS = frozenset(
    (
        "nvcc",
        "cicc",
        "ptxas",
        "fatbinary",
        "nvlink",
        "ninja",
        "cc1",
        "cc1plus",
        "c++",
        "g++",
        "gcc",
        "cc",
        "clang",
        "ld",
    )
)
#: the title of a rank that Ray started, as far as the kernel keeps it
_RAY_RANK = "ray::RayWorker"
_NVIDIA_SMI = ["nvidia-smi", "--query-gpu=utilization.gpu,power.draw", "--format=csv,noheader,nounits"]


@dataclasses.dataclass(frozen=True)
class Process:
    pid: int
    name: str
    state: str
    session: int
    cpu_seconds: float


def read_process(pid: str, proc: str = "/proc") -> Process | None:
    """One line of /proc; None where the process has ended meanwhile."""
    try:
        with open(os.path.join(proc, pid, "stat"), encoding="utf-8", errors="replace") as stream:
            text = stream.read()
    except OSError:
        return None
    # the name stands in brackets and may hold any character
    name, _bracket, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    try:
        ticks = int(fields[11]) + int(fields[12])
        return Process(int(pid), name, fields[0], int(fields[3]), ticks / os.sysconf("SC_CLK_TCK"))
    except (IndexError, ValueError):
        return None


def of_session(session: int, proc: str = "/proc") -> list[Process]:
    """A rank and all that it started."""
    try:
        pids = [name for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return []
    found = (read_process(pid, proc) for pid in pids)
    return [one for one in found if one is not None and one.session == session]


def of_container(service: str, run_dir: str = container.RUN_DIR, proc: str = "/proc") -> list[Process]:
    """What runs in a unit's container: no child of the unit's, whose own is Docker's client, which idles."""
    try:
        with open(container.cid_path(service, run_dir), encoding="ascii", errors="replace") as stream:
            cid = stream.read(100).strip()
        pids = container.processes_of(cid, proc) if len(cid) >= 12 else []
    except OSError:
        return []
    found = (read_process(str(pid), proc) for pid in pids)
    return [one for one in found if one is not None]


def in_the_kernel(units: Iterable[str], groups: str = GROUPS, proc: str = "/proc") -> dict[int, str]:
    """Processes of these units that cannot be interrupted now, not even by SIGKILL: process id -> name.

    Every write looks like that for a moment. One that stays so waits for a disk, a file server or a driver.
    """
    pids: set[str] = set()
    for unit in units:
        for folder, _folders, _files in os.walk(os.path.join(groups, unit)):
            with contextlib.suppress(OSError), open(os.path.join(folder, "cgroup.procs"), encoding="ascii") as stream:
                pids.update(stream.read().split())
    found = (read_process(pid, proc) for pid in pids)
    return {one.pid: one.name for one in found if one is not None and one.state == "D"}


def read_gpus(text: str) -> tuple[float | None, float | None]:
    """Utilization and power of the busiest GPU, as nvidia-smi prints them; ``[N/A]`` is None."""
    rows: list[tuple[float, float | None]] = []
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == 2 and _number(words[0]) is not None:
            rows.append((_number(words[0]) or 0.0, _number(words[1])))
    return max(rows, key=lambda row: (row[0], row[1] or 0.0)) if rows else (None, None)


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def of_host(proc: str = "/proc") -> tuple[int, bool]:
    """Compilers of this host, and whether a process of an engine is stopped: Ray's dashboard knows neither."""
    with contextlib.suppress(OSError):
        found = [read_process(name, proc) for name in os.listdir(proc) if name.isdigit()]
        known = [one for one in found if one is not None]
        stopped = any(
            one.state in "Tt" and (one.name.startswith(_RAY_RANK) or registry.any_is_ours(one.name)) for one in known
        )
        return sum(one.name in _COMPILERS for one in known), stopped
    return 0, False


class Sampler:
    """The signs of one host's rank from one call to the next, for the program that started it."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        runner: serving.Runner = serving.run,
        engine: EngineOnHost = registry.DEFAULT,
    ) -> None:
        self.clock = clock
        self.runner = runner
        self.engine = engine
        self.before: tuple[float, dict[int, float], int] | None = None
        self.cores: float | None = None
        self.spoke = False
        self.gpu_at = float("-inf")
        self.gpu: tuple[float | None, float | None] = (None, None)

    def forget(self) -> None:
        """What was seen when another answer was owed says nothing about the next one."""
        self.before = None

    def sample(self, processes: Sequence[Process], lines: int) -> patience.Signs:
        """``processes``: the rank's own; none where they cannot be told. ``lines``: how many it has logged in all.

        Not for an event loop: nvidia-smi may take seconds.
        """
        now = self.clock()
        ranks = [process for process in processes if process.name.startswith(self.engine.rank_titles)]
        spent = {process.pid: process.cpu_seconds for process in ranks or processes}
        if self.before is None or now - self.before[0] > 6 * WINDOW:
            self.before, self.cores, self.spoke = (now, spent, lines), None, False
        elif now - self.before[0] >= WINDOW:
            self.cores = cores(self.before[1], spent, now - self.before[0])
            self.spoke = lines != self.before[2]
            self.before = (now, spent, lines)
        if now - self.gpu_at >= GPU_EVERY:
            self.gpu_at = now
            status, out, _err = self.runner(_NVIDIA_SMI, 5)
            self.gpu = read_gpus(out) if status == 0 else (None, None)
        return patience.Signs(
            self.cores if processes else None,
            any(process.state in "Tt" for process in processes),
            *self.gpu,
            sum(process.name in _COMPILERS for process in processes),
            self.spoke,
        )


def cores(before: Mapping[int, float], now: Mapping[int, float], seconds: float) -> float:
    """CPU time by second; a process that ended takes what it used with it."""
    return sum(max(0.0, spent - before.get(pid, 0.0)) for pid, spent in now.items()) / max(seconds, 0.001)


class RaySampler:
    """The same from the dashboard, which knows the processes that Ray started: the ranks, but not their compilers."""

    def __init__(self) -> None:
        #: by host: when its agent measured, and CPU seconds by process, back to the beginning of the newest window
        self.kept: dict[str, list[tuple[float, dict[int, float]]]] = {}

    def read(self, host: str, answer: str) -> patience.Signs:
        """Of the answer to ``/nodes/ID``; agents measure every 5 s, and the dashboard collects every 15."""
        try:
            detail = foreign.parse_object(answer, serving.ANSWER_LIMIT)["data"]["detail"]
            workers = list(detail.get("workers") or [])
            gpus = list(detail.get("gpus") or [])
            # by the agent's clock: one that measures no more says nothing
            now = float(detail["now"])
            spent = dict(_ray_ranks(workers))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            return patience.Signs()
        kept = self.kept.setdefault(host, [])
        if kept and not 0 <= now - kept[-1][0] <= 12 * WINDOW:
            kept.clear()
        if not kept or now > kept[-1][0]:
            kept.append((now, spent))
        # every new measurement ends a window: one that began before a rank stopped must not delay the next
        while len(kept) > 1 and now - kept[1][0] >= RAY_WINDOW:
            del kept[0]
        passed = now - kept[0][0]
        used = cores(kept[0][1], spent, passed) if spent and passed >= RAY_WINDOW else None
        rows = [(row.get("utilizationGpu"), row.get("powerMw")) for row in gpus if isinstance(row, Mapping)]
        text = "\n".join(
            f"{use},{power / 1000 if isinstance(power, (int, float)) else '[N/A]'}"
            for use, power in rows
            if use is not None
        )
        return patience.Signs(used, None, *read_gpus(text))


def _ray_ranks(workers: Iterable[Any]) -> Iterable[tuple[int, float]]:
    """CPU seconds of the engine's workers by process id; idle workers of Ray are none."""
    for worker in workers:
        if not isinstance(worker, Mapping) or "RayWorker" not in str((worker.get("cmdline") or [""])[0]):
            continue
        times = worker.get("cpuTimes")
        values = list(times.values()) if isinstance(times, Mapping) else list(times or [])
        yield int(worker.get("pid") or 0), sum(float(value) for value in values[:2])
