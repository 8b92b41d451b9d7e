# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of a recipe: which there are, of which kind, and what stands where one is left out."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import environment, vllm_args, vllm_config

_REQUIRED = ("name", "summary", "model", "runtime", "hosts", "args")
_KNOWN = frozenset(
    (
        *_REQUIRED,
        *("revision", "served_model_name", "image", "image_digest", "vllm", "kinds", "topologies", "split"),
        *("max_model_len", "args_below", "reasons", "environment", "fallbacks", "differences"),
        *("draft_config", "draft_weights_bytes"),
        *("weights_bytes", "active_bytes", "config", "source", "untranslated", "splits", "gpu_memory_gib"),
        "answers",
    )
)
#: Arguments that the role renders from its own variables; a recipe states them as fields.
SERVE_FIELDS = ("max-model-len", "tensor-parallel-size", "pipeline-parallel-size", "served-model-name", "model")


class RecipeError(ValueError):
    """One sentence: the recipe, what is wrong, the fix."""

    def __init__(self, message: str, kind: str = "file") -> None:
        super().__init__(message)
        #: why it is refused, in short: engine, hardware, replicas, arguments, memory, hosts, split, shape or file
        self.kind = kind


def validated(data: Mapping[str, Any], called: str) -> dict[str, Any]:
    """A recipe whose fields are known and of the right kind, with defaults filled in."""
    missing = [key for key in _REQUIRED if key not in data]
    if missing:
        raise RecipeError(f"vllm_serve_recipe={called!r} lacks {', '.join(missing)}. Add what is missing.")
    unknown = sorted(set(data) - _KNOWN)
    if "acknowledged" in unknown:
        raise RecipeError(
            f"vllm_serve_recipe={called!r}: acknowledged={data['acknowledged']!r} is not a recipe's to say. Take it "
            "out; whoever wants such an option says so in the inventory, in vllm_serve_acknowledged."
        )
    if unknown:
        close = difflib.get_close_matches(unknown[0], sorted(_KNOWN), n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise RecipeError(f"vllm_serve_recipe={called!r} has unknown fields {', '.join(unknown)}.{hint}")
    for key, kind in (
        ("args", dict),
        ("reasons", dict),
        ("environment", dict),
        ("split", dict),
        ("splits", dict),
        ("vllm", dict),
        ("args_below", list),
        ("kinds", list),
        ("topologies", list),
        ("config", dict),
        ("draft_config", dict),
    ):
        if data.get(key) is not None and not isinstance(data[key], kind):
            word = "a dictionary" if kind is dict else "a list"
            raise RecipeError(f"vllm_serve_recipe={called!r}: {key} is not {word}. Write it as one.")
    for rule in data.get("args_below") or ():
        if not isinstance(rule, dict) or "version" not in rule or not isinstance(rule.get("args"), dict):
            raise RecipeError(f"vllm_serve_recipe={called!r}: args_below holds {rule!r}. Give each a version and args.")
    later = [key for rule in data.get("args_below") or () for key in rule["args"]]
    owned = sorted({vllm_args.option_name(key) for key in (*data["args"], *later)} & set(vllm_config.OWNED))
    if owned:
        ours = [f"{name}: {vllm_config.OWNED[name]}" for name in owned if name not in SERVE_FIELDS]
        fix = f"The role decides it ({'; '.join(ours)})." if ours else ""
        if len(ours) < len(owned):
            fix = f"Use the fields model, served_model_name, max_model_len and split. {fix}".strip()
        raise RecipeError(f"vllm_serve_recipe={called!r}: {', '.join(owned)} cannot be an argument of a recipe. {fix}")
    for name, value in (data.get("environment") or {}).items():
        if refused := environment.not_of_recipe(name, value):
            raise RecipeError(f"vllm_serve_recipe={called!r}: environment: {refused[0]}. {refused[1]}.")
    if data["runtime"] not in ("venv", "container"):
        raise RecipeError(f"vllm_serve_recipe={called!r}: runtime {data['runtime']!r} is not venv or container.")
    counts = host_counts(data, called)
    for number in data.get("splits") or {}:
        if counts and number not in counts:
            raise RecipeError(
                f"vllm_serve_recipe={called!r}: splits names {number!r}, and its hosts are {counts}. Add it."
            )
    return {**_defaults(), **data}


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
        "source": "sparkthor",
        "untranslated": [],
    }


def host_counts(recipe: Mapping[str, Any], called: str = "") -> list[int]:
    """Numbers of hosts that the recipe is for; an empty list means any."""
    value = recipe["hosts"]
    if value in (None, "any"):
        return []
    numbers = value if isinstance(value, list) else [value]
    if not all(isinstance(number, int) and not isinstance(number, bool) and number > 0 for number in numbers):
        raise RecipeError(f"vllm_serve_recipe={called!r}: hosts {value!r} is not a number of hosts. Give 2 or [2, 4].")
    return list(numbers)
