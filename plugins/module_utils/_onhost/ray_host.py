# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in Ray's unit:
# pylint: disable=ansible-bad-function
"""What a Ray node does for itself, without Ansible: the gate, the steps before a start, the check before the first one.

Installed beside ``_ray.py`` on every host.  Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

try:
    import _ray
except ImportError:  # as a module_util of the collection
    from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import ray as _ray
try:  # comes with the serving role: a host that it never ran on was never a head that served
    import _successor
except ImportError:
    _successor = None  # type: ignore[assignment]

RUN_DIR = "/run/sparkthor/ray"
KEPT_SESSIONS = 3
#: starts within this many seconds of one another count as one series of failures
SERIES_SECONDS = 120
MAXIMUM_DELAY = 30
#: "try again later": not 1, which the unit takes for an orderly end because Ray itself ends with it
NOT_NOW = 75


def say(text: str) -> None:
    print(text, flush=True)


# ---------------------------------------------------------------------------------------------------------------
# Gate
# ---------------------------------------------------------------------------------------------------------------


def gate(argv: Sequence[str] | None = None) -> int:
    """0: the cluster is whole; 1: it is not, and one line says why; 2: the question could not be asked."""
    parser = argparse.ArgumentParser(
        prog="sparkthor-ray-gate",
        description="Is the Ray cluster whole: every expected node alive on its control address, with all its GPUs?",
    )
    parser.add_argument("--config", default=_ray.CONFIG_PATH, help="expected cluster (default: %(default)s)")
    parser.add_argument("--wait", type=float, default=0, metavar="SECONDS", help="ask again until then")
    parser.add_argument("--timeout", type=float, default=5, metavar="SECONDS", help="limit of one question")
    parser.add_argument("--source", choices=("auto", "dashboard", "engine"), default="auto")
    parser.add_argument("--json", action="store_true", help="print the whole answer instead of one line")
    parser.add_argument(
        "--without", metavar="FILE", help="JSON of the watchdog: hosts that the group is started without, if it exists"
    )
    options = parser.parse_args(argv)
    try:
        config = without(_ray.load_config(options.config), options.without or "")
    except _ray.RayConfigError as error:
        say(json.dumps({"healthy": False, "reason": str(error)}) if options.json else str(error))
        return 2
    result = _ray.wait_healthy(config, options.wait, options.timeout, options.source)
    say(json.dumps(result, indent=2) if options.json else result["reason"])
    return 0 if result["healthy"] else 1


def without(config: _ray.Config, path: str) -> _ray.Config:
    """The cluster that is expected when the watchdog serves without some hosts (degraded mode)."""
    try:
        with open(path, encoding="utf-8") as stream:
            left_out = json.load(stream)["without"]
        nodes = tuple(node for node in config.nodes if node.address not in left_out or node.role == "head")
    except (OSError, ValueError, KeyError, TypeError):
        return config
    return dataclasses.replace(config, nodes=nodes)


# ---------------------------------------------------------------------------------------------------------------
# Before a start
# ---------------------------------------------------------------------------------------------------------------


def _pair(values: Sequence[Any]) -> tuple[int, int]:
    low, high = values
    return int(low), int(high)


@dataclass(frozen=True)
class NodeSettings:
    """The part of ray.json that only this host's own start needs."""

    temp_dir: str
    ports: Mapping[str, int]
    worker_ports: tuple[int, int] = _ray.WORKER_PORTS
    object_store: int = 0

    @classmethod
    def load(cls, path: str) -> NodeSettings:
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream)
        return cls(
            temp_dir=str(data.get("temp_dir") or "/var/lib/sparkthor/ray"),
            ports={key: int(value) for key, value in (data.get("ports") or {}).items()},
            worker_ports=_pair(data.get("worker_ports") or _ray.WORKER_PORTS),
            object_store=int(data.get("object_store_memory") or 0),
        )

    def own_ports(self, head: bool) -> list[tuple[int, str]]:
        return [
            (int(self.ports.get(port.key, port.default)), port.key)
            for port in _ray.PORTS
            if head or port.where == "all"
        ]


def series_delay(starts: Sequence[float], now: float) -> float:
    """Seconds to wait before this start.

    systemd's own back-off counts restarts since the last start by hand, so a node that lost its link five times in a
    year would wait the longest delay each time.  Here only starts shortly after one another count.
    """
    series, newer = 0, now
    for moment in sorted(starts, reverse=True):
        if newer - moment > SERIES_SECONDS:
            break
        series += 1
        newer = moment
    return 0.0 if series < 4 else float(min(MAXIMUM_DELAY, 2 ** (series - 3)))


