# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in its own unit:
# pylint: disable=ansible-bad-function
"""Answers the page on a head: its state, the engine's log, and wishes of those whose key may operate.

The front proxy asks over a UNIX socket, once a second however many look, and says with whose key and right.  Everything
is read by one thread, every two seconds while somebody looks, else as often as the history needs; other hosts all at
once and with a deadline, so that one that hangs delays nobody.  What needs root is done by the parent
(``console_hands``).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._lib import files, foreign, peer
from .._lib.printable import printable
from . import console_hands, console_state, front_socket, loads, places, watchdog_hands
from .notify import ALIVE, READY

CONFIG = "/etc/sparkthor/console.json"
SOCKET = "/run/sparkthor-console/console.sock"
#: seconds between two rounds, and for the answers of one
EVERY, PATIENCE = 2.0, 1.5
#: seconds between two rounds while nobody looks, for each costs every host a question of its GPU; and after the last
#: question until that is so
SELDOM, LOOKED_AT = 8.0, 30.0
#: seconds between two looks into the journal
JOURNAL_EVERY = 10.0
#: seconds between two times that the history is kept, and bytes of it
KEEP_EVERY, KEPT_LIMIT = 60.0, 4_000_000
#: what survives a restart; its folder is root's
HISTORY = "/var/lib/sparkthor-console/history.json"
#: names of the store that are shown
NAMES = 100
#: bytes of an exporter's page, and of a wish
PAGE_LIMIT, WISH_LIMIT = 2_000_000, 4096
#: of the front proxy, which sets these itself
KEY, RIGHT, ADDRESS = "X-Sparkthor-Key", "X-Sparkthor-Right", "X-Real-IP"

#: (address, path) -> text, empty where nobody answers
Fetch = Callable[[str, str], str]


def fetcher(port: int) -> Fetch:
    """Asks the exporter of a host."""

    def fetch(address: str, path: str) -> str:
        try:
            answer = peer.ask(peer.tcp(address, port), "GET", path, PATIENCE, most=PAGE_LIMIT)
        except (OSError, http.client.HTTPException):
            return ""
        return answer.body.decode("utf-8", "replace") if answer.status == 200 else ""

    return fetch


class ConsoleCollector:
    """Reads everything, round by round, and keeps the newest document."""

    def __init__(
        self,
        config: Mapping[str, Any],
        hands: console_hands.ConsoleRemote,
        fetch: Fetch,
        wall: Callable[[], float] = time.time,
        kept: int | None = None,
    ) -> None:
        """``kept``: the open file that the history survives in."""
        self.config, self._hands, self._fetch, self._wall = config, hands, fetch, wall
        self._kept = kept
        self._rates, self._history = console_state.Rates(), console_state.History()
        self._pool = concurrent.futures.ThreadPoolExecutor(32, thread_name_prefix="fetch")
        self._seen: dict[str, dict[str, Any]] = {}
        self._events: list[dict[str, Any]] = []
        self._checks: dict[str, Any] = {}
        self._journal_at, self._kept_at = -JOURNAL_EVERY, time.monotonic()
        if kept is not None:
            with contextlib.suppress(OSError, ValueError):
                self._history.restore(foreign.parse_object(os.pread(kept, KEPT_LIMIT, 0), most=KEPT_LIMIT))
        self.document: dict[str, Any] = {"schema": console_state.SCHEMA, "time": wall(), "groups": [], "hosts": []}

    def forget(self) -> None:
        """Let the next round look at everything, also at what is looked at seldom."""
        self._journal_at = -JOURNAL_EVERY

    def round(self) -> None:
        """One look at everything.  Raises OSError where the root part is gone."""
        now = self._wall()
        hosts = [dict(one) for one in self.config.get("hosts") or ()]
        groups = [dict(one) for one in self.config.get("groups") or ()]
        addresses = {str(one["name"]): str(one["address"]) for one in hosts}
        pages = self._ask({str(one["name"]): (str(one["address"]), "/metrics") for one in hosts})
        # of a group beside another head's own one
        beside = self._ask(
            {
                str(one["name"]): (addresses.get(str(one["head"]), ""), f"/metrics/group/{one['beside']}")
                for one in groups
                if one.get("beside") and not one.get("here")
            }
        )
        engines = self._ask(
            {str(one["name"]): (addresses.get(str(one["head"]), ""), _below("/metrics/engine", one)) for one in groups}
        )
        told = self._hands.ask("look")
        if time.monotonic() - self._journal_at >= JOURNAL_EVERY:
            self._journal_at = time.monotonic()
            self._events = self._news(told["audit"])
            self._checks = self._hands.ask("checks")
        told_by = {str(one["name"]): beside.get(str(one["name"]), pages.get(str(one["head"]), "")) for one in groups}
        shown = [self._group(one, told_by, engines.get(str(one["name"]), ""), now) for one in groups]
        self._history.add(_points(shown), now)
        if time.monotonic() - self._kept_at >= KEEP_EVERY:
            self._kept_at = time.monotonic()
            self._keep()
        head = str(self.config.get("host") or "")
        self.document = {
            "schema": console_state.SCHEMA,
            "time": round(now, 3),
            "host": head,
            "release": str(self.config.get("release") or ""),
            "topology": str(self.config.get("topology") or ""),
            "port": self.config.get("port"),
            "groups": shown,
            "hosts": [self._host(one, pages.get(str(one["name"]), ""), now) for one in hosts],
            "versions": self._versions(hosts, groups, pages),
            "checks": console_state.checks(self._checks, now),
            "drawing": self.config.get("drawing"),
            "store": _store(),
            "keys": console_state.keys(pages.get(head, ""), told["keys"], told["blocked"]),
            "history": self._history.document(),
            "events": self._events,
            "jobs": told["jobs"],
            "playbook": told["playbook"],
        }

    @staticmethod
    def _versions(
        hosts: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]], pages: Mapping[str, str]
    ) -> dict[str, Any]:
        """Of the hosts that answer, because those that are away may come back with others."""
        told = {name: console_state.versions_told(pages[name]) for one in hosts if pages.get(name := str(one["name"]))}
        kinds = {str(one["name"]): str(one.get("kind") or "") for one in hosts}
        parts = [group.get("hosts") or () for group in groups if not group.get("beside")]
        return console_state.versions({name: own for name, own in told.items() if own}, kinds, parts)

    def _keep(self) -> None:
        """A full disk costs the history, and nothing else."""
        if self._kept is not None:
            text = json.dumps(self._history.document()).encode()
            with contextlib.suppress(OSError):
                os.ftruncate(self._kept, 0)
                os.pwrite(self._kept, text, 0)

    def _ask(self, wanted: Mapping[str, tuple[str, str]]) -> dict[str, str]:
        asked = {name: self._pool.submit(self._fetch, *place) for name, place in wanted.items() if place[0]}
        concurrent.futures.wait(asked.values(), PATIENCE + 1.0)
        return {name: one.result() for name, one in asked.items() if one.done() and one.exception() is None}

    def _host(self, given: Mapping[str, Any], page: str, now: float) -> dict[str, Any]:
        """A host as it is, or as it was when it answered last."""
        name = str(given["name"])
        if page:
            self._seen[name] = {**console_state.host(page, name, self._rates, now), "at": now}
        last = self._seen.get(name, {})
        age = now - last["at"] if last else None
        groups = [one["name"] for one in self.config.get("groups") or () if name in one.get("hosts", ())]
        own = {"name": name, "address": given["address"], "groups": groups}
        planned = (self.config.get("memory") or {}).get(name)
        return {**own, **last, "planned": planned, "age": age, "answers": bool(page)}

    def _group(self, given: Mapping[str, Any], told_by: Mapping[str, str], metrics: str, now: float) -> dict[str, Any]:
        name, hosts = str(given["name"]), [str(host) for host in given.get("hosts") or ()]
        here = bool(given.get("here"))
        if here:
            own = places.Places(str(given.get("beside") or ""))
            config = files.read_json(own.config)
            facts = console_state.GroupFacts(
                name,
                str(config.get("model") or given.get("model") or ""),
                files.read_json(own.state),
                places.maintenance(own.maintenance),
                os.path.exists(own.draining),
                bool(config.get("on_demand")),
                hosts,
                loads.loads(files.read_json(own.loads)),
            )
        else:
            state = console_state.state_of_metrics(told_by.get(name, ""), now)
            facts = console_state.GroupFacts(name, str(given.get("model") or ""), state, hosts=hosts)
        told = console_state.group(facts, metrics, self._rates, now)
        return {**told, "head": given["head"], "here": here, "id": str(given.get("beside") or "")}

    def _news(self, audit: list[Any]) -> list[dict[str, Any]]:
        found = []
        for one in self.config.get("groups") or ():
            if not one.get("here"):
                continue
            who = f"watchdog {one['name']}" if len(self.config["groups"]) > 1 else "watchdog"
            with contextlib.suppress(console_hands.ConsoleRefused):
                lines = self._hands.ask("journal", group=str(one.get("beside") or ""), of="watchdog", lines=60)
                found += [console_state.event(at, who, text) for at, text in lines]
        for one in audit:
            if isinstance(one, dict) and one.get("state") != "running":
                found.append(console_state.wish_event(one))
        return sorted(found, key=lambda one: -float(one["at"]))[:120]


def _store() -> list[str]:
    """Names of the models in the store of this host, for whoever wants to switch."""
    try:
        names = os.listdir(places.folders(files.read_json(places.DECLARED))["models"])
    except OSError:
        return []
    # a revision's folder is there under its model's name as well
    return [printable(name)[:200] for name in sorted(names) if not name.startswith(".") and "@" not in name][:NAMES]


def _below(path: str, group: Mapping[str, Any]) -> str:
    return f"{path}/{group['beside']}" if group.get("beside") else path


def _points(groups: list[dict[str, Any]]) -> dict[str, float | None]:
    names = ("tokens_per_second", "running", "first_token")
    return {f"{name}/{one['name']}": one[name] for one in groups for name in names}


class Handler(front_socket.FrontHandler):
    """The front proxy's questions; it has checked the key."""

    server: ConsoleServer
    timeout = 20

    def do_GET(self) -> None:
        path, _mark, query = self.path.partition("?")
        if not self._may("view"):
            return
        if path == "/state":
            self.server.pace.wanted()
            self._answer(200, for_right(self.server.collector.document, self.headers.get(RIGHT) or ""))
        elif path == "/log":
            given = urllib.parse.parse_qs(query)
            self._log((given.get("group") or [""])[0])
        else:
            self._answer(404, {"error": "there is no such thing here"})

    def _log(self, group: str) -> None:
        try:
            lines = self.server.hands.ask("journal", group=group, of="engine", lines=200)
        except console_hands.ConsoleRefused as refused:
            self._answer(refused.status, {"error": str(refused)})
        else:
            self._answer(200, {"lines": [{"at": at, "text": text} for at, text in lines]})

    def do_POST(self) -> None:
        if self.path != "/do" or not self._may("operate"):
            if self.path != "/do":
                self._answer(404, {"error": "there is no such thing here"})
            return
        try:
            length = int(self.headers.get("Content-Length") or 0)
            if not 0 < length <= WISH_LIMIT:
                raise ValueError("a wish has up to 4096 bytes")
            wish = foreign.parse_object(self.rfile.read(length), most=WISH_LIMIT, depth=3)
            own = {"who": self.headers.get(KEY), "address": self.headers.get(ADDRESS)}
            self._answer(202, self.server.hands.ask("act", wish={**wish, **own}))
        except console_hands.ConsoleRefused as refused:
            self._answer(refused.status, {"error": str(refused)})
        except ValueError as error:
            self._answer(400, {"error": str(error)})

    def _may(self, wanted: str) -> bool:
        right = self.headers.get(RIGHT)
        if right == "operate" or (right == "view" and wanted == "view"):
            return True
        self._answer(403, {"error": f"this key may not {wanted} here; give it console: {wanted} and run keys.yml"})
        return False

    def _answer(self, status: int, document: Mapping[str, Any]) -> None:
        body = json.dumps(document, separators=(",", ":")).encode()
        self.reply(status, body, "application/json")


