# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an engine's list of free options makes of arguments: what is not on it needs the inventory's own word. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import secret_name
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import option_name

#: whether an option, with this value, is on the list
Free = Callable[[str, Any], bool]
#: the word of a choice; no place
WORD = re.compile(r"[A-Za-z0-9_.,:+-]{1,64}")


def is_word(value: Any, form: re.Pattern[str] = WORD) -> bool:
    """A number, a switch, or text of this form."""
    return isinstance(value, (bool, int, float)) or (isinstance(value, str) and bool(form.fullmatch(value)))


def dangers(args: Mapping[str, Any], acknowledged: Collection[str], is_free: Free, title: str) -> list[str]:
    """What of the arguments needs the inventory's own word, or is a secret: what, and what to do."""
    known = {option_name(name) for name in acknowledged}
    found = []
    for name, value in args.items():
        if secret_name(name.replace("-", "_"), value):
            found.append(
                f"{name} is a secret (its value is not shown), and the file of {title}'s arguments is open to every "
                "user of the host; leave it out"
            )
        elif value is not False and name not in known and not is_free(name, value):
            found.append(
                f"{name}={value!r} may run code, lead to a file or a host, or open a port: it is none of the options "
                "that only choose kernels and sizes, or not with this value. Leave it out, or write its whole name in "
                f"the inventory, vllm_serve_acknowledged: [{name}]"
            )
    return found


def bound(args: Mapping[str, Any], is_free: Free) -> list[str]:
    """The names of those that need the inventory's own word."""
    return [name for name, value in args.items() if value is not False and not is_free(name, value)]


def of_both(
    recipe: str,
    theirs: Mapping[str, Any],
    ours: Mapping[str, Any],
    acknowledged: Collection[str],
    is_free: Free,
    title: str,
) -> dict[str, Any]:
    """The recipe's arguments and the user's, which win; null takes one away. Raises RecipeError for a danger."""
    args = {name: value for name, value in {**theirs, **ours}.items() if value is not None}
    for where, given in ((f"recipe {recipe}: args", theirs), ("vllm_serve_args", ours)):
        told = {name: args[name] for name in given if name in args and (given is ours or name not in ours)}
        if problems := dangers(told, acknowledged, is_free, title):
            raise RecipeError(f"{where}: {'; '.join(problems)}", "arguments")
    return args
