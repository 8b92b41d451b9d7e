# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one reader and the one writer of environment files understand each other, and systemd."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.environment_file import MARKER, parse, render


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# c\nA=1\nB=\"two words\"\n C='x'\n", {"A": "1", "B": "two words", "C": "x"}),
        ("NCCL_IB_HCA==rocep1s0f1\n", {"NCCL_IB_HCA": "=rocep1s0f1"}),
        ("not a variable\n=x\n", {}),
        ('# c\nID=ubuntu\nVERSION_ID="24.04"\n\n', {"ID": "ubuntu", "VERSION_ID": "24.04"}),
        ("; c\nA=\nB=''\nB=2 \n", {"A": "", "B": "2"}),
        ("A=one\\\n two\nB=a\\ b\n", {"A": "one two", "B": "a b"}),
        ('A=\'a\\b\'"c\\d\\""e\n', {"A": 'a\\bc\\d"e'}),
        ('A="open\n', {"A": '"open'}),
    ],
)
def test_what_systemd_reads(text: str, expected: dict[str, str]) -> None:
    assert parse(text) == expected


def test_quotes_only_where_systemd_would_misread() -> None:
    text = render({"B": "=rocep1s0f1,roceP2p1s0f1", "A": 'two "words" $x', "C": 0})
    assert text == f'{MARKER}\nA="two \\"words\\" \\$x"\nB==rocep1s0f1,roceP2p1s0f1\nC=0\n'


@pytest.mark.parametrize(("key", "value"), [("A", "one\ntwo"), ("A B", "x"), ("1A", "x"), ("", "x")])
def test_what_such_a_file_cannot_hold(key: str, value: str) -> None:
    with pytest.raises(ValueError, match="not a variable"):
        render({key: value})


@pytest.mark.parametrize("value", ["", " x ", "a'b", 'a"b', "a\\b", "\\", "$x `y` #z ;", "=", '{"a": "b\\n"}'])
def test_what_is_written_is_read(value: str) -> None:
    assert parse(render({"A": value, "B": "next"})) == {"A": value, "B": "next"}
