# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of a recipe: which there are, of which kind, and what stands where one is left out."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import model_source
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    environment,
    image_steps,
    known_good,
    measured,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import option_name
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import OWNED

_REQUIRED = ("name", "summary", "model", "runtime", "hosts", "args")
_SIZES = ("tensor_parallel", "pipeline_parallel")
#: Arguments that the role renders from its own variables; a recipe states them as fields.
SERVE_FIELDS = ("max-model-len", "tensor-parallel-size", "pipeline-parallel-size", "served-model-name", "model")


#: names go into the front proxy's configuration and into requests, revisions into addresses of the hub
_FORMS = {
    "served_model_name": (
        re.compile(r"[\w.:/@+=,()~\[\]-](?:[\w.:/@+=,()~\[\] -]{0,254}[\w.:/@+=,()~\[\]-])?"),
        "is no name for clients. Use letters, digits, blanks within and . _ : / @ + = , ( ) [ ] ~ -, 256 at most.",
    ),
    "revision": (
        re.compile(r"(?!.*\.\.)\w[\w./-]{0,254}"),
        "is no commit, branch or tag. Use letters, digits and . _ / -, without two dots in a row.",
    ),
}


def _word(value: Any) -> bool:
    """One line of text; YAML reads a revision or a tag of digits as a number."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return (isinstance(value, str) and value.isprintable() and len(value) <= 1000) or (whole and abs(value) < 10**18)


def _amount(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 2**60


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


#: what each field holds, in code and in words
_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(
        ("args", "reasons", "environment", "split", "splits", "vllm", "config", "draft_config"),
        (lambda value: isinstance(value, dict), "a dictionary"),
    ),
    "args_below": (lambda value: isinstance(value, list), "a list"),
    **dict.fromkeys(("kinds", "topologies"), (_words, "a list of words")),
    **dict.fromkeys(
        ("name", "model", "revision", "image", "image_digest", "source", "engine"), (_word, "one line of text")
    ),
    **dict.fromkeys(
        ("weights_bytes", "active_bytes", "draft_weights_bytes", "gpu_memory_gib"), (_amount, "an amount above 0")
    ),
}


def shown(value: Any) -> str:
    """The beginning of a value."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


class RecipeError(ValueError):
    """One sentence: the recipe, what is wrong, the fix."""

    def __init__(self, message: str, kind: str = "file") -> None:
        # it may name what somebody else wrote
        super().__init__(printable(message, lines=True))
        #: why it is refused, in short: a key of recipe_catalogue.REASONS
        self.kind = kind


#: of one recipe, with all that its aliases repeat: values, levels of them, and characters
MOST_VALUES, MOST_LEVELS, MOST_CHARACTERS = 100_000, 40, 4 << 20


def bounded(data: Any, called: str) -> Any:
    """The document, unless its aliases make more of it than anybody has memory for. Raises RecipeError."""
    values, characters, waiting = MOST_VALUES, MOST_CHARACTERS, [(data, 0)]
    while waiting:
        value, level = waiting.pop()
        values, characters = values - 1, characters - (len(value) if isinstance(value, str) else 1)
        if values < 0 or characters < 0 or level > MOST_LEVELS:
            raise RecipeError(
                f"vllm_serve_recipe={called!r} has more than {MOST_VALUES} values, {MOST_CHARACTERS} characters or "
                f"{MOST_LEVELS} levels, by aliases that repeat one another. Write what is meant, without anchors."
            )
        inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
        waiting += [(one, level + 1) for one in inner]
    return data


