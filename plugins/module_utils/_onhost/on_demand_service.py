# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in its own unit:
# pylint: disable=ansible-bad-function
"""Lets the serving groups of a host take turns: stops and starts them as :mod:`on_demand` decides.

The front proxy hands on what nobody answers, and tells of each request that ended.  It says no more than the name of a
group: what is done to which unit stands in files of root's.  However this ends, the host's own group comes back.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._lib import files
from .._lib.deadline import Deadline
from . import control, front_counts, on_demand, places, rank_state, serving, state_words, watchdog_report
from .notify import ALIVE, READY, notify

RUN = "/run/sparkthor-on-demand"
#: a playbook that changes the cluster touches it again and again
CONTROLLER, CONTROLLER_LIVES = "/run/sparkthor-controller.json", 90.0
#: seconds for which the watchdog's word counts
FRESH = 30.0
#: seconds without a switch after one that failed
PAUSE = 300.0
#: seconds that a question may take to come, however slowly: meanwhile no other is answered
QUESTION = 2.0
_REQUEST = re.compile(rb"([A-Z]{1,10}) /([a-z0-9_]{0,64}) HTTP/1\.[01]\r\n")


def policies_of(config: Mapping[str, Any]) -> dict[str, on_demand.Policy]:
    """Of serving.json of the host's own group."""
    return {
        str(name): on_demand.Policy(
            60.0 * own["idle_minutes"],
            60.0 * own["every_minutes"],
            on_demand.hours(str(own["not_between"])),
            float(own["ready_timeout"]),
        )
        for name, own in (config.get("on_demand_groups") or {}).items()
    }


class Turns:
    """Who serves on this host; a test replaces the doors to it."""

    def __init__(
        self,
        policies: Mapping[str, on_demand.Policy],
        of_group: Callable[[str, bool], control.Control] = control.of_group,
        lock: str = control.LOCK,
        controller: str = CONTROLLER,
        clock: Callable[[], float] = time.monotonic,
        state_of: Callable[[str], str] = lambda group: places.Places(group).state,
    ) -> None:
        self.policies, self.clock = policies, clock
        self._of_group, self._lock, self._controller, self._state_of = of_group, lock, controller, state_of
        self._used: dict[str, float] = {}
        self._wishes: dict[str, float] = {}
        self._serves, self._since, self._served = "", float("-inf"), True
        self._paused = float("-inf")
        self._took: dict[str, float] = {}
        #: to which group a switch is going on
        self.moving: str | None = None
        self.seen: on_demand.DemandSeen | None = None

    def control(self, group: str) -> control.Control:
        notify(ALIVE)
        found = self._of_group(group, False)
        found.sleep = self._sleep
        return found

    @staticmethod
    def _sleep(seconds: float) -> None:
        notify(ALIVE)
        time.sleep(seconds)

    def take(self, datagram: bytes) -> None:
        """A line of nginx about a request that ended."""
        name = datagram.partition(front_counts.TAG)[2].decode("ascii", "replace").strip()
        group = "" if name == "-" else name
        if name and (not group or group in self.policies):
            self._used[group] = self.clock()

    def observe(self) -> on_demand.DemandSeen:
        now, local = self.clock(), time.localtime()
        group = serving.asleep(self.control("").markers)
        serves = group if group in self.policies else ""
        if serves != self._serves:
            self._serves, self._since, self._served = str(serves), now, not serves
        host_group = self.control(self._serves)
        unit, state = host_group.state(), files.read_json(self._state_of(self._serves))
        ready = rank_state.kept_up(state, time.time(), FRESH) and state.get("state") == state_words.SERVING
        if not ready:
            # its idle time begins when it can be used
            self._used[self._serves] = now
        elif not self._served:
            self._served, self._took[self._serves] = True, now - self._since
        socket_path = str(host_group.config.get("socket", ""))
        page = serving.metrics(socket_path, engine=host_group.engine)
        return on_demand.DemandSeen(
            now=now,
            minute=local.tm_hour * 60 + local.tm_min + local.tm_sec / 60,
            serves=self._serves,
            running=unit.active not in ("inactive", "failed"),
            ready=ready,
            restarts=unit.restarts,
            used=self._used.setdefault(self._serves, now),
            in_flight=watchdog_report.requests_in_flight(page, host_group.engine.metrics) or 0,
            since=self._since,
            wishes=dict(self._wishes),
            held=self._held(),
            paused=self._paused,
            served=self._served,
        )

    def _held(self) -> dict[str, str]:
        held = {}
        for group in ("", *self.policies):
            one = self.control(group)
            reason = places.maintenance(one.markers)
            if reason is not None and not reason.startswith(serving.ASLEEP):
                held[group] = f"a person keeps it as it is ({reason})"
            elif (group or not self._serves) and os.path.exists(one.draining):
                # the own group's is also what a change that broke off may have left while it is asleep
                held[group] = "its model is drained"
        with contextlib.suppress(OSError):
            if time.time() - os.lstat(self._controller).st_mtime < CONTROLLER_LIVES:
                held[""] = held[self._serves] = "a playbook changes the cluster"
        return held

    def round(self) -> None:
        with control.alone(self._lock, wait=False) as mine:
            if not mine:
                return
            try:
                self.seen = seen = self.observe()
                found = on_demand.decide(self.policies, seen)
                if found:
                    self._switch(found, seen)
                    self.seen = self.observe()
            except (control.ControlError, OSError) as error:
                # systemd gives no answer now; the next round asks again
                print(error, file=sys.stderr, flush=True)

    def _switch(self, wanted: on_demand.Switch, seen: on_demand.DemandSeen) -> None:
        said = f"{seen.serves or 'the own group'} gives way to {wanted.to or 'the own group'}: {wanted.why}"
        print(said, file=sys.stderr, flush=True)
        self.moving = wanted.to
        if wanted.failed:
            self._paused = seen.now + PAUSE
        try:
            host_group = self.control("")
            if seen.serves:
                self.control(seen.serves).fall_asleep()
            if not wanted.to:
                host_group.come_back()
                return
            if seen.serves:
                serving.write_file(host_group.markers[-1], f"{serving.ASLEEP}{wanted.to} serves\n")
            else:
                host_group.give_way(wanted.to)
            self.control(wanted.to).wake()
        except (control.ControlError, OSError) as error:
            print(f"it failed: {error}", file=sys.stderr, flush=True)
            self._paused = self.clock() + PAUSE
            self._come_back()
        finally:
            self.moving = None

    def recover(self) -> None:
        """The host's own group comes back, whatever an earlier run or this one has left."""
        with control.alone(self._lock):
            self._come_back()

    def _come_back(self) -> None:
        host_group = self.control("")
        if serving.asleep(host_group.markers) is None:
            return
        failed: control.ControlError | OSError | None = None
        for group in self.policies:
            # there is memory for one of them, so one whose requests do not end in time ends with them
            try:
                self.control(group).fall_asleep(whatever=True)
            except (control.ControlError, OSError) as error:
                failed = failed or error
        if failed:
            raise failed
        host_group.come_back()

    def answer(self, group: str, asks: bool) -> tuple[float, str]:
        """Seconds until a client may ask again, and a line for it."""
        now, seen = self.clock(), self.seen
        if asks:
            self._wishes[group] = now
        if self.moving is not None or seen is None:
            starts = self.moving == group
            what = "The model is being started." if starts else "The models of this host are changing places."
            return self._took.get(group, on_demand.SOON) if starts else on_demand.SOON, what
        if seen.serves == group:
            # its line may be one of the engine's log, which is nothing for those who have a key
            state = files.read_json(self._state_of(group)).get("state")
            word = state if state in state_words.STATES else "see /health"
            left = self._took.get(group, on_demand.SOON) - (now - seen.since) if group else on_demand.SOON / 3
            return max(5.0, left), f"The model is not being served right now: {word}."
        found = on_demand.obstacle(self.policies, seen, group)
        if found:
            return found.seconds, f"The model is asleep: {found.why}."
        return self._took.get(group, on_demand.SOON), "The model was asleep and is being started."


