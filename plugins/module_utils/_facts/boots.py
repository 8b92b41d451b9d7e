# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the boot before this one ended: in order, by a panic, by heat, or cut.  Standard library only."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any

Runner = Callable[[list[str]], tuple[int, str, str]]

#: the end of the previous boot's journal; each line begins with seconds since 1970
COMMAND = ["journalctl", "--no-pager", "--quiet", "--boot=-1", "--lines=300", "--output=short-unix"]
#: seconds for which the end of a boot is worth telling
RECENT = 7 * 86400.0
#: what is no orderly end
ENDS = ("panic", "hot", "cut")
#: lines quoted of an end without an order
LAST = 5
_LINE = re.compile(r"^(\d{9,11})\.\d+ \S+ (.*)$")
#: what systemd and journald say last: systemd.special(7), systemd-shutdown(8)
_ORDERLY = re.compile(
    r"^systemd\[1\]: (?:Reached target .*(?:[Pp]ower[ -]?[Oo]ff|[Rr]eboot|[Hh]alt|[Kk]exec|[Ss]hutdown)"
    r"|Shutting down\.|Finished systemd-(?:poweroff|reboot|halt|kexec)\.service)"
    r"|^systemd-shutdown\[1\]: |^systemd-journald\[\d+\]: (?:Journal stopped|Received SIGTERM from PID 1)"
)
#: journald was restarted and the boot went on
_GOES_ON = re.compile(r"^systemd-journald\[\d+\]: Journal started")
#: the kernel ends a boot that is too hot in order, so nothing else tells it: drivers/thermal, kernel/reboot.c
_HOT = re.compile(r"^kernel: .*(?:critical temperature reached|HARDWARE PROTECTION shutdown)")
_PANIC = re.compile(r"^kernel: .*(?:Kernel panic - not syncing|---\[ end Kernel panic)")


def parse(text: str) -> dict[str, Any]:
    """``ended`` (seconds since 1970), ``how`` (``orderly`` or one of :data:`ENDS`) and the ``last`` lines of a boot.

    Empty where no line can be read: a journal that is not kept over a boot says nothing of the one before.
    """
    lines = [match.groups() for match in map(_LINE.match, text.splitlines()) if match]
    if not lines:
        return {}
    words = [line for _seconds, line in lines]
    began = max((number for number, line in enumerate(words) if _GOES_ON.match(line)), default=0)
    how = "orderly" if any(map(_ORDERLY.match, words[began:])) else "cut"
    for name, shown in (("hot", _HOT), ("panic", _PANIC)):
        how = name if any(map(shown.match, words)) else how
    return {"ended": int(lines[-1][0]), "how": how, "last": [] if how == "orderly" else words[-LAST:]}


def previous(run: Runner) -> dict[str, Any]:
    """Of the boot before this one, as :func:`parse` gives it."""
    rc, out, _err = run(COMMAND)
    return parse(out) if rc == 0 else {}


def told(before: Mapping[str, Any], now: float) -> str:
    """How the boot before ended, where that was lately and not in order; ``now`` by the host's own clock."""
    ended = before.get("ended")
    if before.get("how") not in ENDS or not ended or now - ended > RECENT:
        return ""
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ended))
    if before["how"] == "panic":
        return f"the kernel panicked at {when}"
    if before["how"] == "hot":
        return f"the kernel switched the host off at {when}, because a sensor was too hot"
    return f"its last boot ended at {when} without an orderly stop: it lost power, froze or was reset"
