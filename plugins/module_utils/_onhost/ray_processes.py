# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""Processes of Ray on this host, and who listens on its ports."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .._lib.deadline import wait_until
from .places import SERVICE

#: words on the command line of Ray's own processes
RAY_WORDS = (
    *("/raylet/raylet", "/gcs/gcs_server", "ray/_private/log_monitor.py", "ray/dashboard/", "ray::", "ray start"),
    "ray.util.client.server",
)


@dataclass(frozen=True)
class RayProcess:
    pid: int
    uid: int
    command: str
    cgroup: str
    files: tuple[str, ...] = ()


def read_processes(proc: str = "/proc") -> list[RayProcess]:
    processes = []
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        base = os.path.join(proc, name)
        try:
            uid = os.stat(base).st_uid
            with open(os.path.join(base, "cmdline"), "rb") as stream:
                command = stream.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            with open(os.path.join(base, "cgroup"), encoding="utf-8", errors="replace") as stream:
                cgroup = stream.read().strip()
        except OSError:
            continue
        files = []
        with contextlib.suppress(OSError):
            for handle in os.listdir(os.path.join(base, "fd")):
                with contextlib.suppress(OSError):
                    files.append(os.readlink(os.path.join(base, "fd", handle)))
        processes.append(RayProcess(int(name), uid, command, cgroup, tuple(files)))
    return processes


def leftovers(processes: Iterable[RayProcess], temp_dir: str, uid: int, own_pid: int) -> list[RayProcess]:
    """Ray processes of our user that use our folder and belong to no unit of ours.

    Those of the unit itself died with its control group; what is left was started by hand or by a container, and
    holds our ports.
    """
    below = temp_dir.rstrip("/") + "/"
    left = []
    for process in processes:
        if process.pid == own_pid or process.uid != uid or "/sparkthor-" in process.cgroup:
            continue
        if not any(word in process.command for word in RAY_WORDS):
            continue
        if below in process.command or any(path.startswith(below) for path in process.files):
            left.append(process)
    return left


def owner_of(temp_dir: str) -> int:
    """Whose Ray it is: where it runs in a container this is root's program, and Ray another user's."""
    if os.getuid() == 0:
        with contextlib.suppress(OSError):
            return os.stat(os.path.dirname(temp_dir)).st_uid
    return os.getuid()


def end_processes(processes: Sequence[RayProcess], patience: float = 3.0) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)
        wait_until(lambda: not any(os.path.exists(f"/proc/{p.pid}") for p in processes), patience, 0.05)


@dataclass(frozen=True)
class Listener:
    port: int
    pid: int
    command: str


def listening_inodes(tables: Iterable[str]) -> dict[str, int]:
    """Port by inode of the socket, of all that listen; ``tables`` are the texts of ``/proc/net/tcp`` and ``tcp6``."""
    inodes = {}
    for table in tables:
        for line in table.splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == "0A":
                inodes[words[9]] = int(words[1].rpartition(":")[2], 16)
    return inodes


def read_listeners(ports: Iterable[int], processes: Iterable[RayProcess], proc: str = "/proc") -> list[Listener]:
    """Who listens on these ports, on whatever address; a port without a visible owner has the process id 0."""
    wanted = set(ports)
    tables = []
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(os.path.join(proc, "net", name), encoding="ascii") as stream:
            tables.append(stream.read())
    inodes = {inode: port for inode, port in listening_inodes(tables).items() if port in wanted}
    listeners: dict[int, Listener] = {}
    for process in processes if inodes else ():
        for path in process.files:
            port = inodes.get(path[8:-1]) if path.startswith("socket:[") else None
            if port is not None:
                listeners.setdefault(port, Listener(port, process.pid, process.command))
    for port in set(inodes.values()) - set(listeners):
        listeners[port] = Listener(port, 0, "")
    return [listeners[port] for port in sorted(listeners)]


#: control groups of what a restart of Ray ends before it begins anew
OWN_UNITS = ("/sparkthor-ray.service", "/sparkthor-vllm.service")
#: where the program of the containers keeps the ids of the containers that these units run
CONTAINERS = "/run/sparkthor/container"


def own_groups(folder: str = CONTAINERS) -> tuple[str, ...]:
    """Words in the control groups of our units' processes.

    What runs in a container is not in the group of its unit but in one that Docker named by the container's id: an
    engine there that Ray gave a port of the worker range would look like anybody's program.
    """
    groups = list(OWN_UNITS)
    for service in ("ray", SERVICE):
        with (
            contextlib.suppress(OSError),
            open(os.path.join(folder, f"{service}.cid"), encoding="ascii", errors="replace") as stream,
        ):
            container = stream.read().strip()
            # half an id could be part of another's
            if len(container) >= 12:
                groups.append(container)
    return tuple(groups)


def ours(process: RayProcess, temp_dir: str, groups: Sequence[str] = OWN_UNITS) -> bool:
    """Of our units, or a Ray of ours that is in no unit: in a container, or left behind by a dead one."""
    if any(group in process.cgroup for group in groups):
        return True
    below = temp_dir.rstrip("/") + "/"
    return any(word in process.command for word in RAY_WORDS) and (
        below in process.command or any(path.startswith(below) for path in process.files)
    )


def runs_here(processes: Iterable[RayProcess], temp_dir: str) -> bool:
    return any("/raylet/raylet" in process.command and ours(process, temp_dir) for process in processes)
