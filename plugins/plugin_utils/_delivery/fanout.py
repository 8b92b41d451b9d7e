# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of a fan-out: who lacks what, the key of a run, and what is shown while it goes on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import human
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.fanout import REPORT_LIMIT, read_reports
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry, valid_sha256
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fanout_routes

#: seconds between two questions to the seed, and between two lines where lines cannot be changed
ASK_EVERY = 0.5
PLAIN = 5.0


class RunError(Exception):
    """A sentence for the user."""


class FanoutPlan(NamedTuple):
    seed: str
    order: list[str]  # the seed first
    need: dict[str, list[dict[str, Any]]]
    wanted: list[dict[str, Any]]  # contents that some host lacks: {sha256, size}


def plan(hostvars: Mapping[str, Any], hosts: Sequence[str], results: str, head: str) -> FanoutPlan:
    """The same for every host that asks: it depends on the registered results alone.

    A host without such a result has no part in the run: it may have what the others lack, but nobody has checked.
    """
    need: dict[str, list[dict[str, Any]]] = {}
    for host in hosts:
        outcome = hostvars[host].get(results) or {}
        if "models" in outcome:
            need[host] = list(outcome.get("need") or [])
    if not need:
        raise RunError(f"no host was checked (no {results}): run the stage check first")
    hosts = list(need)
    # what a broken fan-out took of the disk holds nothing yet that could be passed on
    missing = {host: sum(item["size"] - item["have"] for item in items) for host, items in need.items()}
    seed = fanout_routes.choose_seed(missing, head)
    wanted: dict[str, dict[str, Any]] = {}
    for host in hosts:
        for item in need[host]:
            wanted.setdefault(item["sha256"], {"sha256": item["sha256"], "size": item["size"]})
    return FanoutPlan(seed, [seed, *(host for host in hosts if host != seed)], need, list(wanted.values()))


