# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task in check mode says that it would change, kept as a fact of its host until ``drift.yml`` shows all."""

from __future__ import annotations

import re
import shlex
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

#: the variable by which ``drift.yml`` asks for it
ASKED = "__drift_report"
#: each difference is a fact of its own, so that those of a loop's items do not replace each other
FACT = "sparkthor_drift_"
_PATH = re.compile(r"/[\w./@:+-]+")


def noted(
    result: dict[str, Any], variables: Mapping[str, Any], task: str, run: Callable[[str], Mapping[str, Any]]
) -> dict[str, Any]:
    """The result, with a fact of what differs; as it is where nothing does, or where nobody asks.

    ``run`` runs a shell's line on the host.
    """
    if not variables.get(ASKED) or result.get("failed") or not _differs(result):
        return result
    role = str(variables.get("ansible_role_name") or "").rpartition(".")[2]
    words = list(dict.fromkeys(filter(None, _words(result))))
    what = ", ".join(words) or task
    name = f"{FACT}{zlib.crc32(f'{role} {what}'.encode()):08x}"
    found = {"role": role, "what": what, "since": _since(words, run)}
    return {**result, "ansible_facts": {**(result.get("ansible_facts") or {}), name: found}}


def _differs(result: Mapping[str, Any]) -> bool:
    """A link or an engine that is configured as wanted may still not answer."""
    would_change = result.get("changed") or result.get("needs_change")
    return bool(would_change) or result.get("ready") is False or result.get("verified") is False


def _words(result: Mapping[str, Any]) -> Iterator[str]:
    diff = result.get("diff") or ()
    for part in [diff] if isinstance(diff, Mapping) else diff:
        yield str(part.get("after_header") or part.get("before_header") or "")
    yield from map(str, result.get("deferred_units") or ())
    yield from map(str, result.get("problems") or ())
    for link in result.get("links") or ():
        yield from map(str, link.get("problems") or ())
    if result.get("ready") is False:
        yield str(result.get("line") or "")


def _since(words: list[str], run: Callable[[str], Mapping[str, Any]]) -> str:
    """When the newest of the files was written, in UTC; empty if none of them is there."""
    paths = [path for word in words if _PATH.fullmatch(path := word.partition(" (")[0])]
    if not paths:
        return ""
    told = str(run(f"stat -c %Y -- {shlex.join(paths)} 2>/dev/null; true").get("stdout") or "").split()
    written = [int(word) for word in told if word.isascii() and word.isdigit() and len(word) < 12]
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(max(written))) if written else ""
