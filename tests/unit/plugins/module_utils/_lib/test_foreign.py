# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever somebody else sends as JSON, his reader gets plain values or a ForeignError."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign


def test_plain_documents_come_through() -> None:
    text = '{"a": [1, 2.5, true, null, "ä \\ud83d\\ude00"]}'
    assert foreign.parse(text) == {"a": [1, 2.5, True, None, "ä 😀"]}
    assert foreign.parse_object(text.encode()) == foreign.parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "nested too deeply|no JSON"),
        ("[" * 200_000 + "]" * 200_000, "nested too deeply"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "nested too deeply"),
        # shallow enough for Python's reader, and too deep for whoever walks through it afterwards
        ("[" * 60 + "]" * 60, "nested too deeply"),
        ("", "no JSON"),
        ("{", "no JSON"),
        (b"\xff\xfe\xfd", "no JSON"),
        ("NaN", "NaN is no number"),
        ('{"a": [Infinity]}', "Infinity is no number"),
        ("[-1e999]", "beyond all bounds"),
        ("9" * 5000, "no JSON"),
        ('"\\ud800"', "half a character"),
        ('{"\\udfff": 1}', "half a character"),
    ],
)
def test_strange_documents_are_refused_with_one_error(text: str | bytes, words: str) -> None:
    with pytest.raises(foreign.ForeignError, match=words):
        foreign.parse(text)


def test_a_long_one_is_not_even_read() -> None:
    with pytest.raises(foreign.ForeignError, match="longer than 10 bytes"):
        foreign.parse('"0123456789"', most=10)


@pytest.mark.parametrize("text", ["[]", "1", "null", '"{}"'])
def test_an_object_is_wanted(text: str) -> None:
    with pytest.raises(foreign.ForeignError, match="no JSON object"):
        foreign.parse_object(text)


@pytest.mark.parametrize("value", [True, -1, 2**53 + 1, 10**400, 1.0, "1", None, []])
def test_what_is_no_whole_number(value: Any) -> None:
    with pytest.raises(foreign.ForeignError, match="no whole number"):
        foreign.whole(value)


@pytest.mark.parametrize("value", [True, float("nan"), float("inf"), 10**400, "1", None, {}])
def test_what_is_no_number(value: Any) -> None:
    with pytest.raises(foreign.ForeignError, match="no number"):
        foreign.number(value)


def test_numbers_and_texts() -> None:
    assert (foreign.whole(0), foreign.whole(2**53), foreign.number(-2), foreign.number(0.5)) == (0, 2**53, -2.0, 0.5)
    assert foreign.text_of("abc", 3) == "abc"
    for value in ("abcd", 1, None, ["a"]):
        with pytest.raises(foreign.ForeignError, match="no text of at most 3"):
            foreign.text_of(value, 3)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"a": [1, 0.5, True, None, "ä"]}, {"a": [1, 0.5, True, None, "ä"]}),
        ([float("nan"), float("-inf"), 10**30, "a\udcffb"], [None, None, None, "a?b"]),
        ({"\ud800": 1}, {"?": 1}),
    ],
)
def test_what_is_told_on_is_plain(value: Any, told: Any) -> None:
    assert foreign.tellable(value) == told


def test_what_is_told_on_is_not_deep() -> None:
    value: Any = []
    for _level in range(5000):
        value = [value]
    told = foreign.tellable(value)
    for _level in range(foreign.DEPTH - 4):
        [told] = told
    assert told is None