#: of a wish, for those who may operate
_OPERATORS = ("key", "address", "id")


def for_right(document: Mapping[str, Any], right: str) -> dict[str, Any]:
    """Who may only look sees the sum of all keys, and of those who acted the key's name, not from where they came."""
    if right == "operate":
        return dict(document)
    nameless = {
        what: [{name: one[name] for name in one if name not in _OPERATORS} for one in document.get(what) or ()]
        for what in ("jobs", "events")
    }
    document = {**document, **nameless}
    keys = document.get("keys") or []
    if not keys:
        return document
    both = {name: sum(one[name] for one in keys) for name in ("requests", "refused", "tokens")}
    return {**document, "keys": [{"name": "", **both, "limits": {}, "known": False, "blocked": False}]}


class Pace:
    """When the next round is due: soon while somebody looks."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked = -LOOKED_AT
        #: the newest document may be older than who looks would take it for
        self._seldom = False

    def _watched(self) -> bool:
        return time.monotonic() - self._asked < LOOKED_AT

    def wanted(self) -> None:
        """Somebody looks.  After a while without anybody the round that this begins is waited for."""
        with self._changed:
            self._asked = time.monotonic()
            if self._seldom:
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._seldom, 2 * PATIENCE)

    def wait(self, began: float) -> bool:
        """Until the next round is due, where one began at this time of the monotonic clock and has ended now.

        Whether it is for somebody who came after a while without anybody.
        """
        with self._changed:
            self._seldom = False
            self._changed.notify_all()
        time.sleep(max(0.2, EVERY - (time.monotonic() - began)))
        with self._changed:
            self._seldom = not self._watched()
            return self._seldom and self._changed.wait_for(self._watched, SELDOM - EVERY)


class ConsoleServer(front_socket.FrontSocket):
    #: given before the first question is taken
    collector: ConsoleCollector
    hands: console_hands.ConsoleRemote
    pace: Pace

    def __init__(self, path: str, group: str) -> None:
        super().__init__(path, group, Handler)
        self.pace = Pace()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sparkthor_host console", description="Answer the page on this head.")
    parser.add_argument("config", nargs="?", default=CONFIG)
    parser.add_argument("--socket", default=SOCKET)
    given = parser.parse_args(argv)
    config = files.read_json(given.config)
    if not config.get("hosts"):
        print(f"{given.config} is missing or names no hosts; run the playbook again", file=sys.stderr, flush=True)
        return 78
    # opened by root, written by nobody; a full disk costs the history alone
    kept = None
    with contextlib.suppress(OSError):
        kept = os.open(HISTORY, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    server = ConsoleServer(given.socket, str(config.get("front_group") or ""))
    guard = console_hands.ConsoleGuard(console_hands.ConsoleHands(config), watchdog_hands.Hands())
    hands = watchdog_hands.split(guard, str(config["user"]), [], console_hands.ConsoleRemote)
    if hands is None:
        return 1
    serve(server, hands, ConsoleCollector(config, hands, fetcher(int(config["exporter_port"])), kept=kept))
    return 1


def serve(server: ConsoleServer, hands: console_hands.ConsoleRemote, collector: ConsoleCollector) -> None:
    """Answer, and look again and again, until the root part is gone."""
    server.collector, server.hands = collector, hands
    with contextlib.suppress(OSError):
        collector.round()
        threading.Thread(target=server.serve_forever, name="answers", daemon=True).start()
        hands.notify(READY)
        began = time.monotonic()
        while True:
            if server.pace.wait(began):
                collector.forget()
            began = time.monotonic()
            collector.round()
            hands.notify(ALIVE)