def response(turns: Turns, request: bytes) -> bytes:
    """What nginx hands on to its client; empty where the request is none of nginx's."""
    match = _REQUEST.match(request)
    group = match[2].decode() if match else ""
    if not match or (group and group not in turns.policies):
        return b""
    seconds, line = turns.answer(group, match[1] == b"POST")
    error = {"message": line, "type": "service_unavailable", "param": "model", "code": "model_asleep"}
    body = (json.dumps({"error": error}) + "\n").encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Retry-After: {max(1, math.ceil(seconds))}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def serve(turns: Turns, made: socket.socket, ended: threading.Event) -> None:
    """Answer one request after the other, until a second after ``ended``."""
    made.settimeout(1.0)
    while not ended.is_set():
        try:
            client, _address = made.accept()
        except TimeoutError:
            continue
        with client, contextlib.suppress(OSError):
            deadline = Deadline(QUESTION)
            request = b""
            while b"\r\n\r\n" not in request and len(request) < 4096:
                client.settimeout(deadline.left())
                part = client.recv(4096)
                if not part:
                    break
                request += part
            client.sendall(response(turns, request))


def listen(path: str) -> socket.socket:
    """Where nginx asks, for this process' user and group alone.  Raises OSError."""
    if os.path.lexists(path):
        os.unlink(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o117)
    try:
        made.bind(path)
    finally:
        os.umask(before)
    made.listen(128)
    return made


def follow(turns: Turns, made: socket.socket) -> None:
    """Take nginx's lines, until an empty datagram comes, which nginx never sends."""
    with made:
        while datagram := made.recv(4096):
            turns.take(datagram)


def shutting_down(runner: serving.Runner = serving.run) -> bool:
    """Whether the host goes down, which ends every group by itself; the next boot starts its own one."""
    return runner(["systemctl", "is-system-running"], 15)[1].strip() == "stopping"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sparkthor_host on-demand", description="Serving groups that take turns.")
    parser.add_argument("--run", default=RUN, help="default: %(default)s")
    given = parser.parse_args(argv)
    config = files.read_json(serving.CONFIG)
    if not config:
        # who shares this host is not known then: the own group would be started beside another
        print(
            f"{serving.CONFIG} is away or cannot be read; no group is started or stopped", file=sys.stderr, flush=True
        )
        return 1
    turns = Turns(policies_of(config))
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda _signal, _frame: ended.set())
    asked, told = (
        listen(os.path.join(given.run, "wake.sock")),
        front_counts.listen(os.path.join(given.run, "front.sock")),
    )
    threading.Thread(target=serve, args=(turns, asked, ended), daemon=True).start()
    threading.Thread(target=follow, args=(turns, told), daemon=True).start()
    notify(READY)
    # one that fails here is started again, until the own group serves
    turns.recover()
    while not ended.wait(1.0):
        notify(ALIVE)
        turns.round()
    if not shutting_down():
        turns.recover()
    return 0
