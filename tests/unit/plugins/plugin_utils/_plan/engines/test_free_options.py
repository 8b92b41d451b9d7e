# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose argument is refused, when both the recipe and the inventory give some."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.free_options import bound, of_both
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError


def free(name: str, value: Any) -> bool:
    return name == "size"


def both(theirs: dict[str, Any], ours: dict[str, Any], *acknowledged: str) -> dict[str, Any]:
    return of_both("theirs", theirs, ours, acknowledged, free, "Engine")


def test_the_user_s_arguments_win_and_null_takes_away() -> None:
    assert both({"size": 1, "file": "/x"}, {"size": 2, "file": None}) == {"size": 2}
    assert both({"file": "/x"}, {"size": 2}, "--file") == {"file": "/x", "size": 2}
    assert bound({"size": 1, "file": "/x", "other": False}, free) == ["file"]


@pytest.mark.parametrize(
    ("theirs", "ours", "where"),
    [
        ({"file": "/x"}, {}, "recipe theirs: args: file="),
        ({}, {"file": "/x"}, "vllm_serve_args: file="),
        # the inventory wrote it over
        ({"file": "/x"}, {"file": "/y"}, "vllm_serve_args: file='/y'"),
    ],
)
def test_the_refusal_names_who_gave_it(theirs: dict[str, Any], ours: dict[str, Any], where: str) -> None:
    with pytest.raises(RecipeError) as caught:
        both(theirs, ours)
    assert str(caught.value).startswith(where)


def test_a_secret_is_refused_whoever_means_it() -> None:
    with pytest.raises(RecipeError, match="is a secret") as caught:
        both({}, {"some-token": "hush"}, "some-token")
    assert "hush" not in str(caught.value)
