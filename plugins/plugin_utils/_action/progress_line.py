# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One line about something that takes long: rewritten where it stands on a terminal, printed now and then in a log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from ansible import constants
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable

#: to the line's beginning, and nothing in it any more
REWRITE = "\r\x1b[2K"
#: seconds between two lines about the same thing in a log
SPARSE = 30.0
#: of every line that is no task's; tools that run a playbook show these
MARK = "sparkthor: "


def terminal() -> bool:
    """Whether the user sees a terminal that takes more than text; none does that is to have no colours.

    A task runs in a process of its own, without a terminal, so its parent is asked.
    """
    if constants.ANSIBLE_NOCOLOR:
        return False
    try:
        return os.readlink(f"/proc/{os.getppid()}/fd/1").startswith(("/dev/pts/", "/dev/tty"))
    except OSError:
        return False


class ProgressLine:
    """``show`` is Display.display, or what takes its place; ``columns`` is the terminal's width."""

    def __init__(
        self,
        in_place: bool,
        show: Callable[..., None],
        columns: int = 79,
        sparse: float = SPARSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.in_place = in_place
        self._show = show
        self._columns = columns
        self._sparse = sparse
        self._clock = clock
        self._about = ""
        self._told_at = float("-inf")
        #: a state that is on the screen without an end of its line, or that a log was spared
        self._last = ""

    def tell(self, text: str) -> None:
        """The newest state; what stands before its first colon is what it is about."""
        text = printable(text)
        about = text.partition(":")[0]
        if about != self._about:
            self.end()
            self._about, self._told_at = about, float("-inf")
        now = self._clock()
        if self.in_place:
            # a line that wraps cannot be rewritten
            short = text if len(text) <= self._columns - 3 else text[: self._columns - 4] + "…"
            self._show(f"{REWRITE}  {short}", newline=False)
            self._last = text
        elif now - self._told_at >= self._sparse:
            self._show(MARK + text)
            self._told_at, self._last = now, ""
        else:
            self._last = text

    def end(self, text: str = "") -> None:
        """What stays: the text, or else the state that was told last."""
        if self._last and self.in_place:
            self._show(REWRITE if text else "\n", newline=False)
        elif self._last and not text:
            self._show(MARK + self._last)
        self._last = self._about = ""
        if text:
            self._show(MARK + printable(text))
