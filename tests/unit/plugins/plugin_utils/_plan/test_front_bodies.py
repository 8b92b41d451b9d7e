# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many bodies there are at once; a real nginx with them is in tests/integration/nginx."""

from __future__ import annotations

import re

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front_bodies


def class_of(length: str, encoding: str = "", max_body: str = "64m") -> str:
    """As nginx's map says it: the first expression that fits, else the default."""
    for one in front_bodies.body_classes(max_body):
        if one.pattern and re.search(one.pattern.removeprefix("~"), f"{length} {encoding}"):
            return one.name
    return "largest"


def test_each_body_is_of_one_class() -> None:
    lengths = ("0", "99999", "100000", "999999", "1000000", "9999999", "10000000", "1" * 30, "000001")
    found = [class_of(length) for length in lengths]
    assert found == [
        *("digits_5", "digits_5", "digits_6", "digits_6", "digits_7", "digits_7", "largest", "largest", "digits_6")
    ]
    # nobody knows how long it will be, whatever it says besides
    assert class_of("", "chunked") == class_of("5", "chunked") == "largest"


@pytest.mark.parametrize("max_body", ["64m", "1m", "100", "1G", "0", "0m"])
def test_there_is_room_for_every_key_and_for_no_more_than_memory(max_body: str) -> None:
    for one in front_bodies.body_classes(max_body):
        assert 1 <= one.of_key < one.at_once
        digits = one.name.removeprefix("digits_")
        largest = 10 ** int(digits) if digits.isdigit() else front_bodies.in_bytes(max_body)
        assert one.at_once * largest <= max(front_bodies.TOGETHER, 2 * largest)


def test_a_door_may_take_what_its_bodies_take() -> None:
    assert 3.5e9 < front_bodies.memory_bytes("64m") < 4.5e9
    assert front_bodies.memory_bytes("4g") > 16e9
