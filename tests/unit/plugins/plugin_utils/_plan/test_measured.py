# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of what was measured: whole, or the recipe is refused."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import measured
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe as _recipe
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError

from tests.unit.plugins.plugin_utils._plan.minimal_recipe import MINIMAL

ROW: dict[str, Any] = {
    "hosts": 2,
    "tokens_per_second": 40.5,
    "streams": 1,
    "prompt": "prose",
    "engine": "vLLM 0.30.0",
    "date": "2026-09-27",
    "source": "https://example.org/bench",
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"source": ""}, "measured, row 1: source is missing. Give what the source says"),
        ({"date": None}, "measured, row 1: date is missing"),
        ({"prompt": ""}, "prompt is missing"),
        ({"date": "last week"}, "date='last week' is no date"),
        ({"date": "2026-13"}, "is no date"),
        ({"source": "http://example.org"}, "is no address"),
        ({"streams": 0}, "streams=0 is not a number above 0"),
        ({"hosts": True}, "hosts=True is not a number"),
        ({"tokens_per_second": "about 40"}, "tokens_per_second='about 40' is not a number"),
        ({"speed": 3}, "speed is unknown. A row has hosts"),
    ],
)
def test_a_row_that_is_not_whole_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError) as error:
        _recipe.load({**MINIMAL, "measured": [{**ROW, **change}]})
    assert said in str(error.value)


def test_rows_are_a_list_of_dictionaries() -> None:
    for wrong, said in (("fast", "measured is not a list of rows"), (["fast"], "row 1: 'fast' is not a dictionary")):
        with pytest.raises(RecipeError, match=said):
            _recipe.load({**MINIMAL, "measured": wrong})
    assert _recipe.load({**MINIMAL, "measured": [ROW]})["measured"] == [ROW]
    assert _recipe.load(MINIMAL)["measured"] == []


def test_rows_of_as_many_hosts_with_the_fewest_streams_first() -> None:
    many, slow, other = {**ROW, "streams": 8}, {**ROW, "tokens_per_second": 30}, {**ROW, "hosts": 1}
    foreign = {**ROW, "tokens_per_second": 90, "weights": "someone/other-weights"}
    assert measured.on([many, foreign, slow, other, ROW], 2) == [ROW, slow, foreign, many]
    assert (measured.speed(ROW), measured.speed(many)) == ("40.5", "40.5 of 8 streams")


def test_a_line_says_what_the_number_rests_on() -> None:
    assert measured.line({**ROW, "weights": "o/other", "note": "with MTP"}) == (
        "40.5; prose; vLLM 0.30.0; weights o/other; with MTP; 2026-09-27; https://example.org/bench"
    )
