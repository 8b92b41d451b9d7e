# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A command line without a table of its options."""

from __future__ import annotations

import re

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.open_command import read_open
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError

STARTS = re.compile(r"flux(?: serve)?")


def test_what_follows_an_option_is_its_value() -> None:
    text = "cd /srv; flux serve org/m --a-b 1 --list x y --on --c_d=2 --below -3 | tee log"
    served, options = read_open(text, "r", STARTS, "flux serve")
    assert served.model == "org/m"
    assert served.notes == ["command before flux (cd '/srv;')", "command after flux ('|' tee log)"]
    assert options == [("a-b", [1]), ("list", ["x", "y"]), ("on", []), ("c-d", [2]), ("below", [-3])]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("flax serve m", "holds no `flux serve`"),
        ("flux serve m -x 1", "has '-x', which belongs to no option"),
        ("flux serve 'm", "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read_open(text, "r", STARTS, "flux serve")
    assert words in str(caught.value)
