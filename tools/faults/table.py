# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table: what each fault may cost, and what a list of runs came to.  Nothing here touches a host."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: "1.3 × clean start", what everything that has to load the model again is allowed
FACTOR = 1.3
#: clients in flight get their error this long after the fault was noticed, at the latest
CLIENT_GRACE = 10.0


@dataclass(frozen=True)
class Row:
    """One fault: its limits in seconds, and from when "serving again" is counted."""

    name: str
    title: str
    noticed: float | None
    #: on top of FACTOR × clean start; None = serving must not be interrupted at all
    again: float | None
    since: str = "the fault"
    #: whether the clients can hear of it: a head without power says nothing to anybody
    clients: bool = True
    #: one short request after the other, with pauses: long ones for an hour leave nothing of a small machine
    calm: bool = False


ROWS: tuple[Row, ...] = (
    Row("engine", "vLLM's engine core killed", 15, 60),
    Row("raylet", "SIGKILL of a worker's raylet", 15, 45),
    # what docs/self-healing.md promises of a small model: Ray tells of a rank elsewhere no more than its CPU time
    Row("wedge", "vLLM wedged (SIGSTOP of a worker's rank)", 120, 60),
    Row("rank", "SIGKILL of a worker's rank while vLLM's engine core is stopped", 15, 60),
    Row("watchdog", "watchdog killed", 30, None),
    Row("link", "fabric link of a worker cut 90 s (silent)", 30, 60, "fixing"),
    Row("worker", "power loss of a worker, back after 60 s", 30, 60, "its ssh"),
    Row("head", "power loss of the head, back after 60 s", None, 60, "its ssh", clients=False),
    Row("all", "power loss of all, back in random order", None, 60, "the last one's ssh", clients=False),
    Row("front", "front proxy killed", None, 0, clients=False),
    Row("disk", "head's root disk full, then freed", None, 60, "freeing"),
    Row("shm", "head's /dev/shm full, then freed", None, 60, "freeing"),
    Row("inodes", "no inode left on the head's root disk, then freed", None, 60, "freeing"),
    # the dashboard stays stopped to the end
    Row("dashboard", "SIGKILL of a worker's raylet while Ray's dashboard is stopped", 45, 60),
    # by the kernel's own OOM killer
    Row("oom_engine", "out of memory: vLLM's engine core", 15, 60),
    Row("oom_raylet", "out of memory: a worker's raylet", 15, 45),
    Row("oom_watchdog", "out of memory: the watchdog", 30, None),
    Row("oom_front", "out of memory: the front proxy", None, 0, clients=False),
    Row("read_only", "head's root file system read-only after an error, then a power cycle", None, 60, "its ssh"),
    Row("blocked", "writes to the head's root disk hang 75 s", None, 60, "they go on"),
    Row("half_loss", "20 % loss on the half with the control address, 90 s", None, 60, "fixing", clients=False),
    Row("duplicate", "a worker's control address on another host as well, 90 s", None, 60, "its removal"),
    Row("clock", "clock of our programs on all hosts an hour ahead, then an hour behind", None, None),
    Row("renewal", "DHCP gives a worker and the head other management addresses", None, None),
    Row("half", "the other half of a worker's cable without carrier for an hour", None, None, calm=True),
)
BY_NAME: Mapping[str, Row] = {row.name: row for row in ROWS}


@dataclass
class Run:
    """One fault, once."""

    #: seconds from the fault until the state was no longer ``serving``; None = it never left it
    noticed: float | None = None
    #: seconds from the row's zero until a completion came through the front proxy again
    again: float | None = None
    #: seconds from the fault until each request that was in flight had ended
    clients: list[float] = field(default_factory=list)
    #: requests in flight that were still open when the run ended
    hanging: int = 0
    #: requests that failed, among all that were sent
    failed: int = 0
    clean_start: float = 0.0
    load: float = 0.0
    note: str = ""
    #: the state's changes as they came, with the seconds since the fault
    story: list[str] = field(default_factory=list)
    commit: str = ""
    #: what must not be, in words: an orphan, a torn file, a unit started anew
    troubles: list[str] = field(default_factory=list)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Run:
        return cls(**{key: value for key, value in data.items() if key in cls.__dataclass_fields__})


def middle(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def again_limit(row: Row, runs: Sequence[Run]) -> float | None:
    """From the clean starts measured together with these runs."""
    if row.again is None:
        return None
    clean = middle(run.clean_start for run in runs if run.clean_start > 0)
    return None if clean is None else FACTOR * clean + row.again


def misses(row: Row, runs: Sequence[Run]) -> list[str]:
    """What of the row does not hold; empty = all of it does."""
    missed = [trouble for run in runs for trouble in run.troubles]
    if not runs:
        return [*missed, "never run"]
    if row.noticed is not None:
        noticed = middle(run.noticed for run in runs)
        unseen = sum(run.noticed is None for run in runs)
        if unseen:
            missed.append(f"not noticed in {unseen} of {len(runs)} runs")
        elif noticed is not None and noticed > row.noticed:
            missed.append(f"noticed after {noticed:.1f} s, allowed {row.noticed:g} s")
    if row.again is None:
        failed = sum(run.failed for run in runs)
        if failed:
            missed.append(f"{failed} requests failed, none may")
    else:
        limit = again_limit(row, runs)
        again = middle(run.again for run in runs)
        lost = sum(run.again is None for run in runs)
        if limit is None:
            missed.append("no clean start was measured in the same run")
        elif lost:
            missed.append(f"not serving again in {lost} of {len(runs)} runs")
        elif again is not None and again > limit:
            missed.append(f"serving again after {again:.1f} s, allowed {limit:.1f} s")
    if row.clients:
        missed += _client_misses(runs)
    return missed


def _client_misses(runs: Sequence[Run]) -> list[str]:
    found = []
    hanging = sum(run.hanging for run in runs)
    if hanging:
        found.append(f"{hanging} clients in flight never got an answer")
    for run in runs:
        if run.noticed is None or not run.clients:
            continue
        late = max(run.clients)
        if late > run.noticed + CLIENT_GRACE:
            found.append(f"a client in flight heard of it after {late:.1f} s, noticed after {run.noticed:.1f} s")
    return found


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def lines(results: Mapping[str, Sequence[Run]]) -> list[str]:
    """The table as Markdown, medians first, single runs behind them."""
    head = "| fault | n | clean start | noticed (limit) | serving again (limit) | clients ended | holds |"
    text = [head, "|---|---|---|---|---|---|---|"]
    for row in ROWS:
        runs = list(results.get(row.name, ()))
        if not runs:
            continue
        bad = misses(row, runs)
        noticed = "–"
        if row.noticed is not None:
            noticed = f"{_seconds(middle(run.noticed for run in runs))} (≤ {row.noticed:g})"
        if row.again is None:
            again = f"{sum(run.failed for run in runs)} requests failed (0)"
        else:
            values = ", ".join(_seconds(run.again) for run in runs)
            again = (
                f"{_seconds(middle(run.again for run in runs))} (≤ {_seconds(again_limit(row, runs))}; {values}) "
                f"after {row.since}"
            )
        clients = [value for run in runs for value in run.clients]
        ended = f"≤ {max(clients):.1f}" if clients else "–"
        clean = _seconds(middle(run.clean_start for run in runs if run.clean_start > 0))
        text.append(
            f"| {row.title} | {len(runs)} | {clean} | {noticed} | {again} | {ended} | "
            f"{'yes' if not bad else 'NO: ' + '; '.join(bad)} |"
        )
    return text
