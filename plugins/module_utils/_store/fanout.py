# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, as a program:
# pylint: disable=ansible-bad-function

"""Bring contents from one host to all others over the fabric, every host forwarding while it receives.

The module ``model_fanout`` copies this file and the two it imports onto a host, as one Python archive, and has systemd
run it. So they need nothing but the standard library, and neither the ssh connection nor the controller must last as
long as the copy does::

    python3 fanout.pyz JOB.json

A host pulls parts from the host before it (its upstream) and serves those it has to the hosts behind it. Contents are
named by their SHA-256 and cut into parts with digests of their own, all of which come with the job, over ssh. A part
is written and offered to others only when its digest is right, and a content is whole only when this very host has
hashed all of it; which parts are here is kept beside the data, so that a later run asks for the others alone. Both
sides of a connection prove that they hold the key of the run before anything else is said; addresses of the fabric
alone are listened on.

A connection carries, after the handshake (fanout_wire.py), requests one way and answers the other::

    G index -> D index length bytes      the part, when it is here
               W busy                    not here yet; said every second, so that silence means a dead peer; busy is 1
                                         while somebody before here still reads what it has
    S length document -> A               how far the sender and all behind it are
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .._lib import foreign
from .._lib.printable import printable
from .fanout_parts import FanoutError, NotWhole, Parts
from .fanout_wire import FRAME, OtherKey, Refused, admit, greet, limit, receive, receive_bytes

#: seconds until a connection is made, until silence means that a peer is gone, and between two signs of life
CONNECT_LIMIT = 3.0
SILENCE_LIMIT = 5
ALIVE = 1.0
#: seconds in which an upstream may still serve an earlier run: all hosts of a run begin at about the same time
REPLACE_LIMIT = 20.0
#: seconds between two attempts to connect, at most: all hosts of a chain begin at about the same time
RETRY_MAX = 0.25
#: requests under way on one connection
WINDOW = 2
#: a part that arrived wrong this often is wrong where it comes from
BAD_LIMIT = 3
#: seconds that one step of reading what is here may take, making room for a big file above all
STEP_LIMIT = 600.0
#: at most what a report of all hosts takes
REPORT_LIMIT = 1 << 20


#: what a report says, and between which numbers
NUMBERS = ("at", "want", "received", "sent", "seconds", "began", "ended", "cpu")
STATES = ("running", "done", "failed")
#: hosts of a run, and characters of an error, at most
MOST_HOSTS = 1000
MOST_WORDS = 2000


def read_reports(data: bytes | str) -> dict[str, dict[str, Any]]:
    """Hosts' reports by name, each of one shape and nothing more in it; ForeignError for what is none.

    They come from other hosts, and a person's terminal shows them.
    """
    reports = {}
    document = foreign.parse_object(data, REPORT_LIMIT)
    if len(document) > MOST_HOSTS:
        raise foreign.ForeignError("too many hosts")
    for name, entry in document.items():
        if not isinstance(entry, dict) or entry.get("state") not in STATES:
            raise foreign.ForeignError("not a report of a host")
        words = {key: foreign.text_of(entry.get(key) or "", MOST_WORDS) for key in ("error", "upstream")}
        refused = entry.get("refused") or {}
        if not isinstance(refused, dict):
            raise foreign.ForeignError("not a report of a host")
        reports[name] = {
            "state": entry["state"],
            "preparing": entry.get("preparing") is True,
            **{key: foreign.number(entry.get(key) or 0) for key in NUMBERS},
            **{key: printable(text) for key, text in words.items()},
            "refused": {printable(what): foreign.whole(count) for what, count in list(refused.items())[:100]},
        }
    return reports


class Stale(Exception):
    """The upstream was changed: begin a new connection."""


class Node:
    """One host: pulls what it lacks, serves what it has, says how far it is."""

    def __init__(self, job: Mapping[str, Any], parts: Parts, status_path: str = "") -> None:
        self.job = job
        self.name = str(job["node"])
        self.key = bytes.fromhex(job["key"])
        self.run_name = str(job["run"])
        self.parts = parts
        self.manifest = parts.digest
        #: whose reports are taken
        self.others = {str(name) for name in job["hosts"]} - {self.name}
        self.upstreams: list[dict[str, Any]] = list(job["upstreams"])
        self.patience = float(job.get("patience", 60))
        self.status_path = status_path
        self.lock = threading.Lock()
        self.preparing = False
        self.received = 0
        self.sent = 0
        self.bad: dict[int, int] = {}
        self.current = 0
        self.heard = 0.0
        self.excused = float("-inf")  # when those before here last said that they still read what they have
        self.problem = ""
        self.refused: dict[str, int] = {}
        self.error = ""
        #: everything is here and proved
        self.done = False
        self.finished = threading.Event()
        self.seconds = 0.0
        self.reports: dict[str, dict[str, Any]] = {}
        self.listeners: list[socket.socket] = []
        self._begin()

    def _begin(self) -> None:
        """Count what is to come; only now the time runs."""
        self.todo: deque[int] = deque(index for index in range(self.parts.total) if not self.parts.have[index])
        self.want = sum(self.parts.lengths[index] for index in self.todo)
        self.left = len(self.todo)
        self.began = self.progressed = self.served = time.monotonic()
        self.began_at = time.time()

    def _prepare(self, prepare: Callable[[], None]) -> None:
        """Read what is here, which takes as long as the files are big; the others are told that this host lives."""
        self.preparing = True
        self.parts.last_step = time.monotonic()
        reader = threading.Thread(target=self._read, args=(prepare,), daemon=True)
        reader.start()
        while reader.is_alive():
            self.write_status()
            reader.join(0.5)
            if time.monotonic() - self.parts.last_step > STEP_LIMIT:
                self.error = f"{self.parts.incoming} does not answer for {STEP_LIMIT:.0f} s: look at its disk"
                break
        self._begin()
        self.preparing = False

    def _read(self, prepare: Callable[[], None]) -> None:
        try:
            prepare()
        except (FanoutError, OSError) as error:
            self.error = str(error)
        except Exception as error:
            # nobody else would learn of it: this is a thread
            self.error = f"{type(error).__name__}: {error}"

    def busy(self) -> bool:
        """Whether those behind should wait, because here or before here somebody still reads what he has."""
        return self.preparing or time.monotonic() - self.excused < SILENCE_LIMIT

    # -- pulling ---------------------------------------------------------------------------------------------------

    def take(self) -> int | None:
        with self.lock:
            return self.todo.popleft() if self.todo else None

    def give_back(self, indices: Iterable[int]) -> None:
        with self.lock:
            self.todo.extendleft(sorted(indices, reverse=True))

    def fail(self, message: str) -> None:
        with self.lock:
            if not self.error and not self.done:
                self.error = message
                self.seconds = time.monotonic() - self.began
        self.finished.set()

    def connect(self, upstream: Mapping[str, Any], slot: int) -> socket.socket:
        mine, theirs = upstream["paths"][slot % len(upstream["paths"])]
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.settimeout(CONNECT_LIMIT)
            # bound to a half of the fabric: each half carries its share
            sock.bind((mine, 0))
            sock.connect((theirs, self.job["port"]))
            limit(sock, SILENCE_LIMIT, SILENCE_LIMIT)
            greet(sock, self.key, self.run_name, self.name, self.manifest, f"{upstream['node']} ({theirs})")
        except BaseException:
            sock.close()
            raise
        return sock

    def pull(self, slot: int) -> None:
        """One stream: asks for parts in order, a few at a time, on one half of the fabric."""
        buffer = memoryview(bytearray(self.parts.part_size))
        pause = 0.05
        while not self.finished.is_set():
            number = self.current
            upstream = self.upstreams[number]
            try:
                with self.connect(upstream, slot) as sock:
                    pause = 0.05
                    self.heard = time.monotonic()
                    self._pull_from(sock, buffer, number)
            except OtherKey as error:
                self.problem = str(error)
                if time.monotonic() - self.began > REPLACE_LIMIT:
                    self.fail(str(error))
                self.finished.wait(RETRY_MAX)
            except FanoutError as error:
                self.fail(str(error))
            except Stale:
                continue
            except OSError as error:
                self.problem = f"{upstream['node']}: {error.strerror or error}"
                self.finished.wait(pause)
                pause = min(pause * 2, RETRY_MAX)

    def _pull_from(self, sock: socket.socket, buffer: memoryview, number: int) -> None:
        out: list[int] = []
        header = memoryview(bytearray(FRAME.size))
        try:
            while not self.finished.is_set():
                if self.current != number:
                    raise Stale
                while len(out) < WINDOW and (index := self.take()) is not None:
                    out.append(index)
                    sock.sendall(FRAME.pack(b"G", index, 0))
                if not out:
                    # others fetch the rest; a stream that breaks gives its share back
                    self.finished.wait(0.05)
                    continue
                receive(sock, header)
                kind, index, length = FRAME.unpack(header)
                self.heard = time.monotonic()
                if kind == b"W":
                    if index:
                        self.excused = self.heard
                    continue
                if kind != b"D" or index not in out or length != self.parts.lengths[index]:
                    raise ConnectionError("an answer that was not asked for")
                data = buffer[:length]
                receive(sock, data)
                out.remove(index)
                self._arrived(index, data, number)
        finally:
            self.give_back(out)

    def _arrived(self, index: int, data: memoryview, number: int) -> None:
        now = self.heard = time.monotonic()
        if hashlib.sha256(data).digest() != self.parts.digests[index]:
            self.give_back([index])
            with self.lock:
                self.bad[index] = self.bad.get(index, 0) + 1
                often = self.bad[index]
            if often >= BAD_LIMIT:
                content = self.parts.owners[index]
                raise FanoutError(
                    f"a part of {self.job['names'].get(content.sha256, content.sha256[:12])} arrives damaged from "
                    f"{self.upstreams[number]['node']} again and again: verify that host's copy in full "
                    "(model_store_verify: full)"
                )
            return
        self.parts.store(index, data)
        with self.lock:
            self.received += len(data)
            self.left -= 1
            self.progressed = now

    def prove(self) -> None:
        """Hash what comes, until all is proved or nothing more is to come."""
        try:
            self.parts.prove(self.finished)
        except NotWhole as error:
            name, giver = self.job["names"].get(error.sha256, error.sha256[:12]), self.job.get("told_by")
            self.fail(
                f"{name} has SHA-256 {error.found[:12]}…, and the controller knows it as {error.sha256[:12]}…, "
                f"although each of its parts is as {giver or 'the controller'} told: it was discarded"
                + (f". Verify the copy of {giver} in full (model_store_verify: full), and run again" if giver else "")
            )
        except FanoutError as error:
            self.fail(str(error))
        with self.lock:
            if not self.error and not self.left:
                self.seconds = time.monotonic() - self.began
                self.done = True
        self.finished.set()

    def watch_upstream(self) -> None:
        """Take the next upstream when one is silent or brings nothing, give up when none brings anything.

        One that still reads what it has is no reason to give up, but one to ask another.
        """
        since = time.monotonic()
        while not self.finished.wait(0.5):
            now = time.monotonic()
            if not self.left:
                # all is here, and being read
                if now - max(self.parts.last_step, self.progressed) > STEP_LIMIT:
                    self.fail(f"{self.parts.incoming} does not answer for {STEP_LIMIT:.0f} s: look at its disk")
                continue
            quiet = now - max(self.heard, since)
            stuck = now - max(self.progressed, since, self.began)
            if now - max(self.progressed, self.began, self.excused) > self.patience:
                upstream = self.upstreams[self.current]["node"]
                names = ", ".join(entry["node"] for entry in self.upstreams)
                what = (
                    f"{upstream} answers but has nothing new itself"
                    if now - self.heard < SILENCE_LIMIT
                    else f"no answer from {names} over the fabric (last: {self.problem or 'silence'})"
                )
                self.fail(
                    f"nothing arrived for {self.patience:.0f} s: {what}. What arrived is kept: fix it and run again"
                )
            elif len(self.upstreams) > 1 and (quiet > 2 * SILENCE_LIMIT or stuck > self.patience / 3):
                self.current = (self.current + 1) % len(self.upstreams)
                since = now

    # -- serving ---------------------------------------------------------------------------------------------------

    def listen(self) -> None:
        end = time.monotonic() + 10
        for address in self.job["listen"]:
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            while True:
                try:
                    sock.bind((address, self.job["port"]))
                    break
                except OSError as error:
                    # a run that was just stopped may hold it for a moment
                    if error.errno != errno.EADDRINUSE or time.monotonic() > end:
                        where = f"{address} port {self.job['port']}"
                        raise FanoutError(f"cannot listen on {where}: {error.strerror}") from error
                    time.sleep(0.1)
            sock.listen(64)
            self.listeners.append(sock)
            threading.Thread(target=self._accept, args=(sock,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, address = listener.accept()
            except OSError:
                return
            if address[0] not in self.job["peers"]:
                self._refuse(address[0], "no host of the fabric")
                sock.close()
                continue
            threading.Thread(target=self._serve, args=(sock, address[0]), daemon=True).start()

    def _refuse(self, address: str, reason: str) -> None:
        with self.lock:
            what = f"{address}: {reason}"
            if what in self.refused or len(self.refused) < 100:
                self.refused[what] = self.refused.get(what, 0) + 1

    def _serve(self, sock: socket.socket, address: str) -> None:
        with sock:
            try:
                limit(sock, 10, 10)
                admit(sock, self.key, self.run_name, self.manifest)
            except Refused as error:
                self._refuse(address, str(error))
                return
            except OSError:
                return
            with contextlib.suppress(OSError, foreign.ForeignError):
                # a client may be silent for as long as it waits for others; its end closes the connection
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 0))
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 10000)
                self._answer(sock)

    def _answer(self, sock: socket.socket) -> None:
        while True:
            kind, index, length = FRAME.unpack(receive_bytes(sock, FRAME.size))
            self.served = time.monotonic()
            if kind == b"G" and index < self.parts.total:
                while not self.parts.wait(index, ALIVE):
                    sock.sendall(FRAME.pack(b"W", int(self.busy()), 0))
                    self.served = time.monotonic()
                self._send_part(sock, index)
            elif kind == b"S" and length <= REPORT_LIMIT:
                self._take_report(receive_bytes(sock, length))
                sock.sendall(FRAME.pack(b"A", 0, 0))
            else:
                return

    def _send_part(self, sock: socket.socket, index: int) -> None:
        length, offset = self.parts.lengths[index], self.parts.offsets[index]
        descriptor = self.parts.descriptor(self.parts.owners[index])
        sock.sendall(FRAME.pack(b"D", index, length), socket.MSG_MORE)
        left = length
        while left:
            # from the page cache to the wire, without a copy through here
            done = os.sendfile(sock.fileno(), descriptor, offset + length - left, left)
            if not done:
                raise ConnectionError("a file became shorter while it was sent")
            left -= done
        with self.lock:
            self.sent += length
        self.served = time.monotonic()

    def _take_report(self, data: bytes) -> None:
        """What a host says of itself and of those behind it; of nobody who has no part in this run."""
        told = {name: entry for name, entry in read_reports(data).items() if name in self.others}
        with self.lock:
            for name, entry in told.items():
                kept = self.reports.get(name)
                if kept is None or kept["at"] <= entry["at"]:
                    self.reports[name] = entry

    # -- saying how far it is --------------------------------------------------------------------------------------

    def own_report(self) -> dict[str, Any]:
        with self.lock:
            state = "failed" if self.error else "done" if self.done else "running"
            return {
                "at": time.time(),
                "state": state,
                "preparing": self.preparing,
                "error": self.error,
                "want": self.want,
                "received": self.received,
                "sent": self.sent,
                "seconds": self.seconds or time.monotonic() - self.began,
                "began": self.began_at,
                "ended": self.began_at + self.seconds if self.done or self.error else 0,
                "upstream": self.upstreams[self.current]["node"] if self.upstreams else "",
                "refused": dict(self.refused),
                "cpu": round(time.process_time(), 3),
            }

    def all_reports(self) -> dict[str, dict[str, Any]]:
        own = self.own_report()
        with self.lock:
            return {**self.reports, self.name: own}

    def report(self, closing: threading.Event) -> None:
        """Tell the upstream about this host and those behind it, until told that it was the last time."""
        slot = shift = 0
        since = time.monotonic()
        while self.upstreams:
            last = closing.is_set()
            current = self.current
            try:
                with self.connect(self.upstreams[(current + shift) % len(self.upstreams)], slot) as sock:
                    while current == self.current:
                        last = closing.is_set()
                        data = json.dumps(self.all_reports()).encode()
                        sock.sendall(FRAME.pack(b"S", 0, len(data)) + data)
                        receive_bytes(sock, FRAME.size)
                        since = time.monotonic()
                        if last:
                            return
                        closing.wait(ALIVE)
                shift = 0
            except (OSError, FanoutError):
                slot += 1
                if last:
                    return
                if self.preparing and time.monotonic() - since > 2 * SILENCE_LIMIT:
                    # nothing is pulled yet, so nobody else finds out that this upstream is gone
                    shift, since = shift + 1, time.monotonic()
                closing.wait(0.3)

    def write_status(self) -> None:
        if not self.status_path:
            return
        scratch = f"{self.status_path}.new"
        with open(scratch, "w", encoding="utf-8") as file:
            json.dump({"run": self.run_name, "node": self.name, "nodes": self.all_reports()}, file)
        os.replace(scratch, self.status_path)

    def all_behind_done(self) -> bool:
        with self.lock:
            return all(self.reports.get(name, {}).get("state") in ("done", "failed") for name in self.job["behind"])

    def run(self, prepare: Callable[[], None] | None = None) -> int:
        """``prepare`` finds out which parts are here; meanwhile this host is asked, answers and reports already."""
        self.preparing = prepare is not None
        self.listen()
        closing = threading.Event()
        reporter = threading.Thread(target=self.report, args=(closing,), daemon=True)
        reporter.start()
        if prepare is not None:
            self._prepare(prepare)
        if self.error:
            self.finished.set()
        threading.Thread(target=self.prove, daemon=True).start()
        for slot in range(max((len(entry["paths"]) for entry in self.upstreams), default=0)):
            for _number in range(int(self.job["streams"])):
                threading.Thread(target=self.pull, args=(slot,), daemon=True).start()
        threading.Thread(target=self.watch_upstream, daemon=True).start()
        self.write_status()
        while True:
            settled = self.finished.wait(0.5)
            self.write_status()
            if not settled:
                continue
            # a host that cannot go on leaves those behind it to another; a whole one serves them to the end
            if self.error or self.all_behind_done():
                break
            if time.monotonic() - max(self.served, self.progressed) > self.patience:
                break
            time.sleep(0.3)
        closing.set()
        reporter.join(CONNECT_LIMIT + SILENCE_LIMIT)
        self.write_status()
        return 1 if self.error else 0


def main(argv: list[str]) -> int:
    path = argv[1]
    with open(path, encoding="utf-8") as file:
        job = json.load(file)
    os.unlink(path)  # it holds the key of the run
    status = str(job["status"])
    try:
        parts = Parts(job["incoming"], int(job["part_size"]), job["contents"])
        return Node(job, parts, status).run(lambda: parts.adopt(job["local"], job["spare"]))
    except (FanoutError, OSError) as error:
        entry = {"at": time.time(), "state": "failed", "error": str(error), "want": 0, "received": 0, "sent": 0}
        with open(status, "w", encoding="utf-8") as file:
            json.dump({"run": job["run"], "node": job["node"], "nodes": {job["node"]: entry}}, file)
        return 1
