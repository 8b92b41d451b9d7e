# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import shape

FORM = {"name": re.compile("[a-z]+"), "ports?": [(int, None)], "more?": {str: {"up": bool}}, "kept?": False}


@pytest.mark.parametrize(
    "value",
    [
        {"name": "a"},
        {"name": "a", "ports": [1, None], "other": object()},
        {"name": "a", "more": {"x": {"up": True}}, "kept": False},
    ],
)
def test_what_fits(value: Any) -> None:
    shape.check(value, FORM)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "the answer is a list, not a mapping"),
        ({}, "the answer.name is absent, not a text like [a-z]+"),
        ({"name": "A"}, 'the answer.name is "A", not a text like [a-z]+'),
        ({"name": "a\n"}, 'the answer.name is "a\\n", not a text like [a-z]+'),
        ({"name": "a", "ports": [True]}, "the answer.ports[0] is true, not a whole number or null"),
        ({"name": "a", "ports": {}}, "the answer.ports is a mapping, not a list"),
        ({"name": "a", "more": {"x": {}}}, "the answer.more.x.up is absent, not true or false"),
        ({"name": "a", "kept": True}, "the answer.kept is true, not false"),
        ({"name": "a", "kept": 0}, "the answer.kept is 0, not false"),
    ],
)
def test_what_does_not_fit_is_named(value: Any, message: str) -> None:
    with pytest.raises(shape.Misshapen) as caught:
        shape.check(value, FORM)
    assert str(caught.value) == message


def test_of_several_forms_the_one_that_was_meant_is_told() -> None:
    form = ({"kind": "none"}, {"kind": str, "port": int})
    with pytest.raises(shape.Misshapen, match=r"^it\.port is \"80\", not a whole number$"):
        shape.check({"kind": "tcp", "port": "80"}, (form[1],), "it")


def deep(levels: int) -> Any:
    value: Any = {}
    for _level in range(levels):
        value = {"x": value}
    return value


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("-inf"),
        10**30,
        {"\ud800": 1},
        ["\udfff"],
        deep(shape.LEVELS + 1),
        deep(100_000),
        [None] * (shape.VALUES + 1),
        ["x" * (shape.CHARACTERS // 2 + 1)] * 2,
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_what_nobody_has_to_say(value: Any) -> None:
    with pytest.raises(shape.Misshapen):
        shape.bounded([value])


def test_what_a_host_may_say() -> None:
    shape.bounded({"text": "\u00e9\U0001f600", "number": 2**62, "rate": 1.5, "list": [deep(20)], "warning": object()})


def test_a_text_that_stands_for_itself_a_million_times_is_too_much() -> None:
    value: Any = ["x"] * 10
    for _level in range(9):
        value = [value] * 10
    with pytest.raises(shape.Misshapen, match="values"):
        shape.bounded(value)
