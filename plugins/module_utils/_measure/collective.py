# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One rank of an all-reduce sweep inside the installed engine, and what its log says about the transport.

NCCL where torch sees a GPU, Gloo elsewhere; the same environment files as the units have.  Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file, foreign
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_alone, run_limited

MARK = "SPARKTHOR-VERIFY "

#: which of NCCL's variables that are set here its library knows: each by its name, which stands in the file
LIBRARIES = r"""
import mmap, os

def libraries():
    with open("/proc/self/maps") as maps:
        paths = {line.split(None, 5)[5].strip() for line in maps if "/libnccl.so" in line}
    # the engine may be told to load another one beside torch's
    paths |= {path for name, path in os.environ.items() if path and name.endswith("_NCCL_SO_PATH")}
    named, found = sorted(name for name in os.environ if name.startswith("NCCL_")), {}
    for path in sorted(paths):
        try:
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                found[path] = [name for name in named if content.find(name.encode() + b"\0") >= 0]
        except (OSError, ValueError):
            pass
    return found
"""

#: read by the engine's Python from standard input, so it can import nothing of ours
PROGRAM = (
    LIBRARIES
    + r"""
import json, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist

largest, budget, limit = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
gpu = torch.cuda.is_available()
backend = "nccl" if gpu else "gloo"
device = torch.device("cuda", 0) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
dist.init_process_group(backend, timeout=timedelta(seconds=limit))
world = dist.get_world_size()

def wait():
    if gpu:
        torch.cuda.synchronize()

def timed(tensor, count):
    dist.barrier()
    wait()
    begun = time.perf_counter()
    for _ in range(count):
        dist.all_reduce(tensor)
    wait()
    # the slowest rank is what a token waits for
    spent = torch.tensor([time.perf_counter() - begun], dtype=torch.float64, device=device)
    dist.all_reduce(spent, op=dist.ReduceOp.MAX)
    return float(spent[0]) / count

rows, begun, size = [], time.perf_counter(), 8
check = torch.full((4,), float(dist.get_rank() + 1), device=device)
dist.all_reduce(check)
right = float(check[0]) == world * (world + 1) / 2
while size <= largest:
    tensor = torch.zeros(max(1, size // 4), dtype=torch.float32, device=device)
    first = timed(tensor, 2)
    # every rank has the same numbers, so all take the same number of rounds
    count = max(3, min(200 if size < 65536 else 20, int(0.3 / max(first, 1e-6))))
    seconds = timed(tensor, count)
    moved = tensor.numel() * 4
    rows.append({"bytes": moved, "seconds": seconds, "gbytes": moved / seconds / 1e9,
                 "busbw_gbytes": moved / seconds / 1e9 * 2 * (world - 1) / world})
    over = torch.tensor([1.0 if time.perf_counter() - begun > budget else 0.0], device=device)
    dist.all_reduce(over, op=dist.ReduceOp.MAX)
    if float(over[0]) > 0:
        break
    size *= 8
version = ""
if gpu:
    version = ".".join(str(part) for part in torch.cuda.nccl.version())
print("SPARKTHOR-VERIFY " + json.dumps({"backend": backend, "world": world, "right": right, "rows": rows,
      "torch": torch.__version__, "nccl": version, "nccl_libraries": libraries() if gpu else {}}), flush=True)
dist.barrier()
dist.destroy_process_group()
"""
)

_IB = re.compile(r"NET/IB : Using (?P<ports>\[0\].*?)(?:; OOB|\s*$)")
_PORT = re.compile(r"\[\d+\]([A-Za-z0-9_.]+):(\d+)/(RoCE|IB)")
_SOCKET = re.compile(r"NET/Socket : Using (?P<ports>\[0\].*)$")
_NETDEV = re.compile(r"\[\d+\]([^\s:\[\]]+):([0-9a-fA-F.:]+)<\d+>")
_NETWORK = re.compile(r"Using network (\S+)")
_CHANNEL = re.compile(r"\bvia (NET/[A-Za-z0-9_]+)")
_BOOTSTRAP = re.compile(r"Bootstrap\s*: Using (?:\[0\])?([^\s:]+):")
_DISABLED = re.compile(r"NCCL_IB_DISABLE set by environment to 1")


def parse_nccl_log(text: str) -> dict[str, Any]:
    """What NCCL itself says it used: ``network`` IB or Socket, its ``ports``, ``bootstrap`` and whether IB was off.

    ``Using network X`` decides; logs of versions before 2.5 lack it, there the channels (``via NET/IB/0``) and at last
    the announcement of a transport do.  An IB announcement alone is no proof while a later line chooses sockets.
    """
    networks: list[str] = []
    channels: set[str] = set()
    ports: list[str] = []
    sockets: list[str] = []
    bootstrap = ""
    disabled = False
    for line in text.splitlines():
        if "NCCL INFO" not in line:
            continue
        match = _NETWORK.search(line)
        if match:
            networks.append(match[1])
        match = _IB.search(line)
        if match:
            ports += [item for item in (f"{m[1]}:{m[2]}" for m in _PORT.finditer(match["ports"])) if item not in ports]
        match = _SOCKET.search(line)
        if match:
            sockets += [m[1] for m in _NETDEV.finditer(match["ports"]) if m[1] not in sockets]
        channels.update(m[1].removeprefix("NET/") for m in _CHANNEL.finditer(line))
        match = _BOOTSTRAP.search(line)
        if match and not bootstrap:
            bootstrap = match[1]
        disabled = disabled or bool(_DISABLED.search(line))
    network = ""
    if networks:
        distinct = set(networks)
        network = networks[-1] if len(distinct) == 1 else "mixed: " + ", ".join(sorted(distinct))
    elif channels:
        network = next(iter(channels)) if len(channels) == 1 else "mixed: " + ", ".join(sorted(channels))
    elif ports:
        network = "IB"
    elif sockets:
        network = "Socket"
    return {
        "network": network,
        "ports": ports if network.startswith("IB") else [],
        "netdevs": sockets if network == "Socket" else [],
        "bootstrap": bootstrap,
        "ib_disabled": disabled,
    }