def asked(need: Any, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """What a host says it needs, in the controller's own words: contents that are declared, with their own sizes.

    Raises RunError for anything else.
    """
    sizes = {entry.sha256: entry.size for entry in entries}
    reports: dict[str, dict[str, Any]] = {}
    for item in need if isinstance(need, list) else [need]:
        sha256 = item.get("sha256") if isinstance(item, Mapping) else None
        if not isinstance(sha256, str) or sha256 not in sizes:
            raise RunError(
                f"it asks for a content that was not declared for it ({str(sha256)[:64]!r}): nothing was "
                "sent. Look at what runs on that host, and leave it out (--limit) until then"
            )
        size = sizes[sha256]
        try:
            counts = {key: foreign.whole(item[key], size) for key in ("have", "held") if key in item}
        except foreign.ForeignError as error:
            raise RunError(f"it says that it has more of a content than there is of it ({error}): run again") from None
        reports[sha256] = {"sha256": sha256, "size": size, "have": 0, **counts}
    return list(reports.values())


def told_parts(told: Any, wanted: Iterable[Mapping[str, Any]], size: int) -> dict[str, list[str]]:
    """Digests of parts as a host tells them: as many as there are parts. Whether they are right, each host finds out.

    Raises RunError.
    """
    parts: dict[str, list[str]] = {}
    for item in wanted:
        digests = told.get(item["sha256"]) if isinstance(told, Mapping) else None
        count = -(-item["size"] // size)
        if (
            not isinstance(digests, list)
            or len(digests) != count
            or not all(isinstance(one, str) and valid_sha256(one) for one in digests)
        ):
            raise RunError(
                f"what it tells about the parts of {item['sha256'][:12]}… are not {count} digests: "
                "nothing was passed on. Verify its copy in full (model_store_verify: full), and run again"
            )
        parts[item["sha256"]] = digests
    return parts


def absent(folders: Iterable[tuple[str, Sequence[Entry]]], wanted: Iterable[Mapping[str, Any]]) -> list[str]:
    """SHA-256 of the wanted contents that are in no folder of the controller."""
    here = {
        entry.sha256
        for folder, entries in folders
        for entry in entries
        if folder and os.path.exists(os.path.join(folder, entry.path))
    }
    return [item["sha256"] for item in wanted if item["sha256"] not in here]


def contents(
    folders: Iterable[tuple[str, Sequence[Entry]]],
    wanted: Iterable[Mapping[str, Any]],
    size: int,
    known: Mapping[str, list[str]] | None = None,
) -> list[list[Any]]:
    """Of each wanted content its digest, its size and the digests of its parts; those that the seed told are known."""
    known, wanted = known or {}, list(wanted)
    places: dict[str, tuple[str, str]] = {}
    for folder, entries in folders:
        for entry in entries:
            places.setdefault(entry.sha256, (folder, entry.path))
    by_folder: dict[str, list[str]] = {}
    for item in wanted:
        if item["sha256"] not in known:
            folder, path = places[item["sha256"]]
            if not folder:
                raise RunError(f"{path}: the hosts that had it do not have it any more: run again")
            by_folder.setdefault(folder, []).append(path)
    parts = {(folder, path): digests for folder, names in by_folder.items()
             for path, digests in push.part_digests(folder, names, size).items()}  # fmt: skip
    return [
        [sha256, item["size"], known[sha256] if sha256 in known else parts[places[sha256]]]
        for item in wanted
        for sha256 in [item["sha256"]]
    ]


def _key_file(run: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{16}", run):
        raise RunError(f"run {run!r}: not the name of a run")
    return push.user_cache("fanout", f"{run}.key")


def new_run() -> str:
    """A name, and a key that the controller's other processes read from a file of the user's alone."""
    run = secrets.token_hex(8)
    path = _key_file(run)
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    os.chmod(folder, 0o700)
    for name in os.listdir(folder):
        # of runs that were broken off
        with contextlib.suppress(OSError):
            if time.time() - os.stat(os.path.join(folder, name)).st_mtime > 86400:
                os.unlink(os.path.join(folder, name))
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32))
    return run


def key(run: str) -> str:
    with open(_key_file(run), encoding="ascii") as file:
        return file.read()


def forget(run: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_key_file(run))


def read_status(text: str, run: str) -> dict[str, Any]:
    """The hosts' reports as a host's program wrote them; none while there is no sound one of this run."""
    with contextlib.suppress(foreign.ForeignError):
        document = foreign.parse_object(text, REPORT_LIMIT)
        if document.get("run") == run:
            return read_reports(json.dumps(document.get("nodes") or {}))
    return {}


def line(host: str, entry: Mapping[str, Any]) -> str:
    if not entry:
        return f"{host}: not heard of yet"
    if entry["state"] == "failed":
        return f"{host}: {entry['error']}"
    if entry.get("preparing"):
        return f"{host}: reads what it has"
    received, want = int(entry["received"]), int(entry["want"])
    rate = received / max(float(entry.get("seconds") or 0), 0.001)
    if entry["state"] == "done":
        return f"{host}: {human(received)} in {entry['seconds']:.1f} s ({human(rate)}/s)"
    left = f"{(want - received) / rate:.0f} s left" if received else "waiting"
    return f"{host}: {human(received)} of {human(want)}, {human(rate)}/s, {left}"


class Board:
    """A line a host: changed in place on a terminal, else printed anew now and then."""

    def __init__(self, hosts: Sequence[str], in_place: bool, say: Callable[..., None]) -> None:
        self.hosts = list(hosts)
        self._in_place = in_place
        self._say = say
        self._drawn = False
        self._told = 0.0
        self._last: dict[str, str] = {}

    def show(self, nodes: Mapping[str, Mapping[str, Any]], now: float, last: bool = False) -> None:
        lines = {host: printable(line(host, nodes.get(host) or {}))[:500] for host in self.hosts}
        if self._in_place:
            up = f"\x1b[{len(self.hosts)}A" if self._drawn else ""
            self._say(up + "".join(f"\r\x1b[2K  {text}\n" for text in lines.values()), newline=False)
            self._drawn = True
            return
        if not last and now - self._told < PLAIN:
            return
        if not self._told and not last:
            self._told = now  # the first line comes once there is something to say
            return
        self._told = now
        for host, text in lines.items():
            if self._last.get(host) != text:
                self._say(f"sparkthor: {text}")
        self._last = lines


def follow(
    board: Board,
    ask: Callable[[], tuple[dict[str, Any], bool]],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Until every host is done or has failed, or the seed's program has ended; what the hosts said last."""
    pause = 0.1
    began = clock()
    while True:
        nodes, alive = ask()
        ended = all((nodes.get(host) or {}).get("state") in ("done", "failed") for host in board.hosts)
        if ended or (not alive and clock() - began > 1.0):
            board.show(nodes, clock(), last=True)
            return nodes
        board.show(nodes, clock())
        sleep(pause)
        pause = min(pause * 2, ASK_EVERY)
