# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes of the community's `sparkrun` tool, translated into recipes of ours."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_args, vllm_config
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import (
    SERVE_FIELDS,
    RecipeError,
    validated,
)

_SPARKRUN_FIELDS = frozenset(
    (
        *("recipe_version", "name", "description", "model", "model_revision", "runtime", "container", "min_nodes"),
        *("max_nodes", "solo_only", "cluster_only", "defaults", "env", "command", "metadata"),
    )
)
#: sparkrun's names of defaults -> vLLM's; all others are the same with dashes.
_SPARKRUN_DEFAULTS = {"tensor_parallel": "tensor-parallel-size", "pipeline_parallel": "pipeline-parallel-size"}
#: What the roles decide; a translated recipe must not bring it.
_DECIDED = (frozenset(vllm_config.OWNED) - frozenset(SERVE_FIELDS)) | {"download-dir"}
_SHORT_FLAGS = {"-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-q": "quantization"}


def is_sparkrun(data: Mapping[str, Any]) -> bool:
    return "recipe_version" in data or ("container" in data and ("command" in data or "defaults" in data))


def translate_sparkrun(data: Mapping[str, Any], called: str) -> dict[str, Any]:
    """A recipe of ours from one of sparkrun; what has no counterpart is listed in `untranslated`."""
    model = data.get("model")
    if not isinstance(model, str) or not model:
        raise RecipeError(f"vllm_serve_recipe={called!r} names no model. Add it.")
    runtime = str(data.get("runtime", "vllm"))
    if not runtime.startswith("vllm"):
        raise RecipeError(f"vllm_serve_recipe={called!r} is for {runtime}. Only vLLM recipes can be served here.")
    left = sorted(set(data) - _SPARKRUN_FIELDS)
    untranslated = [f"{key} (no counterpart)" for key in left if data[key] not in (None, [], {}, "")]
    defaults = data.get("defaults") or {}
    if not isinstance(defaults, Mapping):
        raise RecipeError(f"vllm_serve_recipe={called!r}: defaults is not a dictionary. Write it as one.")
    command = data.get("command")
    if command:
        flags, problems = _read_command(str(command), {**defaults, "model": model}, called)
        untranslated += problems
        unused = sorted(key for key in defaults if f"{{{key}}}" not in str(command))
        untranslated += [f"defaults.{key} (not used by the command)" for key in unused]
    else:
        flags = {_SPARKRUN_DEFAULTS.get(key, key.replace("_", "-")): value for key, value in defaults.items()}
    split = {}
    for flag, name in (("tensor-parallel-size", "tensor_parallel"), ("pipeline-parallel-size", "pipeline_parallel")):
        if flag in flags:
            split[name] = flags.pop(flag)
    untranslated += [f"--{flag} (decided by the roles)" for flag in sorted(set(flags) & _DECIDED)]
    served = flags.pop("served-model-name", "")
    length = flags.pop("max-model-len", None)
    environment = {}
    for name, value in (data.get("env") or {}).items():
        if name.startswith(("NCCL_", "GLOO_", "UCX_")) or name in ("VLLM_HOST_IP", "HF_TOKEN", "VLLM_API_KEY"):
            untranslated.append(f"env.{name} (decided by the fabric plan or a secret)")
        else:
            environment[str(name)] = str(value)
    return validated(
        {
            "name": str(data.get("name") or called),
            "summary": str(data.get("description") or (data.get("metadata") or {}).get("description") or model).strip(),
            "model": model,
            "revision": str(data.get("model_revision") or ""),
            "served_model_name": served,
            "runtime": "container",
            "image": str(data.get("container") or ""),
            "hosts": _sparkrun_hosts(data, split),
            "split": split,
            "max_model_len": length,
            "args": {key: value for key, value in flags.items() if key not in _DECIDED},
            "environment": environment,
            "source": "sparkrun",
            "untranslated": untranslated,
        },
        called,
    )


def _sparkrun_hosts(data: Mapping[str, Any], split: Mapping[str, Any]) -> Any:
    low, high = data.get("min_nodes"), data.get("max_nodes")
    if data.get("solo_only"):
        return 1
    if isinstance(low, int) or isinstance(high, int):
        first = low if isinstance(low, int) else 1
        last = high if isinstance(high, int) else max(first, 8)
        return list(range(first, last + 1))
    return "any"


def _read_command(command: str, values: Mapping[str, Any], called: str) -> tuple[dict[str, Any], list[str]]:
    """Flags of a `vllm serve` command template, and the parts of it that are no such command."""

    def fill(match: re.Match[str]) -> str:
        key = match.group(1)
        if key not in values:
            raise RecipeError(
                f"vllm_serve_recipe={called!r}: the command uses {{{key}}}, which defaults lacks. Add it there."
            )
        return str(values[key])

    # doubled braces are literal ones, as in Python's format()
    text = command.replace("\\\n", " ").replace("{{", "\0").replace("}}", "\1")
    text = re.sub(r"\{(\w+)\}", fill, text).replace("\0", "{").replace("\1", "}")
    untranslated: list[str] = []
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise RecipeError(f"vllm_serve_recipe={called!r}: the command cannot be read: {error}.") from None
    pairs = list(itertools.pairwise(words))
    start = pairs.index(("vllm", "serve")) if ("vllm", "serve") in pairs else None
    if start is None:
        raise RecipeError(f"vllm_serve_recipe={called!r}: the command holds no `vllm serve`. Only that can be served.")
    if start:
        untranslated.append(f"command before vllm serve ({shlex.join(words[:start])})")
    flags: dict[str, Any] = {}
    name: str | None = None
    for index, word in enumerate(words[start + 2 :]):
        if word in ("&&", "||", ";", "|", "&"):
            untranslated.append(f"command after vllm serve ({shlex.join(words[start + 2 + index :])})")
            break
        if word.startswith("--") or word in _SHORT_FLAGS:
            flag, _equals, value = word.partition("=")
            name = _SHORT_FLAGS.get(flag) or vllm_args.option_name(flag)
            flags[name] = _scalar(value) if _equals else True
        elif name is None:
            continue  # the model
        elif flags[name] is True:
            flags[name] = _scalar(word)
        else:
            earlier = flags[name]
            flags[name] = [*(earlier if isinstance(earlier, list) else [earlier]), _scalar(word)]
    flags.pop("model", None)
    return flags, untranslated


def _scalar(word: str) -> Any:
    """A word of a command line as the value it stands for."""
    if re.fullmatch(r"-?\d+", word):
        return int(word)
    if re.fullmatch(r"-?\d*\.\d+", word):
        return float(word)
    if word.startswith(("{", "[")):
        try:
            return json.loads(word)
        except ValueError:
            return word
    return word
