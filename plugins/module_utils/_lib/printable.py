# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one filter for text that a host, a log or a model gave, and that a terminal, a page or a file for people gets.

Such text can set the clipboard of the reader's terminal, draw over what stands there, hide a part of itself or show it
in another order.  After the filter it is only what it looks like.
"""

from __future__ import annotations

import re
from typing import Any

#: colours, cursor movements and modes, and whole strings to the terminal (its title, its clipboard) that end on their
#: line; in seven bits and in eight
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x00-\x1f\x7f-\x9f\u2028\u2029]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]"
)
#: what ends a line for one program or another
_BREAKS = re.compile("\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
#: what is left of C0, DEL and C1, and what shows nothing but changes what its neighbours look like: bidirectional
#: controls, invisible letters, tags, halves of a character
_HIDDEN = re.compile(
    "[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def printable(text: str, lines: bool = False) -> str:
    """The text without what a terminal acts on: sequences gone, every other hidden character a ``�``.

    It stays one line: a line break or a tab becomes a space.  With ``lines`` breaks stay breaks, and tabs stay.
    """
    text = _HIDDEN.sub("\ufffd", _BREAKS.sub("\n", _SEQUENCES.sub("", text)))
    return text if lines else text.replace("\n", " ").replace("\t", " ")


def printable_data(value: Any) -> Any:
    """Plain data with all its texts, those of keys as well, filtered; breaks of lines stay."""
    if isinstance(value, str):
        return printable(value, lines=True)
    if isinstance(value, dict):
        return {printable_data(key): printable_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable_data(item) for item in value]
    return value
