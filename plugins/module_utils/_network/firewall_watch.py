# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in its own unit:
# pylint: disable=ansible-bad-function
"""Keep the cluster's own nftables table loaded, on the host and without Ansible.

Whoever flushes the ruleset (``systemctl restart nftables``, a script, a package) takes our table along, and nothing
tells the unit that loaded it.  The kernel tells: it announces every change of a ruleset over netlink.  After each one,
and every few seconds besides, the table is compared with what the kernel made of our file, and loaded again if it
differs.  No other table is ever touched.

The module ``firewall_apply`` installs this file beside the unit that runs it, and status and doctor ask
:func:`compare`.  It has to work on hosts without an engine, so it stays one self-contained file that needs nothing but
the standard library.

    python3 firewall-watch /usr/sbin/nft
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

TABLE = "sparkthor"
RULES = "/etc/sparkthor/firewall.nft"
#: a change that waits for its confirmation, see firewall_host
ARMED = "/run/sparkthor-firewall/armed.json"
STATE = "/run/sparkthor-firewall-watch/state.json"
#: seconds between two comparisons that no change asked for
EVERY = 10.0
#: seconds between two comparisons at least: Docker changes its own tables hundreds of times in one start
PAUSE = 0.3
#: seconds after which a load that failed is tried again
AGAIN = 2.0
COMMAND_LIMIT = 20.0
NOT_LOADED = f"the table inet {TABLE} is not loaded"
#: the kernel's names for "nftables" and "changes of it": linux/netlink.h, linux/netfilter/nfnetlink.h
NETLINK_NETFILTER = 12
SOL_NETLINK = 270
NETLINK_ADD_MEMBERSHIP = 1
NFNLGRP_NFTABLES = 7

#: argv -> (exit status, stdout, stderr)
Runner = Callable[[list[str]], tuple[int, str, str]]


def run(argv: list[str]) -> tuple[int, str, str]:
    """A command that can neither hang nor raise."""
    try:
        # as _lib/command.py, which this file cannot have beside it
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        return 127, "", f"{argv[0]}: {error.strerror}"
    try:
        out, err = process.communicate(timeout=COMMAND_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        # one that hangs in the kernel hears no signal, and is left behind
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        return 124, "", f"{argv[0]}: no answer within {COMMAND_LIMIT:g} s"
    return process.returncode, out, err


def find_nft() -> str:
    """Where nft is; empty where it is not installed."""
    return shutil.which("nft", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") or ""


def canonical(text: str) -> list[str]:
    """``nft --json list table`` as comparable lines: no handles, and sets without an order."""
    document = json.loads(text)
    return [json.dumps(_plain(item), sort_keys=True) for item in document.get("nftables", []) if "metainfo" not in item]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        plain = {key: _plain(item) for key, item in value.items() if key not in ("handle", "index")}
        for key in ("set", "elem"):
            if isinstance(plain.get(key), list):
                plain[key] = sorted(plain[key], key=lambda item: json.dumps(item, sort_keys=True))
        return plain
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


class NftError(RuntimeError):
    """nft failed; the message is its own."""


def loaded(ask: Runner, nft: str) -> list[str]:
    """Our table as it is loaded, in comparable lines; empty where there is none."""
    code, out, err = ask([nft, "-s", "-j", "list", "table", "inet", TABLE])
    if code == 0:
        with contextlib.suppress(ValueError):
            return canonical(out)
        raise NftError(f"nft lists the table inet {TABLE} in words that nobody knows: {out[:100]!r}")
    if "No such file" in err:
        return []
    raise NftError(f"nft cannot list the table inet {TABLE}: {err.strip()}")


def difference(wanted: list[str], live: list[str]) -> str:
    """What is wrong with a loaded table, in words; empty if nothing is."""
    if live == wanted:
        return ""
    if not live:
        return NOT_LOADED
    missing, foreign = (sum(line not in other for line in one) for one, other in ((wanted, live), (live, wanted)))
    return f"the loaded table inet {TABLE} is another one: {missing} of its parts are missing, {foreign} are not ours"


def unconfirmed(armed: str = ARMED, now: float | None = None) -> bool:
    """Whether a change waits for its controller, so that the table may differ from the file."""
    try:
        with open(armed, encoding="utf-8") as stream:
            until = float(json.load(stream).get("until", 0))
    except (OSError, ValueError, TypeError, AttributeError):
        return False
    # the way back fires at that time; a file that lies there longer says nothing any more
    return (time.monotonic() if now is None else now) < until


def compare(ask: Runner, rules: str = RULES, nft: str = "") -> dict[str, Any]:
    """The loaded table beside the file, for whoever asks from outside.

    ``state`` is C(unmanaged) without a file, C(closed), C(open), C(unconfirmed) while a change waits for its
    controller, or C(unknown); ``reason`` says why.
    """
    if not os.path.exists(rules):
        return {"state": "unmanaged", "reason": ""}
    if unconfirmed():
        return {"state": "unconfirmed", "reason": "a change waits for its controller"}
    nft = nft or find_nft() or "nft"
    try:
        live = loaded(ask, nft)
    except NftError as error:
        return {"state": "unknown", "reason": str(error)}
    if not live:
        return {"state": "open", "reason": NOT_LOADED}
    # what the kernel makes of the file, where it can hurt nobody
    script = f'"$0" -f "$1" && exec "$0" -s -j list table inet {TABLE}'
    code, out, err = ask(["unshare", "--net", "--", "/bin/sh", "-c", script, nft, rules])
    try:
        if code != 0:
            raise ValueError(err.strip())
        reason = difference(canonical(out), live)
    except ValueError as error:
        return {"state": "unknown", "reason": f"{rules} cannot be compared: {error}"}
    return {"state": "open" if reason else "closed", "reason": reason}


class Watch:
    """One comparison after the other; every door to the outside can be replaced by a test."""

    def __init__(
        self,
        nft: str,
        ask: Runner = run,
        rules: str = RULES,
        armed: str = ARMED,
        state: str = STATE,
        say: Callable[[str], None] = lambda line: print(line, flush=True),
    ) -> None:
        self.nft = nft
        self.ask = ask
        self.rules = rules
        self.armed = armed
        self.state = state
        self.say = say
        #: the file as it was loaded last, and what the kernel made of it
        #: of the rules that were loaded last
        self.text: str | None = None
        self.wanted: list[str] = []
        self.reloads = 0
        self.said = ""

    def check(self) -> bool:
        """Compare once, and load the table if it differs; whether the host is closed now, as far as it should be."""
        if unconfirmed(self.armed):
            self._publish(self.said)
            return True
        try:
            self._repair()
            problem = ""
        except (NftError, OSError) as error:
            problem = str(error)
        if problem != self.said:
            self.said = problem
            self.say(f"THE FIREWALL IS OPEN: {problem}" if problem else "the firewall is closed")
        self._publish(problem)
        return not problem

    def _repair(self) -> None:
        with open(self.rules, encoding="utf-8") as stream:
            text = stream.read()
        before = loaded(self.ask, self.nft)
        if text == self.text and before == self.wanted:
            return
        now = self._load()
        if before != now:
            self.reloads += 1
            self.say(f"{difference(now, before)}; loaded it again")
        self.text, self.wanted = text, now

    def _load(self) -> list[str]:
        """Load the file, and return what the kernel makes of it.  Raises NftError.

        A load is one transaction, which replaces our table and no other.  Two in a row must give the same: what was
        done between a load and its listing would else be taken for wanted.
        """
        listings = []
        for _time in range(2):
            code, _out, err = self.ask([self.nft, "-f", self.rules])
            if code != 0:
                raise NftError(f"nft cannot load {self.rules}: {err.strip()}")
            listings.append(loaded(self.ask, self.nft))
        if not listings[1] or listings[0] != listings[1]:
            raise NftError(f"somebody changes the table inet {TABLE} as soon as it is loaded")
        return listings[1]

    def _publish(self, problem: str) -> None:
        """For the exporter, which may not ask nft."""
        state = {"closed": not problem, "reason": problem, "reloads": self.reloads, "updated": round(time.time(), 3)}
        scratch = f"{self.state}.new"
        try:
            # the folder is root's alone
            with open(scratch, "w", encoding="utf-8") as stream:
                json.dump(state, stream)
            os.chmod(scratch, 0o644)
            os.replace(scratch, self.state)
        except OSError as error:
            self.say(f"{self.state} cannot be written: {error.strerror}")


def notify(text: str) -> None:
    """sd_notify(3): systemd starts a watch anew that hangs."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if path:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door, contextlib.suppress(OSError):
            door.sendto(text.encode(), "\0" + path[1:] if path.startswith("@") else path)


def announcements() -> socket.socket:
    """Where the kernel announces changes of a ruleset."""
    door = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
    door.bind((0, 0))
    door.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, NFNLGRP_NFTABLES)
    door.setblocking(False)
    return door


def wait(door: socket.socket, seconds: float) -> None:
    """Until the kernel announces something, or so many seconds; whatever came is forgotten."""
    select.select([door], [], [], seconds)
    # what overflowed is an announcement as well
    with contextlib.suppress(OSError):
        while door.recv(1 << 16):
            pass


def main(argv: list[str]) -> int:
    watch = Watch(argv[0] if argv else "/usr/sbin/nft")
    # before the first comparison, so that no change can fall between
    door = announcements()
    while True:
        closed = watch.check()
        notify("READY=1\nWATCHDOG=1")
        time.sleep(PAUSE)
        wait(door, EVERY if closed else AGAIN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
