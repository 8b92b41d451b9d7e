# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pictures of the report show the page as it is."""

from __future__ import annotations

import pytest

from tools import pictures


@pytest.mark.parametrize("shape", pictures.SHAPES)
def test_a_picture_has_the_headings_of_its_page(shape: str) -> None:
    """Made anew by python -m tools.pictures."""
    wanted = pictures.headings(pictures.report(shape))
    assert len(wanted) > 4
    assert pictures.noted(pictures.target(shape).read_bytes()).split("\n") == wanted


def test_a_note_is_read_back_and_the_picture_stays() -> None:
    png = pictures.target(pictures.SHAPES[0]).read_bytes()
    other = pictures.note(png.replace(b"Description\0", b"Another    \0"), "Fixes\nProof")
    assert pictures.noted(other) == "Fixes\nProof"
    assert other.startswith(b"\x89PNG")
    assert other.endswith(b"IEND\xaeB`\x82")