def note_start(run_dir: str, now: float) -> float:
    """Remember this start; how long to wait before it."""
    path = os.path.join(run_dir, "starts")
    starts: list[float] = []
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as stream:
        starts = [float(line) for line in stream if line.strip()]
    starts = [moment for moment in starts if moment <= now][-12:]
    delay = series_delay(starts, now)
    with contextlib.suppress(OSError), open(path, "w", encoding="ascii") as stream:
        stream.writelines(f"{moment:.1f}\n" for moment in [*starts, now + delay])
    return delay


#: words on the command line of Ray's own processes
RAY_WORDS = (
    *("/raylet/raylet", "/gcs/gcs_server", "ray/_private/log_monitor.py", "ray/dashboard/", "ray::", "ray start"),
    "ray.util.client.server",
)


@dataclass(frozen=True)
class Process:
    pid: int
    uid: int
    command: str
    cgroup: str
    files: tuple[str, ...] = ()


def read_processes(proc: str = "/proc") -> list[Process]:
    found = []
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
        found.append(Process(int(name), uid, command, cgroup, tuple(files)))
    return found


def leftovers(processes: Iterable[Process], temp_dir: str, uid: int, own_pid: int) -> list[Process]:
    """Ray processes of our user that use our folder and belong to no unit of ours.

    Those of the unit itself died with its control group; what is left was started by hand or by a container, and
    holds our ports.
    """
    below = temp_dir.rstrip("/") + "/"
    found = []
    for process in processes:
        if process.pid == own_pid or process.uid != uid or "/sparkthor-" in process.cgroup:
            continue
        if not any(word in process.command for word in RAY_WORDS):
            continue
        if below in process.command or any(path.startswith(below) for path in process.files):
            found.append(process)
    return found


def owner_of(temp_dir: str) -> int:
    """Whose Ray it is: where it runs in a container this is root's program, and Ray another user's."""
    if os.getuid() == 0:
        with contextlib.suppress(OSError):
            return os.stat(os.path.dirname(temp_dir)).st_uid
    return os.getuid()


def end_processes(processes: Sequence[Process], patience: float = 3.0) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and any(os.path.exists(f"/proc/{p.pid}") for p in processes):
            time.sleep(0.05)


def old_sessions(names: Iterable[str], keep: int = KEPT_SESSIONS) -> list[str]:
    """Session folders to remove; their names sort by time.  One is left by every start of the head."""
    sessions = sorted(name for name in names if name.startswith("session_") and name != "session_latest")
    return sessions[: max(0, len(sessions) - keep)]


def clean_temp_dir(temp_dir: str) -> list[str]:
    removed = []
    with contextlib.suppress(FileNotFoundError):
        for name in old_sessions(os.listdir(temp_dir)):
            shutil.rmtree(os.path.join(temp_dir, name), ignore_errors=True)
            removed.append(name)
        # Ray's note of "the cluster on this machine"; a client without an address would follow it to a dead one
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(temp_dir, "ray_current_cluster"))
    return removed


def is_local(address: str) -> bool:
    with contextlib.closing(socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)) as sock:
        try:
            sock.bind((address, 0))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return False
            raise
    return True


