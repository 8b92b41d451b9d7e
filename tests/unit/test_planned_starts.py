# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan beside measured starts: docs/developers.md shows the same table."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from tests.truth.starts import Start, rows, starts, table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "developers.md"


@pytest.fixture(scope="module")
def compared() -> list[Start]:
    return starts()


def test_every_row_is_planned_or_says_what_it_lacks() -> None:
    assert len([row for row in rows() if not row.get("further")]) == 42
    for row in rows():
        assert ("plan" in row) != ("left_out" in row), row["id"]
        assert row["source"].startswith("https://")


def test_bytes_of_cache(compared: list[Start]) -> None:
    errors = [abs(start.error) for start in compared if start.error is not None]
    held = [abs(s.error) for s in compared if s.error is not None and not s.row["plan"].get("basis")]
    assert len(errors) >= 20
    assert len(held) >= 10
    for group in (errors, held):
        assert statistics.median(group) <= 0.03
        assert max(group) <= 0.12


def test_concurrency_given_the_bytes(compared: list[Start]) -> None:
    errors = {start.row["id"]: start.concurrency_error for start in compared if start.concurrency_error is not None}
    assert len(errors) >= 16
    assert {name: error for name, error in errors.items() if abs(error) > 0.03} == {}


def test_rows_of_tokens_alone_name_the_blocks_that_say_both_figures(compared: list[Start]) -> None:
    """Tokens are rounded down to whole blocks of each of the four groups, so they leave four numbers open."""
    known = [start for start in compared if start.row["plan"].get("blocks")]
    assert len(known) == 4
    for start in known:
        assert start.tokens == start.row["kv_tokens"], start.row["id"]
        blocks, said = start.row["plan"]["blocks"], start.row["max_concurrency"]
        assert start.concurrency is not None
        each = blocks / start.concurrency
        same = [number for number in range(blocks // 4 * 4, blocks // 4 * 4 + 4) if abs(number / each - said) < 0.006]
        assert same == [blocks], start.row["id"]


def test_what_failed_is_refused_and_what_started_is_not(compared: list[Start]) -> None:
    judged = {start.row["id"]: start for start in compared if start.verdict}
    failed = {name for name, start in judged.items() if start.row.get("starts") is False}
    assert failed == {"minimax-m2.7-awq-tp2-0.80-fails"}
    assert {name for name, start in judged.items() if start.verdict == "does_not_fit"} == failed


def test_no_start_left_less_than_the_bound(compared: list[Start]) -> None:
    for start in compared:
        if start.at_least is not None and start.measured is not None:
            assert start.at_least <= start.measured, start.row["id"]


def test_the_page_shows_this_table() -> None:
    assert table() in PAGE.read_text()
