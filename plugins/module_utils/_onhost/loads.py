# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a model's loads took on this head, and so how long the one that runs will take.

One JSON document on the head, which the watchdog writes and whoever wants to know reads::

    {"version": 1,
     "loads": [{"engine": "4c17…", "model": "/var/lib/…/qwen3@6f1e…", "split": "TP=1 PP=3", "bytes": 35000000000,
                "seconds": 91.2, "stages": {"loading weights": 12.0, …}, "ended": 1790000000.0, "invocation": "…"}]}

C(engine) is a digest of what is installed, C(seconds) are those from the engine's start to its first completion,
C(stages) the second at which each stage began, C(bytes) the weights of all ranks together (0 where the engine fetches
the model itself), C(ended) seconds of the epoch. The newest load is the last. Standard library only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from .._lib import foreign

VERSION = 1
#: loads that are kept, of all engines, revisions and splits together
KEPT = 40
#: of these the median is the estimate: one slow load, as after a power loss, is no rule
_RECENT = 3
WEIGHTS = "loading weights"
_KEY = ("engine", "model", "split")
_WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def loads(document: Any) -> list[dict[str, Any]]:
    """Those of a document that can be used; none of one of another version."""
    if not isinstance(document, Mapping) or document.get("version") != VERSION:
        return []
    rows = document.get("loads")
    return [dict(row) for row in rows if _is_load(row)] if isinstance(rows, list) else []


def _is_load(row: Any) -> bool:
    if not isinstance(row, Mapping) or not isinstance(row.get("stages"), Mapping):
        return False
    texts = all(isinstance(row.get(key), str) for key in _KEY)
    try:
        return texts and all(foreign.number(value) >= 0 for value in (row.get("seconds"), *row["stages"].values()))
    except ValueError:
        return False


def described(given: Mapping[str, Any]) -> dict[str, Any]:
    """What is loaded, by the paths that C(serving.json) names: C(engine) is the engine's record, C(model) a folder."""
    model, engine = str(given.get("model") or ""), ""
    try:
        with open(str(given.get("engine") or ""), "rb") as record:
            engine = hashlib.sha256(record.read()).hexdigest()[:12]
    except OSError:
        pass
    try:
        size = sum(entry.stat().st_size for entry in os.scandir(model) if entry.name.endswith(_WEIGHT_FILES))
    except OSError:  # a name of the hub
        size = 0
    return {"engine": engine, "model": model, "split": str(given.get("split") or ""), "bytes": size}


def kept(document: Any, load: Mapping[str, Any]) -> dict[str, Any]:
    """The document with one load more."""
    return {"version": VERSION, "loads": [*loads(document), dict(load)][-KEPT:]}


def alike(rows: Sequence[Mapping[str, Any]], of: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The newest loads of the same engine, revision and split."""
    return [row for row in rows if all(row.get(key) == of.get(key) for key in _KEY)][-_RECENT:]


def left(
    rows: Sequence[Mapping[str, Any]], stages: Mapping[str, float], share: float, elapsed: float, size: float
) -> float | None:
    """Seconds until the first completion, by former loads; without any, until the weights are loaded, by their rate.

    ``rows`` are loads of the same thing, ``stages`` where this one is, ``share`` how much of its newest stage is done,
    ``elapsed`` its seconds, ``size`` the bytes of its weights. None where nothing can be said.
    """
    newest = next(reversed(list(stages)), "")
    if guesses := sorted(guess for row in rows if (guess := _left_of(row, newest, share, stages, elapsed)) is not None):
        return guesses[len(guesses) // 2]
    since = elapsed - stages.get(newest, elapsed)
    if newest == WEIGHTS and size and share > 0 and since > 0:
        return since * (1 - share) / share
    return None


def _left_of(
    row: Mapping[str, Any], newest: str, share: float, stages: Mapping[str, float], elapsed: float
) -> float | None:
    """By one former load: what it took from the same point on. A stage without a bar goes on as long as it did then."""
    total, began = float(row["seconds"]), float(row["stages"][newest]) if newest in row["stages"] else None
    if not newest:
        return max(0.0, total - elapsed)
    if began is None:
        return None
    later = [float(value) for value in row["stages"].values() if value > began]
    took = min(later, default=total) - began
    here = share * took if share else min(took, elapsed - stages[newest])
    return max(0.0, total - began - here)


def words(load: Mapping[str, Any] | None) -> str:
    """Bytes and the time that is left, for a line; empty where neither is known."""
    if not load:
        return ""
    parts = []
    if load.get("bytes") and load.get("loaded"):
        parts.append(f"{_size(load['loaded'])} of {_size(load['bytes'])}")
    if load.get("left") is not None:
        what = "" if load.get("former") else " for the weights"
        parts.append(f"about {duration(float(load['left']))} left{what}")
    return ", ".join(parts)


def took(load: Mapping[str, Any]) -> str:
    """What took how long in a load that has ended: C(91 s: starting 12 s, loading weights 50 s, …)."""
    stages = sorted(load["stages"].items(), key=lambda item: float(item[1]))
    ends = [float(begin) for _name, begin in stages[1:]] + [float(load["seconds"])]
    first = float(stages[0][1]) if stages else 0.0
    parts = [f"before its first line {duration(first)}"] if first >= 1 else []
    parts += [
        f"{name} {duration(end - float(begin))}"
        for (name, begin), end in zip(stages, ends, strict=False)
        if end - float(begin) >= 1
    ]
    return ": ".join(filter(None, [duration(float(load["seconds"])), ", ".join(parts)]))


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _size(count: float) -> str:
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}" if count < 10 * unit else f"{count / unit:.0f} {name}"
    return f"{count:.0f} B"


class Watched:
    """The load that runs: one start of the engine, from its first line to its first completion."""

    def __init__(
        self, of: Mapping[str, Any], invocation: str, begun: float, former: Sequence[Mapping[str, Any]]
    ) -> None:
        """``of`` says what is loaded, ``begun`` is the clock's second of the engine's start."""
        self.of = of
        self.invocation = invocation
        self.begun = begun
        self.former = alike(former, of)
        self.stages: dict[str, float] = {}
        self.share = 0.0

    def note(self, stage: str, share: float, now: float) -> None:
        """The stage that its log speaks of now, and how much of that is done (0 to 1)."""
        if stage:
            self.stages.setdefault(stage, round(now - self.begun, 1))
            self.share = share

    def told(self, now: float) -> dict[str, Any]:
        """Where it is, for the state file: seconds, bytes, and the seconds that are left (None: not known)."""
        size, newest = int(self.of.get("bytes") or 0), next(reversed(self.stages), "")
        remaining = left(self.former, self.stages, self.share, now - self.begun, size)
        return {
            "stage": newest,
            "share": round(self.share, 3),
            "seconds": round(now - self.begun, 1),
            "bytes": size,
            "loaded": round(size * self.share) if newest == WEIGHTS else 0,
            "left": None if remaining is None else round(remaining, 1),
            "former": len(self.former),
        }

    def ended(self, now: float, wall: float) -> dict[str, Any]:
        """The load as it is kept."""
        return {
            **{key: str(self.of.get(key) or "") for key in _KEY},
            "bytes": int(self.of.get("bytes") or 0),
            "seconds": round(now - self.begun, 1),
            "stages": dict(self.stages),
            "ended": round(wall, 1),
            "invocation": self.invocation,
        }
