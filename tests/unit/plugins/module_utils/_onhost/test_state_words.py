# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One table of words: the page's own copy is the same, and every state of a watchdog is in it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import state_words

PAGE = Path(__file__).parents[5] / "roles" / "console" / "files" / "page"


def test_the_page_has_the_same_words() -> None:
    match = re.search(r"export const WORDS = (\{.*?\n\})", (PAGE / "words.js").read_text(encoding="utf-8"), re.DOTALL)
    assert match
    assert json.loads(match[1]) == state_words.WORDS


def test_every_state_has_a_word_of_its_own() -> None:
    assert set(state_words.STATES) < set(state_words.WORDS)
    assert len(set(state_words.WORDS.values())) == len(state_words.WORDS)


def test_the_page_draws_every_state() -> None:
    """A state that the page's table of verdicts leaves out would have no sentence."""
    text = (PAGE / "state.js").read_text(encoding="utf-8")
    verdict = text[text.index("export function verdict") : text.index("export function first")]
    told = set(re.findall(r"case '(\w+)':", verdict))
    assert told == set(state_words.WORDS) - {state_words.SMALLER, state_words.ABSENT}


@pytest.mark.parametrize(
    ("state", "healthy", "word"),
    [
        ("serving", True, "Serving"),
        ("degraded", False, "Not serving"),
        ("degraded", True, "Serving the smaller model"),
        ("of a later version", False, "of a later version"),
    ],
)
def test_a_word(state: str, healthy: bool, word: str) -> None:
    assert state_words.word(state, healthy) == word
