# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs perftest beside a socket, with its own limits:
# pylint: disable=ansible-bad-function,disallowed-name
"""Bandwidth between two hosts, on the hosts: an agent that ends by itself, and the side that measures.

The agent listens on the fabric's addresses for a few minutes and does nothing but swallow bytes, or start the server
half of ``ib_write_bw``, for whoever knows the run's nonce.  What is counted is what arrived.  Standard library only.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.deadline import Deadline
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.peer import read_line

_SO_BINDTODEVICE = 25
_CHUNK = 1 << 20
_LINE_LIMIT = 4096
PERFTEST = "ib_write_bw"
#: seconds that one measurement of it may take; a line of the agent's
PERFTEST_LIMIT = 40.0
LINE_SECONDS = 30.0


class LinkError(Exception):
    """Why a measurement could not be made."""


class NoPerftest(LinkError):
    """The other side cannot measure RDMA."""


def parse_perftest(text: str) -> float:
    """Average Gb/s out of ``ib_write_bw --report_gbits``; the last line of numbers counts."""
    gbits = "BW average[Gb/sec]" in text
    value = None
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 4 and all(re.fullmatch(r"[0-9]+(\.[0-9]+)?", field) for field in fields[:4]):
            value = float(fields[3])
    if value is None:
        words = [line.strip() for line in text.splitlines() if line.strip()]
        raise LinkError(f"{PERFTEST} printed no result: {words[-1][:200] if words else 'nothing'}")
    # without --report_gbits the unit is MiB/s
    return value if gbits else value * 8 * 1024 * 1024 / 1e9


def _read_object(connection: socket.socket, seconds: float) -> dict[str, Any]:
    """A line of JSON from the other side, all of it within ``seconds``."""
    return foreign.parse_object(read_line(connection, Deadline(seconds), _LINE_LIMIT))


class Agent:
    """Serves one run: ``{"nonce", "do": "sink"}`` or ``{"nonce", "do": "rdma", "device", "port", …}``."""

    def __init__(self, nonce: str, addresses: Sequence[str], port: int, seconds: float) -> None:
        self._nonce = nonce
        self._seconds = seconds
        self._children: list[subprocess.Popen[bytes]] = []
        self.errors: dict[str, str] = {}
        self._sockets = []
        for address in dict.fromkeys(addresses):
            try:
                self._sockets.append(self._listen(address, port))
            except OSError as error:
                self.errors[address] = error.strerror or str(error)

    @staticmethod
    def _listen(address: str, port: int) -> socket.socket:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(64)
        except OSError:
            listener.close()
            raise
        return listener

    def serve(self) -> None:
        for listener in self._sockets:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        time.sleep(self._seconds)
        for child in self._children:
            with contextlib.suppress(OSError):
                child.kill()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _peer = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError, LinkError):
            request = _read_object(connection, LINE_SECONDS)
            connection.settimeout(LINE_SECONDS)
            if not hmac.compare_digest(str(request.get("nonce", "")), self._nonce):
                return
            if request.get("do") == "sink":
                self._sink(connection)
            elif request.get("do") == "rdma":
                self._rdma(connection, request)

    @staticmethod
    def _sink(connection: socket.socket) -> None:
        connection.sendall(b"ok\n")
        buffer = bytearray(_CHUNK)
        total, first, last = 0, 0.0, 0.0
        while True:
            count = connection.recv_into(buffer)
            last = time.monotonic()
            if not count:
                break
            first = first or last
            total += count
        connection.sendall(json.dumps({"bytes": total, "seconds": max(last - first, 1e-6)}).encode() + b"\n")

    def _rdma(self, connection: socket.socket, request: Mapping[str, Any]) -> None:
        argv = perftest_arguments(str(request["device"]), int(request["port"]), request.get("gid_index"))
        try:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            answer = {"error": f"{PERFTEST}: {error.strerror}", "absent": isinstance(error, FileNotFoundError)}
            connection.sendall(json.dumps(answer).encode() + b"\n")
            return
        self._children.append(child)
        time.sleep(0.7)  # it listens by then, or it has ended
        status = child.poll()
        answer = {} if status is None else {"error": f"{PERFTEST} ended with {status} on the other side"}
        connection.sendall(json.dumps(answer).encode() + b"\n")


def perftest_arguments(device: str, port: int, gid_index: Any, address: str = "") -> list[str]:
    """Both sides must be told the same, the duration as well; the client adds where the server is."""
    if not re.fullmatch(r"[A-Za-z0-9_]{1,32}", device):
        raise LinkError(f"device {device!r} is not a name of an RDMA device")
    argv = [PERFTEST, "-d", device, "-p", str(port), "-F", "--report_gbits", "-s", "65536", "-q", "2", "-D", "3"]
    if isinstance(gid_index, int):
        argv += ["-x", str(gid_index)]
    return [*argv, address] if address else argv


def start_agent(nonce: str, addresses: Sequence[str], port: int, seconds: float) -> dict[str, Any]:
    """Leave an agent behind that is nobody's child; returns on which addresses it could not listen."""
    agent = Agent(nonce, addresses, port, seconds)
    if len(agent.errors) == len(set(addresses)):
        return {"started": False, "errors": agent.errors}
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            try:
                null = os.open(os.devnull, os.O_RDWR)
                for handle in (0, 1, 2):
                    os.dup2(null, handle)
                os.chdir("/")
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
                agent.serve()
            finally:
                os._exit(0)
        os._exit(0)
    return {"started": True, "errors": agent.errors}


def _connect(source: str, netdev: str, address: str, port: int, timeout: float) -> socket.socket:
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        client.settimeout(timeout)
        if netdev:
            with contextlib.suppress(PermissionError):
                client.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, netdev.encode() + b"\0")
        if source:
            client.bind((source, 0))
        client.connect((address, port))
    except OSError:
        client.close()
        raise
    return client