def counters(root: str = "/sys/class") -> dict[str, int]:
    """Bytes sent, by netdev and by RDMA port (whose traffic no netdev counts)."""
    values: dict[str, int] = {}

    def read(path: str) -> int | None:
        try:
            with open(path, encoding="ascii") as handle:
                return int(handle.read())
        except (OSError, ValueError):
            return None

    for name in _names(f"{root}/net"):
        value = read(f"{root}/net/{name}/statistics/tx_bytes")
        if value is not None and name != "lo":
            values[name] = value
    for name in _names(f"{root}/infiniband"):
        value = read(f"{root}/infiniband/{name}/ports/1/counters/port_xmit_data")
        if value is not None:
            values[name] = value * 4  # counted in words of four bytes
    return values


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _as_user(user: str) -> dict[str, Any]:
    """What starts a process as another user, for root alone. Raises KeyError for one that is not there."""
    if os.geteuid() != 0 or not user:
        return {}
    account = pwd.getpwnam(user)
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups}


class ProgramError(Exception):
    """Why a program of the engine's Python has no result."""


def run_program(
    engine: Sequence[str],
    user: str,
    arguments: Sequence[str],
    program: str,
    environment: Mapping[str, str],
    limit: float,
    after: Sequence[str] = (),
) -> tuple[int, str]:
    """Run ``program`` in the engine's Python with the engine's environment: its exit status and all that it says.

    ``engine`` is the command of the engine's Python. Without a ``user`` it is Docker's client, which root runs, which
    reads the engine's files itself and gives the program to the serving user; ``after`` ends what such a client leaves
    when it is killed, after ``limit`` seconds.  Raises :class:`ProgramError`.
    """
    try:
        options = _as_user(user)
    except KeyError:
        # root does not run what the serving user may have prepared
        raise ProgramError(f"there is no user {user} to run the engine as; run the engine role") from None
    engine_environment = environment_file.read((environment_file.ENGINE, environment_file.FABRIC)) if user else {}
    try:
        status, out, _err = run_alone(
            [*engine, "-", *arguments],
            limit,
            program,
            {**os.environ, **engine_environment, **environment},
            options,
            merged=True,
        )
    except OSError as error:
        raise ProgramError(f"the engine's Python cannot be run: {engine[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        if after:
            run_limited(after, 60)
        raise ProgramError(f"no end after {limit:.0f} s") from None
    return status, out


def run_rank(
    rank: int,
    world: int,
    master: str,
    port: int,
    engine: Sequence[str],
    user: str,
    largest: int,
    budget: float,
    limit: float,
    after: Sequence[str] = (),
) -> dict[str, Any]:
    """Run this host's rank to its end, or to ``limit`` seconds; never raises over what the rank does.

    ``engine``, ``user`` and ``after`` are those of :func:`run_program`.
    """
    before = counters()
    environment = {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(port),
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "PYTHONUNBUFFERED": "1",
    }
    arguments = [str(largest), str(budget), str(limit)]
    try:
        status, out = run_program(engine, user, arguments, PROGRAM, environment, limit + 30, after)
    except ProgramError as error:
        late = "" if "no end" not in str(error) else ": a rank is not there, or the ranks cannot reach each other"
        return {"error": f"{error}{late}"}
    now = counters()
    result = read_output(status, out)
    result["sent"] = {name: now[name] - before.get(name, 0) for name in now if now[name] > before.get(name, 0)}
    return result


def read_output(status: int, out: str) -> dict[str, Any]:
    for line in out.splitlines():
        if line.startswith(MARK):
            with contextlib.suppress(ValueError):
                return {**foreign.parse_object(line[len(MARK) :]), "log": parse_nccl_log(out)}
    return {"error": f"the rank ended with {status}: {reason(out)}", "log": parse_nccl_log(out)}


def reason(out: str) -> str:
    """The line that says why: NCCL's own warning, else the last exception."""
    lines = [line.strip() for line in out.splitlines() if line.strip()]
    for line in lines:
        if "NCCL WARN" in line:
            return line.split("NCCL WARN", 1)[1].strip()[:300]
    errors = [line for line in lines if re.match(r"^[A-Za-z_.]*(Error|Exception)\b", line)]
    return (errors[-1] if errors else (lines[-1] if lines else "it said nothing"))[:300]
