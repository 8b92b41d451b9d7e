# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible import constants
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import progress_line
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.progress_line import REWRITE, ProgressLine


class Screen:
    def __init__(self, in_place: bool) -> None:
        self.text, self.now = "", 0.0
        self.line = ProgressLine(in_place, self.show, columns=40, clock=lambda: self.now)

    def show(self, text: str, newline: bool = True) -> None:
        self.text += text + ("\n" if newline else "")


def test_a_terminal_shows_one_line_and_the_last_state_stays() -> None:
    screen = Screen(True)
    screen.line.tell("m from the hub: 1 GB of 9 GB")
    screen.line.tell("m from the hub: 9 GB of 9 GB")
    screen.line.tell("n from the hub: " + 50 * "x")
    screen.line.end("n: there\x1b[2J")
    screen.line.end()
    assert screen.text == (
        f"{REWRITE}  m from the hub: 1 GB of 9 GB{REWRITE}  m from the hub: 9 GB of 9 GB\n"
        f"{REWRITE}  n from the hub: {20 * 'x'}…{REWRITE}sparkthor: n: there\n"
    )


def test_a_log_gets_the_first_and_the_last_and_few_between() -> None:
    screen = Screen(False)
    for second in range(0, 70, 2):
        screen.now = second
        screen.line.tell(f"m: {second} of 70")
    screen.line.end()
    assert screen.text.splitlines() == [f"sparkthor: m: {second} of 70" for second in (0, 30, 60, 68)]
    screen.line.tell("m: anew")
    screen.line.end("m: done")
    assert screen.text.splitlines()[-2:] == ["sparkthor: m: anew", "sparkthor: m: done"]


def test_who_wants_no_colours_gets_no_line_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line.os, "readlink", lambda path: "/dev/pts/3")
    monkeypatch.setattr(constants, "ANSIBLE_NOCOLOR", False)
    assert progress_line.terminal() is True
    monkeypatch.setattr(constants, "ANSIBLE_NOCOLOR", True)
    assert progress_line.terminal() is False
    monkeypatch.setattr(constants, "ANSIBLE_NOCOLOR", False)
    monkeypatch.setattr(progress_line.os, "readlink", lambda path: "pipe:[1]")
    assert progress_line.terminal() is False
