# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of an engine of whose options no table is at hand, as others wrote it. Pure.

What follows an option up to the next one is its value, and one that nothing follows is a switch.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import serve_command
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serve_command import ServedModel


def read_open(
    text: str, called: str, starts: re.Pattern[str], program: str
) -> tuple[ServedModel, list[tuple[str, list[Any]]]]:
    """The model that stands alone, with what is before and after the command in the notes; and the options in turn.

    ``starts`` is how the command begins, in one to three words.
    """
    text = re.sub(r"\\[ \t]*\n", " ", serve_command.without_comments(text))
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise RecipeError(f"vllm_serve_recipe={called!r}: the command cannot be read: {error}.") from None
    begin, length = next(
        (
            (at, size)
            for at in range(len(words))
            for size in (3, 2, 1)
            if starts.fullmatch(" ".join(words[at : at + size]))
        ),
        (-1, 0),
    )
    if begin < 0:
        raise RecipeError(f"vllm_serve_recipe={called!r}: the command holds no `{program}`. Only that can be served.")
    first = begin + length
    end = next((at for at in range(first, len(words)) if words[at] in serve_command.SEPARATORS), len(words))
    served, name_of = ServedModel(), program.partition(" ")[0]
    if begin:
        served.notes.append(f"command before {name_of} ({shlex.join(words[:begin])})")
    if end < len(words):
        served.notes.append(f"command after {name_of} ({shlex.join(words[end:])})")
    given = words[first:end]
    if given and not given[0].startswith("-"):
        served.model = given.pop(0)
    options: list[tuple[str, list[Any]]] = []
    while given:
        name, equals, value = given.pop(0).partition("=")
        if not name.startswith("--"):
            raise RecipeError(
                f"vllm_serve_recipe={called!r}: the command has {name!r}, which belongs to no option. Take it out."
            )
        values = [value] if equals else []
        while not equals and given and not re.match(r"--?[A-Za-z]", given[0]):
            values.append(given.pop(0))
        options.append((name[2:].replace("_", "-"), [serve_command.converted(word, "") for word in values]))
    return served, options
