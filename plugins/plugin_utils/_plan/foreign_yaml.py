# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML that somebody else wrote, such as a recipe of a registry. Runs on the controller only.

A safe loader makes no objects, and yet a few lines take all memory or time: by merges of merges, by levels that a
reader in C has to remember, by a number of a million digits. All that is refused is a ``yaml.YAMLError`` with its line.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.parser import ParserError

#: levels, events (a value is one, a list or dictionary two), and keys of all dictionaries, merged ones each time
LEVELS, EVENTS, KEYS = 40, 400_000, 200_000
#: what may become a number, longer than any is
_LONG_NUMBER = re.compile(r"[-+]?(?:0x[0-9a-fA-F_]{400,}|[0-9][0-9_:.]{400,})")
#: In C where PyYAML was built with it: a registry has hundreds of recipes.
_SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SAFE):  # type: ignore[misc]  # which of the two is known when it runs
    keys = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Called for each dictionary, and again wherever one is merged."""
        super().flatten_mapping(node)
        self.keys += len(node.value)
        if self.keys > KEYS:
            raise ConstructorError(None, None, f"more than {KEYS} keys, by merges (<<)", node.start_mark)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:
            raise ConstructorError(None, None, f"no such date or number ({error})", node.start_mark) from None


def load_foreign(text: str) -> Any:
    """The document. Raises ``yaml.YAMLError``."""
    _check(text)
    return yaml.load(text, Loader=_Loader)  # a safe loader, which bandit cannot see


def _check(text: str) -> None:
    level = 0
    for number, event in enumerate(yaml.parse(text, Loader=_SAFE)):
        mark: Any = event.start_mark
        if isinstance(event, yaml.CollectionStartEvent):
            level += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            level -= 1
        elif isinstance(event, yaml.ScalarEvent) and event.implicit[0] and _LONG_NUMBER.fullmatch(event.value):
            raise ParserError(None, None, "a number of more digits than any has", mark)
        if level > LEVELS or number > EVENTS:
            raise ParserError(None, None, f"more than {LEVELS} levels or {EVENTS} values", mark)
