# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an engine's log says to a person who waits: how far a load is, and why one failed.

Pure text in, small answers out; how the log reads is in the engine's own file (engines/). Used by the watchdog on the
head and by the module that waits for it, hence the standard library alone.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from .._lib import foreign
from .._lib.printable import printable
from .engines import registry
from .engines.base import LogForm

_COUNT = re.compile(r"\b(\d+)/(\d+)\b")


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a load stands. C(mark) changes whenever the log shows anything new."""

    text: str = ""
    fraction: float | None = None
    mark: str = ""
    stage: int = -1
    share: float = 0.0
    #: of the stage; empty before the first one
    name: str = ""


def plain(line: str, form: LogForm = registry.DEFAULT.log) -> str:
    """A log line without colours, logger prefixes and all but the newest state of a progress bar."""
    parts = [part for part in map(printable, line.split("\r")) if part.strip()]
    line = parts[-1] if parts else ""
    return form.prefix.sub("", line.strip()).strip()


def messages(journal_json: str) -> list[str]:
    """Messages out of C(journalctl -o json); a message with control characters comes as a list of bytes."""
    lines: list[str] = []
    for row in journal_json.splitlines():
        try:
            message = foreign.parse_object(row, len(row)).get("MESSAGE")
        except ValueError:
            continue
        if isinstance(message, list):
            raw = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256)
            message = raw.decode("utf-8", "replace")
        if isinstance(message, str):
            lines.append(message)
    return lines


def progress(lines: Iterable[str], earlier: Progress | None = None, form: LogForm = registry.DEFAULT.log) -> Progress:
    """The furthest stage that the lines speak of, with the newest meaningful line.

    The lines may be the tail of a log: what an earlier call already saw is not unseen again.
    """
    reached = earlier.stage if earlier else -1
    share = earlier.share if earlier else 0.0
    text = ""
    mark = ""
    shown = ""
    for raw in lines:
        line = plain(raw, form)
        if not line:
            continue
        if form.dull.match(line):
            continue
        mark = line
        if form.logged.search(raw):
            shown = line
        # A line speaks of one stage, the first that fits: the engine's first line names all its settings.
        index = next((number for number, stage in enumerate(form.stages) if stage.pattern.search(line)), -1)
        if index < 0 or index < reached:
            continue
        if index > reached:
            share = 0.0
        reached = index
        part = _part(line, form)
        # every rank draws its own bar, and a checkpoint may have several: a bar never runs backwards
        share = max(share, part) if part is not None else share
        text = line
        shown = ""
    if reached < 0:
        return Progress(_short(mark), None, mark)
    mark = mark or (earlier.mark if earlier else "")
    at = form.stages[reached]
    wide = at.end - at.start
    stage = f"{at.name} {round(share * 100)} %" if share and wide > 0.05 else at.name
    newest = _short(shown if shown != text else "")
    said = f"{stage}: {newest}" if newest else stage
    return Progress(said, round(at.start + wide * share, 3), mark, reached, share, at.name)


def _part(line: str, form: LogForm) -> float | None:
    percent = form.percent.search(line)
    if percent:
        return min(1.0, int(percent.group(1)) / 100)
    count = _COUNT.search(line)
    if count and int(count.group(2)) > 0 and int(count.group(1)) <= int(count.group(2)):
        return int(count.group(1)) / int(count.group(2))
    return None


def _short(line: str, limit: int = 110) -> str:
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why a start failed, what to do, and whether trying again is pointless."""

    reason: str = ""
    fix: str = ""
    final: bool = False


def explain(lines: Iterable[str], form: LogForm = registry.DEFAULT.log) -> Failure:
    """The cause among the last lines of a failed start: the first precise error, not the last traceback's tail."""
    precise = ""
    vague = ""
    last = ""
    cleaned = [plain(raw, form) for raw in lines]
    for known in form.known:
        for line in cleaned:
            if known.pattern.search(line):
                return Failure(_short(line, 400), known.fix, known.final)
    for line in cleaned:
        if not line or form.dull.match(line):
            continue
        last = line
        if not form.error.match(line):
            continue
        if form.vague.search(line):
            vague = vague or line
        else:
            precise = precise or line
    return Failure(_short(precise or vague or last, 400))
