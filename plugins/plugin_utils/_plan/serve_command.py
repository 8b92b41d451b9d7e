# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A `vllm serve` command line as others wrote it, read the way vLLM's own parser reads it.

Whether a word is an option's value depends on the option, so the option tables decide: a switch takes none, a list
takes all that follow, and a field of a dictionary (`--x.y`, `-cc.mode`) takes JSON.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, parse_length
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_args
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import option_name

_LEVEL = "optimization-level"
SEPARATORS = ("&&", "||", ";", "|", "&")
#: a shell variable, which only the original tool's shell knows
SHELL_VARIABLE = re.compile(r"\$(?:\{\w+\}|[A-Za-z_]\w*)")


@dataclass
class ServedModel:
    """What a command serves."""

    #: the positional argument, or `--model`; empty where the command names none
    model: str = ""
    #: option, by its long name and perhaps a dotted field -> value
    flags: dict[str, Any] = field(default_factory=dict)
    #: parts that are no part of `vllm serve`
    notes: list[str] = field(default_factory=list)


def read_command(text: str, called: str) -> ServedModel:
    """The `vllm serve` in a shell command; what stands before and after it is named in the notes."""
    # a blank after the backslash is a frequent slip, and meant as a continuation
    text = re.sub(r"\\[ \t]*\n", " ", without_comments(text))
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise RecipeError(f"vllm_serve_recipe={called!r}: the command cannot be read: {error}.") from None
    # some name the program by its path
    starts = [
        index
        for index in range(len(words) - 1)
        if words[index].rpartition("/")[2] == "vllm" and words[index + 1] == "serve"
    ]
    if not starts:
        raise RecipeError(f"vllm_serve_recipe={called!r}: the command holds no `vllm serve`. Only that can be served.")
    begin = starts[0] + 2
    end = next((index for index in range(begin, len(words)) if words[index] in SEPARATORS), len(words))
    served = read_words(words[begin:end], called)
    if starts[0]:
        served.notes.append(f"command before vllm serve ({shlex.join(words[: starts[0]])})")
    if end < len(words):
        served.notes.append(f"command after vllm serve ({shlex.join(words[end:])})")
    return served


#: a word or a part of one, quoted or not; else a comment, which begins where a word could, up to the end of its line
_WORD_OR_COMMENT = re.compile(
    r"""(?P<word>(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s;&|()<>'"\\#])(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s;&|()<>'"\\])*)"""
    r"|(?P<comment>\#[^\n]*)",
    re.DOTALL,
)


def without_comments(text: str) -> str:
    """A shell command without its comments; a ``#`` inside a word or quotes is part of it.

    A comment between continued lines ends with its own line, as its author means it.
    """
    return _WORD_OR_COMMENT.sub(lambda found: found["word"] or "", text)


def read_words(words: Sequence[str], called: str) -> ServedModel:
    """The words after `vllm serve`."""
    served = ServedModel()
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not _is_option(word):
            if served.model:
                raise RecipeError(
                    f"vllm_serve_recipe={called!r}: the command has {word!r}, which belongs to no option. Take it out."
                )
            served.model = word
            continue
        name, equals, given = _split(word, called)
        following: list[str] = []
        while not equals and index + len(following) < len(words) and not _is_option(words[index + len(following)]):
            following.append(words[index + len(following)])
        values = [given] if equals else following[: _most(name)]
        if not equals:
            index += len(values)
        _put(served, name, values, called)
    return served


def _is_option(word: str) -> bool:
    """Unlike a dash alone, or a negative number, which are values."""
    return len(word) > 1 and word.startswith("-") and not re.match(r"-[\d.]", word)


def _split(word: str, called: str) -> tuple[str, bool, str]:
    """(long name, whether a value is in the word itself, that value); a short form is written out."""
    head, equals, value = word.partition("=")
    if word.startswith("--"):
        return option_name(head), bool(equals), value
    if re.match(r"-O.", word):
        return _LEVEL, True, word[2:].removeprefix("=")
    short, dot, rest = head[1:].partition(".")
    # case counts: -o is none of vLLM's
    if short not in vllm_args.SHORT:
        raise RecipeError(f"vllm_serve_recipe={called!r}: {word} is not a short form of vLLM. Write the option out.")
    return vllm_args.SHORT[short] + dot + rest, bool(equals), value


def _most(name: str) -> int | None:
    """How many of the words that follow belong to the option; None means all."""
    if "." in name:
        return 1
    entry = known_option(name)
    if entry is None:
        return None  # of a fork, or removed: the check says so by its name
    if entry["kind"] in ("bool", "flag"):
        return 0
    return None if entry["kind"] == "list" else 1


def _put(served: ServedModel, name: str, values: Sequence[str], called: str) -> None:
    entry = known_option(name)
    kind = "field" if "." in name else (entry["kind"] if entry else "")
    if not values and kind not in ("bool", "flag", ""):
        raise RecipeError(f"vllm_serve_recipe={called!r}: --{name} lacks its value. Give one.")
    if name == "model":
        served.model = values[0]
        return
    value: Any
    if not values or (kind in ("bool", "flag") and not values[0]):
        value = True
    elif kind == "list" or (kind == "" and len(values) > 1):
        value = [converted(word, "") for word in values]
    else:
        # a level is a number, though its option's table says text (a class of its own)
        value = converted(values[0], "" if name == _LEVEL else kind)
    if kind == "field" and name.endswith("+"):
        name, value = name[:-1], values[0].split(",")
    opposite = name[3:] if name.startswith("no-") else f"no-{name}"
    served.flags.pop(opposite, None)
    # what comes last counts, as in vLLM
    served.flags.pop(name, None)
    served.flags[name] = value[0] if kind == "list" and len(values) == 1 and name == "served-model-name" else value


def converted(word: str, kind: str) -> Any:
    """A word of a command line as the value that vLLM makes of it."""
    if kind == "str":
        return word
    if kind in ("field", "json") or word.startswith(("{", "[")):
        try:
            return json.loads(word)
        except ValueError:
            pass
        if kind == "field":
            try:
                return parse_length("", word)
            except SizingError:
                return word
    if re.fullmatch(r"[+-]?\d+", word):
        return int(word)
    if re.fullmatch(r"[+-]?\d*\.\d+", word):
        return float(word)
    return word


def known_option(name: str) -> Mapping[str, Any] | None:
    """What the newest table that has this option says of it."""
    found = vllm_args.known_options().get(name)
    return found[1] if found else None
