# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, as a service:
# pylint: disable=ansible-bad-function
"""Switch the power of a host that does not come back: off and on again, once.

A GB10 has no management controller, so nothing of the host itself can do it: the owner names commands that speak to
a switched socket, a smart plug or a relay.  Without commands this program is not there.

Rules: a host counts as away when none of its addresses takes or refuses a connection; when all other hosts are away at
once that is a network or a fuse, and nothing is switched; in maintenance and while a playbook changes the cluster
nothing is switched; and a host whose power was switched is not switched again before it has been there for a while.
What was done is in the journal, and kept over reboots of the head.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .._lib import files
from . import notify, places, serving

NAME = "power.json"
#: of the controller that changes the cluster; its holder renews it
LOCK, LOCK_FRESH = "/run/sparkthor-controller.json", 120.0
EVERY = 10.0
#: a host has to be there for so long before its power may be switched again
STABLE = 600.0
#: seconds of one command
COMMAND = 30.0
#: how often a command after the first is tried: a host must not stay without power
TRIES = 5
#: what a host that is there says to whoever has no business at a port
_THERE = (0, errno.ECONNREFUSED)


def answers(address: str, port: int = 22, seconds: float = 3.0) -> bool:
    """Whether a machine has this address: it takes a connection, or its kernel refuses it."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(seconds)
        try:
            return probe.connect_ex((address, port)) in _THERE
        except OSError:
            return False


class PowerGuard:
    """What is remembered of each host, and whose power is switched now."""

    def __init__(self, after: float, memory: Mapping[str, Any] | None = None) -> None:
        self.after = after
        #: host -> since when it has been away, and since when it has been there
        self.away: dict[str, float] = {}
        self.there: dict[str, float] = {}
        known = (memory or {}).get("switched")
        #: host -> when its power was switched (seconds since 1970), until it has been there for a while
        self.switched: dict[str, float] = dict(known) if isinstance(known, dict) else {}

    def dump(self) -> dict[str, Any]:
        return {"switched": self.switched}

    def judge(self, seen: Mapping[str, bool], now: float, quiet: bool) -> tuple[list[str], list[str]]:
        """Hosts whose power is to be switched now, and what is to be said. ``now`` is a steady clock."""
        if quiet:
            self.away.clear()
            return [], []
        for host, here in seen.items():
            if here:
                self.away.pop(host, None)
                since = self.there.setdefault(host, now)
                if now - since >= STABLE:
                    self.switched.pop(host, None)
            else:
                self.there.pop(host, None)
                self.away.setdefault(host, now)
        long = [host for host, since in self.away.items() if host in seen and now - since >= self.after]
        if not long:
            return [], []
        # also one that went a moment later than the others
        if len(seen) > 1 and all(host in self.away for host in seen):
            return [], [f"all of {', '.join(seen)} are away: that is a network or a fuse, no power is switched"]
        again = [host for host in long if host in self.switched]
        said = [f"{host} is still away after its power was switched once: a person has to see to it" for host in again]
        return [host for host in long if host not in self.switched], said


class PowerService:
    """One round after the other; every door to the outside can be replaced by a test."""

    def __init__(
        self,
        config: Mapping[str, Any],
        memory_path: str,
        runner: serving.Runner = serving.run,
        reaches: Callable[[str], bool] = answers,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        say: Callable[[str], None] | None = None,
        maintenance_paths: Sequence[str] = serving.MAINTENANCE,
        lock: str = LOCK,
    ) -> None:
        self.hosts: Mapping[str, Mapping[str, Any]] = config["hosts"]
        self.pause = float(config["pause"])
        self.memory_path = memory_path
        self.runner = runner
        self.reaches = reaches
        self.clock = clock
        self.sleep = sleep
        self.say = say or (lambda line: print(line, flush=True))
        self.maintenance_paths = maintenance_paths
        self.lock = lock
        self.guard = PowerGuard(float(config["after"]), files.read_json(memory_path))
        self.said: list[str] = []
        #: what could not be kept, as it was said last
        self.complaint = ""

    def quiet(self) -> bool:
        """Whether a person or a playbook works on the cluster."""
        with contextlib.suppress(OSError):
            if abs(time.time() - os.lstat(self.lock).st_mtime) < LOCK_FRESH:
                return True
        return places.maintenance(self.maintenance_paths) is not None

    def round(self) -> list[str]:
        """Look at all hosts once; those whose power was switched."""
        with ThreadPoolExecutor(max(1, len(self.hosts))) as pool:
            found = pool.map(lambda one: any(map(self.reaches, one["addresses"])), self.hosts.values())
            seen = dict(zip(self.hosts, found))  # noqa: B905 - no "strict" in the oldest Python that sanity checks
        before = dict(self.guard.switched)
        chosen, said = self.guard.judge(seen, self.clock(), self.quiet())
        for line in said:
            if line not in self.said:
                self.say(line)
        self.said = said
        done = [host for host in chosen if self._switch(host)]
        if self.guard.switched != before:
            self._remember()
        return done

    def _remember(self) -> bool:
        complaint = ""
        try:
            serving.write_file(self.memory_path, json.dumps(self.guard.dump()) + "\n", 0o600)
        except OSError as error:
            complaint = f"{self.memory_path} cannot be written: {error.strerror}"
        # a disk that stays full is said once, and not each round
        if complaint and complaint != self.complaint:
            self.say(f"{complaint}; no power is switched until it can")
        self.complaint = complaint
        return not complaint

    def _switch(self, host: str) -> bool:
        # on record before the act: a guard that dies in it must not begin again
        self.guard.switched[host] = time.time()
        if not self._remember():
            # nothing was done: the next round tries again
            del self.guard.switched[host]
            return False
        self.say(f"{host} has not answered for {self.guard.after:.0f} s: its power is switched, once")
        for number, command in enumerate(self.hosts[host]["commands"]):
            if number:
                self.sleep(self.pause)
            self._run(host, number, command)
        return True

    def _run(self, host: str, number: int, command: list[str]) -> None:
        """The first command is tried once; what gives the power back is worth more tries.

        After one that failed the others are run all the same: it may have switched the power off and not said so.
        """
        for _attempt in range(TRIES if number else 1):
            status, _out, err = self.runner(list(command), COMMAND)
            what = f"command {number + 1} for {host} ({command[0]})"
            if status == 0:
                self.say(f"{what} is done")
                return
            self.say(f"{what} ended with {status}: {err.strip()[:200] or 'it said nothing'}")
            self.sleep(2.0 if number else 0.0)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sparkthor_host power-guard", description="Switch a lost host's power, once.")
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "/etc/sparkthor")
    parser.add_argument("config", nargs="?", default=os.path.join(folder, NAME))
    path = parser.parse_args(argv).config
    config = files.read_json(path)
    if not config.get("hosts"):
        print(f"{path} is missing or names no host; run the playbook again", file=sys.stderr, flush=True)
        return 78
    memory = os.path.join(os.environ.get("STATE_DIRECTORY", "/var/lib/sparkthor-power"), "switched.json")
    service = PowerService(config, memory)
    notify.notify(notify.READY)
    while True:
        service.round()
        notify.notify(notify.ALIVE)
        time.sleep(EVERY)