def validated(data: Mapping[str, Any], called: str) -> dict[str, Any]:
    """A recipe whose fields are known and of the right kind, with defaults filled in."""
    missing = [key for key in _REQUIRED if key not in data]
    if missing:
        raise RecipeError(f"vllm_serve_recipe={called!r} lacks {', '.join(missing)}. Add what is missing.")
    known = {*_REQUIRED, *_defaults()}
    unknown = sorted(set(data) - known)
    if "acknowledged" in unknown:
        raise RecipeError(
            f"vllm_serve_recipe={called!r}: acknowledged={data['acknowledged']!r} is not a recipe's to say. Take it "
            "out; whoever wants such an option says so in the inventory, in vllm_serve_acknowledged."
        )
    if unknown:
        close = difflib.get_close_matches(unknown[0], sorted(known), n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise RecipeError(f"vllm_serve_recipe={called!r} has unknown fields {', '.join(unknown)}.{hint}")
    data = {"args": {}, **{key: value for key, value in data.items() if value is not None}}
    if missing := [key for key in _REQUIRED if key not in data and key != "hosts"]:
        raise RecipeError(f"vllm_serve_recipe={called!r}: {', '.join(missing)} is null. Give a value.")
    data.setdefault("hosts", None)
    for key, (accepts, word) in _KINDS.items():
        if key in data and not accepts(data[key]):
            raise RecipeError(
                f"vllm_serve_recipe={called!r}: {key} is not {word}: {shown(data[key])}. Write it as one."
            )
    for rule in data.get("args_below") or ():
        if not isinstance(rule, dict) or "version" not in rule or not isinstance(rule.get("args"), dict):
            raise RecipeError(f"vllm_serve_recipe={called!r}: args_below holds {rule!r}. Give each a version and args.")
    later = [key for rule in data.get("args_below") or () for key in rule["args"]]
    # another engine's names are read where it is planned
    ours = data.get("engine", registry.DEFAULT.name) == registry.DEFAULT.name
    owned = sorted({option_name(key) for key in (*data["args"], *later)} & set(OWNED if ours else ()))
    if owned:
        ours = [f"{name}: {OWNED[name]}" for name in owned if name not in SERVE_FIELDS]
        fix = f"The role decides it ({'; '.join(ours)})." if ours else ""
        if len(ours) < len(owned):
            fix = f"Use the fields model, served_model_name, max_model_len and split. {fix}".strip()
        raise RecipeError(f"vllm_serve_recipe={called!r}: {', '.join(owned)} cannot be an argument of a recipe. {fix}")
    for name, value in (data.get("environment") or {}).items():
        if refused := environment.not_of_recipe(name, value):
            raise RecipeError(f"vllm_serve_recipe={called!r}: environment: {refused[0]}. {refused[1]}.")
    what, fix = measured.problem(data.get("measured", []))
    if what:
        raise RecipeError(f"vllm_serve_recipe={called!r}: {what}. {fix}")
    what, fix = known_good.problem_of_known_good(data.get("known_good", {}))
    if what:
        raise RecipeError(f"vllm_serve_recipe={called!r}: {what}. {fix}")
    what, fix = image_steps.problem_of_build(data.get("build", []))
    if what:
        raise RecipeError(f"vllm_serve_recipe={called!r}: {what}. {fix}")
    _check_engine(data, called)
    _check_splits(data, called)
    return {**_defaults(), **data}


def _check_splits(data: Mapping[str, Any], called: str) -> None:
    counts, splits = host_counts(data, called), data.get("splits") or {}
    for number in splits:
        if not _whole(number) or (counts and number not in counts):
            raise RecipeError(
                f"vllm_serve_recipe={called!r}: splits names {shown(number)}, and its hosts are {counts or 'any'}. "
                "Name a number of them."
            )
    for name, split in (("split", data.get("split")), *((f"splits: {number}", row) for number, row in splits.items())):
        if split and not (isinstance(split, dict) and all(_whole(split[key]) for key in _SIZES if key in split)):
            raise RecipeError(
                f"vllm_serve_recipe={called!r}: {name} is not a split: {shown(split)}. Give {' and '.join(_SIZES)} as "
                "whole numbers."
            )


def _check_engine(data: Mapping[str, Any], called: str) -> None:
    """What serves, in what, and what starts its ranks."""
    if data["runtime"] not in ("venv", "container"):
        raise RecipeError(f"vllm_serve_recipe={called!r}: runtime {data['runtime']!r} is not venv or container.")
    if data.get("executor", "") not in ("", "ray", "mp"):
        raise RecipeError(
            f"vllm_serve_recipe={called!r}: executor {data['executor']!r} is not ray or mp. Write one, or leave it out."
        )
    if (engine := data.get("engine", registry.DEFAULT.name)) not in registry.ENGINES:
        raise RecipeError(
            f"vllm_serve_recipe={called!r} is for {shown(engine)}. There are {', '.join(registry.ENGINES)}.", "engine"
        )


def _defaults() -> dict[str, Any]:
    """What stands where a field is left out; made anew for each recipe, whose lists may be changed."""
    return {
        "revision": "",
        "served_model_name": "",
        "image": "",
        "image_digest": "",
        "vllm": {},
        "kinds": [],
        "topologies": [],
        "split": {},
        "splits": {},
        "gpu_memory_gib": None,
        "answers": True,
        "engine": registry.DEFAULT.name,
        "max_model_len": None,
        "args_below": [],
        "reasons": {},
        "environment": {},
        "fallbacks": {},
        "differences": [],
        "weights_bytes": None,
        "active_bytes": None,
        "config": None,
        "draft_config": None,
        "draft_weights_bytes": None,
        "measured": [],
        "executor": "",
        "known_good": {},
        "build": [],
        "source": "sparkthor",
        "untranslated": [],
    }


def host_counts(recipe: Mapping[str, Any], called: str = "") -> list[int]:
    """Numbers of hosts that the recipe is for; an empty list means any."""
    value = recipe["hosts"]
    if value in (None, "any"):
        return []
    numbers = value if isinstance(value, list) else [value]
    if not all(map(_whole, numbers)):
        raise RecipeError(f"vllm_serve_recipe={called!r}: hosts {value!r} is not a number of hosts. Give 2 or [2, 4].")
    return list(numbers)


def check_names(data: Mapping[str, Any], model: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Each of these becomes a word of the engine's command, and one with a dash before it an option."""
    for field in ("model", "revision", "served_model_name"):
        words = model[field] if isinstance(model[field], list) else [model[field]]
        for word in words:
            if field == "served_model_name" and (
                isinstance(word, bool) or not isinstance(word, (str, int)) or word == ""
            ):
                raise RecipeError(
                    f"recipe {data['name']}: {field}={model[field]!r} holds {word!r}, which is no name. Give a name "
                    "or a list of names."
                )
            if str(word).lstrip().startswith("-"):
                raise RecipeError(
                    f"recipe {data['name']}: {field}={word!r} begins with a dash, and the engine reads an option. "
                    "Correct it."
                )
            if word and field in _FORMS and not _FORMS[field][0].fullmatch(str(word)):
                raise RecipeError(f"recipe {data['name']}: {field}={word!r} {_FORMS[field][1]}")
    if "model" not in given:
        _check_place(data)
    served = registry.ENGINES.get(str(data.get("engine") or registry.DEFAULT.name), registry.DEFAULT)
    if found := model_source.problem(str(model["model"]), bool(served.ending)):
        raise RecipeError(f"recipe {data['name']}: model={model['model']!r} {found[0]}. {found[1]}")


def _check_place(data: Mapping[str, Any]) -> None:
    """A recipe names no folder of the controller and no URL: the hosts would be sent what it chooses."""
    model = str(data["model"])
    if model_source.on_controller(model) or "://" in model:
        raise RecipeError(
            f"recipe {data['name']}: model={model!r} is no recipe's to say: the controller would fetch it and send it "
            f"to all hosts. Name an id of the hub there, or set vllm_serve_model: {model} in the inventory."
        )
