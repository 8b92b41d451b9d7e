# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host says is text on a terminal, and nothing else."""

from __future__ import annotations

import sys
import time
import unicodedata

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable, printable_data


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("spark-1", "spark-1"),
        ("Grüße, 日本語, 😀 – «ok»", "Grüße, 日本語, 😀 – «ok»"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]52;c;ZXZpbA==\x07after", "after"),
        ("\x1b]52;c;ZXZpbA==\x1b\\after", "after"),
        ("\x9d52;c;ZXZpbA==\x9cafter", "after"),
        ("\x1b[?1049hcovered", "covered"),
        ("\x9b?1049hcovered", "covered"),
        ("\x1bP1;2|evil\x1b\\after", "after"),
        ("\x1bcreset", "reset"),
        ("\x1b(0letters", "letters"),
        ("a\x08b", "a\ufffdb"),
        ("a\x00b\x7fc\x85d", "a\ufffdb\ufffdc d"),
        ("spark\u202e1-kraps", "spark\ufffd1-kraps"),
        ("spark\u200b1", "spark\ufffd1"),
        ("one\r\ntwo\rthree\u2028four\u2029five\x0bsix\tseven", "one two three four five six seven"),
        ("half \ud83d", "half \ufffd"),
        # what is left when a part is taken out is no sequence either
        ("\x1b\x1b[0m[31mred", "\ufffd[31mred"),
        ("\x1b[\x1b[31m31mred", "31mred"),
        # one that does not end on its line takes nothing of the next one
        ("\x1b]0;title\nERROR", "0;title ERROR"),
    ],
)
def test_nothing_is_left_that_a_terminal_acts_on(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def test_where_lines_are_meant_they_stay() -> None:
    assert printable("one\r\ntwo\n\tthree\x1b[2J\u2028four\n", lines=True) == "one\ntwo\n\tthree\nfour\n"


def test_no_control_character_at_all_passes() -> None:
    everything = "x".join(map(chr, range(sys.maxunicode + 1)))
    kept = set(printable(everything, lines=True)) - {"\n", "\t"}
    assert not {letter for letter in kept if unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp")}
    assert not {letter for letter in kept if unicodedata.bidirectional(letter) in ("LRE", "RLE", "LRO", "RLO", "PDF")}
    assert not {letter for letter in kept if unicodedata.bidirectional(letter) in ("LRI", "RLI", "FSI", "PDI")}
    assert not kept & set("\u200b\u200c\u200d\u200e\u200f\u061c\u2060\ufeff\u00ad\U000e0041")


@pytest.mark.parametrize("part", ["\x1b]", "\x1b[", "\x9d0", "\x1b[0;", "\x1b", "\r", "\x1bP\x1b["])
def test_it_takes_no_longer_for_a_hostile_text(part: str) -> None:
    """A pattern that begins again at every character would take hours."""
    began = time.process_time()
    printable(part * 500_000 + "0" * 1_000_000)
    assert time.process_time() - began < 60


def test_data_is_filtered_in_every_place() -> None:
    hostile = "\x1b]52;c;eA==\x07x\u202e"
    assert printable_data({hostile: [hostile, {"a": (hostile, 3, None, True)}], "b": "one\ntwo"}) == {
        "x\ufffd": ["x\ufffd", {"a": ["x\ufffd", 3, None, True]}],
        "b": "one\ntwo",
    }