def port_taken(port: int) -> bool:
    """Somebody listens on it, on whatever address."""
    with contextlib.closing(socket.socket(socket.AF_INET)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("0.0.0.0", port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


@dataclass(frozen=True)
class Listener:
    port: int
    pid: int
    command: str


def listening_inodes(tables: Iterable[str]) -> dict[str, int]:
    """Port by inode of the socket, of all that listen; ``tables`` are the texts of ``/proc/net/tcp`` and ``tcp6``."""
    found = {}
    for table in tables:
        for line in table.splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == "0A":
                found[words[9]] = int(words[1].rpartition(":")[2], 16)
    return found


def read_listeners(ports: Iterable[int], processes: Iterable[Process], proc: str = "/proc") -> list[Listener]:
    """Who listens on these ports, on whatever address; a port without a visible owner has the process id 0."""
    wanted = set(ports)
    tables = []
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(os.path.join(proc, "net", name), encoding="ascii") as stream:
            tables.append(stream.read())
    inodes = {inode: port for inode, port in listening_inodes(tables).items() if port in wanted}
    found: dict[int, Listener] = {}
    for process in processes if inodes else ():
        for path in process.files:
            port = inodes.get(path[8:-1]) if path.startswith("socket:[") else None
            if port is not None:
                found.setdefault(port, Listener(port, process.pid, process.command))
    for port in set(inodes.values()) - set(found):
        found[port] = Listener(port, 0, "")
    return [found[port] for port in sorted(found)]


#: control groups of what a restart of Ray ends before it begins anew
OWN_UNITS = ("/sparkthor-ray.service", "/sparkthor-vllm.service")
#: where sparkthor-container keeps the ids of the containers that these units run
CONTAINERS = "/run/sparkthor/container"


def own_groups(folder: str = CONTAINERS) -> tuple[str, ...]:
    """Words in the control groups of our units' processes.

    What runs in a container is not in the group of its unit but in one that Docker named by the container's id: an
    engine there that Ray gave a port of the worker range would look like anybody's program.
    """
    found = list(OWN_UNITS)
    for service in ("ray", "vllm"):
        with (
            contextlib.suppress(OSError),
            open(os.path.join(folder, f"{service}.cid"), encoding="ascii", errors="replace") as stream,
        ):
            container = stream.read().strip()
            # half an id could be part of another's
            if len(container) >= 12:
                found.append(container)
    return tuple(found)


def ours(process: Process, temp_dir: str, groups: Sequence[str] = OWN_UNITS) -> bool:
    """Of our units, or a Ray of ours that is in no unit: in a container, or left behind by a dead one."""
    if any(group in process.cgroup for group in groups):
        return True
    below = temp_dir.rstrip("/") + "/"
    return any(word in process.command for word in RAY_WORDS) and (
        below in process.command or any(path.startswith(below) for path in process.files)
    )


def runs_here(processes: Iterable[Process], temp_dir: str) -> bool:
    return any("/raylet/raylet" in process.command and ours(process, temp_dir) for process in processes)


def port_problems(settings: NodeSettings, head: bool, listeners: Iterable[Listener]) -> list[str]:
    """Ports that a program holds which no restart of Ray would end."""
    names = dict(settings.own_ports(head))
    low, high = settings.worker_ports
    problems = []
    for listener in listeners:
        if listener.port in names:
            what, where = f"ray_node_ports.{names[listener.port]}", "give Ray another port"
        elif low <= listener.port <= high:
            what, where = f"the worker range {low}-{high}", "move ray_node_worker_port_min/max"
        else:
            continue
        who = f"{listener.command[:80]} (process {listener.pid})" if listener.pid else "a program that cannot be seen"
        problems.append(f"port {listener.port} ({what}) is taken by {who}: stop it, or {where}")
    return problems


def available_memory(path: str = "/proc/meminfo") -> int:
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as stream:
        for line in stream:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


def wait_until(
    good: Callable[[], bool], seconds: float, interval: float = 0.5, sleep: Callable[[float], None] = time.sleep
) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        if good():
            return True
        if time.monotonic() + interval > deadline:
            return False
        sleep(interval)


def wait_for_head(
    config: _ray.Config,
    ask: Callable[[], _ray.Probe] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    tell: Callable[[str], None] = say,
) -> None:
    """For ever: a connection attempt a second costs nothing, a start of Ray that fails costs seconds of CPU."""
    question = ask or (lambda: _ray.probe_tcp("gcs", config.head_address, config.gcs_port, 2.0))
    said, last = None, ""
    while True:
        probe = question()
        if probe.ok:
            return
        if probe.status != last or said is None or clock() - said >= 60:
            tell(f"waiting for the head's GCS at {config.head_address}:{config.gcs_port}: {probe.status}")
            said, last = clock(), probe.status
        sleep(1.0)


def prepare(argv: Sequence[str] | None = None) -> int:
    """Runs before ``ray start``.  Status 0: start; anything else: systemd tries again."""
    parser = argparse.ArgumentParser(prog="sparkthor-ray-prepare", description="Steps before a start of Ray.")
    parser.add_argument("--config", default=_ray.CONFIG_PATH)
    parser.add_argument("--run-dir", default=RUN_DIR)
    parser.add_argument("--check", action="store_true", help="change nothing; print what stands against a start")
    options = parser.parse_args(argv)
    try:
        config = _ray.load_config(options.config)
        settings = NodeSettings.load(options.config)
    except (_ray.RayConfigError, OSError, ValueError) as error:
        say(str(error))
        return NOT_NOW
    if options.check:
        report = check(config, settings)
        say(json.dumps(report))
        return 1 if report["problems"] else 0
    delay = note_start(options.run_dir, time.time())
    if delay:
        say(f"several starts within {SERIES_SECONDS} s of one another: waiting {delay:g} s")
        time.sleep(delay)
    if config.on_head and _successor is not None:
        _successor.stay_down(tell=say)
    remains = leftovers(read_processes(), settings.temp_dir, owner_of(settings.temp_dir), os.getpid())
    if remains:
        say("ending leftovers of a former Ray: " + ", ".join(f"{p.pid} {p.command[:60]}" for p in remains))
        end_processes(remains)
    clean_temp_dir(settings.temp_dir)
    if not wait_until(lambda: is_local(config.node_address), 20):
        say(f"the control address {config.node_address} is on no interface of this host: check its fabric port")
        return NOT_NOW
    for port, name in settings.own_ports(config.on_head):
        if not wait_until(lambda port=port: not port_taken(port), 5):
            say(f"port {port} ({name}) is taken by another program on this host: ss -ltnp 'sport = :{port}'")
            return NOT_NOW
    token = _ray.read_token(config)
    if config.auth and not token:
        say(f"there is no Ray token in {config.token_path}: run the ray roles")
        return NOT_NOW
    if not config.on_head:
        wait_for_head(config)
        # A wrong token costs Ray 25 s and a page of output; this costs half a second and one line, and more where the
        # machine is busy: a start must not fail for that
        probe = _ray.probe_engine(config, 60.0)
        if probe.status == _ray.UNAUTHORIZED:
            say(f"the head refuses this host's token ({config.token_path}): run the ray roles on all hosts")
            return NOT_NOW
        if not probe.ok:
            say(f"the head's GCS does not answer yet ({probe.status}): {probe.detail}")
            return NOT_NOW
    return 0


# ---------------------------------------------------------------------------------------------------------------
# Before the first start
# ---------------------------------------------------------------------------------------------------------------

VERSIONS_PROGRAM = """
import importlib.metadata as metadata, json, platform
versions = {"python": platform.python_version()}
for name in ("ray", "vllm", "torch"):
    try:
        versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        versions[name] = "absent"
print("\\n" + json.dumps(versions))
"""


def engine_versions(config: _ray.Config, timeout: float = 60.0) -> dict[str, str]:
    """Versions in the engine; empty where it cannot be run."""
    try:
        status, out, _err = _ray.run_engine(config, [], VERSIONS_PROGRAM, timeout)
    except (OSError, subprocess.SubprocessError):
        return {}
    if status == 0:
        for line in reversed(out.splitlines()):
            if line.startswith("{"):
                with contextlib.suppress(ValueError):
                    return {str(key): str(value) for key, value in json.loads(line).items()}
    return {}


def check(
    config: _ray.Config,
    settings: NodeSettings,
    processes: Sequence[Process] | None = None,
    containers: str = CONTAINERS,
) -> dict[str, Any]:
    """What stands against a start on this host, and the versions that all hosts must share."""
    there = read_processes() if processes is None else processes
    problems = []
    if not is_local(config.node_address):
        problems.append(
            f"the control address {config.node_address} is on no interface of this host: run the roce_network role "
            "or check its fabric port"
        )
    elif not config.on_head:
        probe = _ray.probe_tcp("head", config.head_address, config.gcs_port, 3.0)
        if probe.status in (_ray.SILENT, _ray.UNREACHABLE):
            problems.append(
                f"the head's control address {config.head_address} cannot be reached from {config.node_address}: "
                f"{probe.status}; check cable, addresses and the firewall on the head"
            )
    low, high = settings.worker_ports
    ports = {port for port, _name in settings.own_ports(config.on_head)} | set(range(low, high + 1))
    groups = own_groups(containers)
    own = {process.pid for process in there if ours(process, settings.temp_dir, groups)}
    listeners = [listener for listener in read_listeners(ports, there) if listener.pid not in own]
    problems.extend(port_problems(settings, config.on_head, listeners))
    if not runs_here(there, settings.temp_dir):
        # while it runs, a restart gives back what Ray and the engine hold, and nobody knows how much that is
        free = available_memory()
        if free:
            problems.extend(_ray.object_store_problems(settings.object_store, free, "that are free on this host"))
    versions = engine_versions(config)
    if not versions:
        problems.append(f"the engine's Python cannot be run: {' '.join(config.engine)}; run the engine role")
    elif versions.get("ray") == "absent":
        problems.append("Ray is not installed in the engine; run the engine role")
    else:
        problems.extend(_ray.version_problems(versions["ray"]))
    return {"problems": problems, "versions": versions}


def main(program: str, argv: Sequence[str] | None = None) -> int:
    return {"gate": gate, "prepare": prepare}[program](argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