def _stream(test: Mapping[str, Any], nonce: str, port: int, seconds: float, results: list[dict[str, Any]]) -> None:
    measured: dict[str, Any] = {}
    try:
        with _connect(test["source"], test["netdev"], test["address"], port, 5) as client:
            client.sendall(json.dumps({"nonce": nonce, "do": "sink"}).encode() + b"\n")
            if read_line(client, Deadline(LINE_SECONDS), _LINE_LIMIT) != b"ok\n":
                raise LinkError("the agent there refused")
            block = memoryview(bytes(_CHUNK))
            end = time.monotonic() + seconds
            client.settimeout(seconds + 20)
            while time.monotonic() < end:
                client.send(block)
            client.shutdown(socket.SHUT_WR)
            said = _read_object(client, seconds + 20)
            measured = {"bytes": foreign.whole(said.get("bytes")), "seconds": foreign.number(said.get("seconds"))}
            if measured["seconds"] <= 0:
                raise LinkError("the agent there measured no time")
    except (OSError, LinkError, ValueError) as error:
        measured = {"error": str(error) or type(error).__name__}
    results.append(measured)


def measure_tcp(tests: Sequence[Mapping[str, Any]], nonce: str, port: int, seconds: float, streams: int) -> float:
    """Gb/s that arrived over all given paths at once, ``streams`` connections on each."""
    results: list[dict[str, Any]] = []
    threads = [
        threading.Thread(target=_stream, args=(test, nonce, port, seconds, results), daemon=True)
        for test in tests
        for _number in range(streams)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 40)
    errors = [item["error"] for item in results if "error" in item]
    if errors or len(results) < len(threads):
        raise LinkError(errors[0] if errors else "a stream did not end")
    # each stream's own rate: they overlap but for the few milliseconds in which they begin and drain
    longest: float = max(item["seconds"] for item in results)
    total: int = sum(item["bytes"] for item in results)
    return total * 8 / longest / 1e9


def measure_rdma(tests: Sequence[Mapping[str, Any]], nonce: str, port: int, base: int) -> float:
    """Gb/s of ``ib_write_bw`` over all given paths at once; NoPerftest where the other side has none."""
    values: list[float] = []
    errors: list[str] = []
    absent: list[str] = []

    def one(number: int, test: Mapping[str, Any]) -> None:
        try:
            with _connect(test["source"], test["netdev"], test["address"], port, 5) as client:
                request = {"nonce": nonce, "do": "rdma", "device": test["peer_device"], "port": base + number}
                client.sendall(json.dumps({**request, "gid_index": test.get("peer_gid_index")}).encode() + b"\n")
                answer = _read_object(client, LINE_SECONDS)
            why = str(answer.get("error") or "")[:300]
            if answer.get("absent"):
                absent.append(why)
            if why:
                raise LinkError(why)
            argv = perftest_arguments(
                test["device"], base + number, test.get("gid_index"), address=str(test["address"])
            )
            status, out, err = run_limited(argv, PERFTEST_LIMIT)
            if status != 0:
                words = (err.strip() or out.strip()).splitlines()
                raise LinkError(f"{PERFTEST} ended with {status}: {words[-1][:200] if words else ''}")
            values.append(parse_perftest(out))
        except (OSError, LinkError, ValueError) as error:
            errors.append(str(error))

    threads = [threading.Thread(target=one, args=item, daemon=True) for item in enumerate(tests)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if absent:
        raise NoPerftest(absent[0])
    if errors or len(values) < len(tests):
        raise LinkError(errors[0] if errors else f"{PERFTEST} did not end")
    return sum(values)


#: netdev, address, bytes of the IP packet -> whether it came back unfragmented
Echo = Callable[[str, str, int], bool]


def measured_path_mtu(netdev: str, address: str, wanted: int, echo: Echo) -> int:
    """The largest packet up to ``wanted`` that passes and comes back whole; 0 when nothing does."""
    if echo(netdev, address, wanted):
        return wanted
    low, high = 576, wanted
    if not echo(netdev, address, low):
        return 0
    while high - low > 1:
        middle = 1500 if low < 1500 < high and high == wanted else (low + high) // 2
        if echo(netdev, address, middle):
            low = middle
        else:
            high = middle
    return low


def measure(
    tests: Sequence[Mapping[str, Any]], nonce: str, port: int, seconds: float, streams: int, echo: Echo
) -> list[dict[str, Any]]:
    """Every test of this host, one after the other; a test that could not be made says why.

    A test has ``id``, ``how`` (tcp or rdma) and ``paths``, each with netdev, source, address, wanted_mtu and, for
    RDMA, device, peer_device and both GID indexes.
    """
    rdma = shutil.which(PERFTEST) is not None
    answers = []
    for test in tests:
        measured: dict[str, Any] = {"id": test["id"], "how": "rdma" if test["how"] == "rdma" and rdma else "tcp"}
        try:
            if len(test["paths"]) == 1:
                path = test["paths"][0]
                measured["mtu"] = measured_path_mtu(path["netdev"], path["address"], path["wanted_mtu"], echo)
            if measured["how"] == "rdma":
                try:
                    measured["gbits"] = round(measure_rdma(test["paths"], nonce, port, port + 1), 3)
                except NoPerftest:
                    measured["how"] = "tcp"
            if measured["how"] == "tcp":
                measured["gbits"] = round(measure_tcp(test["paths"], nonce, port, seconds, streams), 3)
        except (LinkError, OSError) as error:
            measured["error"] = str(error)[:300]
        answers.append(measured)
    return answers
