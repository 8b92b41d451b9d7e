# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes: deployments as data, and what any engine's plan makes of them. Runs on the controller only.

A recipe names a model, an engine, a split and arguments with the reason for each. The engine's ``plan`` turns it, with
the hosts of an inventory and the user's own variables, into what the roles set, checked by the parallelism planner, the
memory plan and the options of the engine that will serve.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import memory
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import STRANGE, SizingError, parse_length
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.base import EngineOnHost
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import image_steps
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import parallel as _parallel
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.foreign_yaml import load_foreign
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.overrides import with_dependents
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import (
    MOST_CHARACTERS,
    RecipeError,
    bounded,
    check_names,
    host_counts,
    validated,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.sparkrun import is_sparkrun, translate_sparkrun
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_project import (
    PROJECT,
    is_of_project,
    translate_project,
)

SHIPPED = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))),
    "recipes",
)
SPARKRUN = "sparkrun"
_KEY = re.compile(r"""[\s{-]*["']?([\w.-]+)["']?\s*:(?:\s|$)""")
#: what a recipe is refused for, by the variable that cannot be planned
_KINDS = {"replicas": "replicas", "data-parallel-size": "replicas", "hosts": "split"}
#: the share of memory that is asked for when nobody says: engines' own defaults are above what unified memory survives
DEFAULT_UTILIZATION = 0.85
#: how a warning begins of an argument that an image of others may have
UNKNOWN_HERE = "Unknown here:"
#: what to set in place of a recipe's name, for a model on the hub of which no recipe is shipped
MODEL_INSTEAD = "Set vllm_serve_model: {} and remove vllm_serve_recipe."


def names(folder: str = SHIPPED) -> list[str]:
    return sorted(name[:-4] for name in os.listdir(folder) if name.endswith(".yml"))


def offered(asked: str = "", folder: str = SHIPPED, hosts: int = 0) -> list[str]:
    """Recipes to propose, for that many hosts: those of the lab's own models to nobody but who writes such a name."""
    proposed = [name for name in names(folder) if not name.startswith("tiny-") or asked.startswith("tiny")]
    return [name for name in proposed if not hosts or hosts in (host_counts(_peek(folder, name)) or [hosts])]


def load(
    recipe: Mapping[str, Any] | str, folder: str = SHIPPED, base: str | None = None, hosts: int | None = None
) -> dict[str, Any]:
    """A shipped recipe by name, one by path (relative to `base`), also in the form of other tools, or one as it is.

    FILE#VARIANT chooses a variant of a recipe that has some; otherwise the number of hosts decides.
    """
    if isinstance(recipe, Mapping):
        return validated(recipe, str(recipe.get("name")))
    if not isinstance(recipe, str) or not recipe.strip():
        raise RecipeError(f"vllm_serve_recipe={recipe!r} is not a name. Use one of: {', '.join(offered('', folder))}.")
    text = recipe.strip()
    name, _hash, variant = text.rpartition("#")
    if not name or "/" in variant or variant.endswith((".yml", ".yaml")):
        name, variant = text, ""  # the sign is part of the path
    if "/" in name or name.endswith((".yml", ".yaml")):
        path = os.path.expanduser(name)
        if base and not os.path.isabs(path):
            path = os.path.join(base, path)
        if not os.path.exists(path) and re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+(?<!\.yml)(?<!\.yaml)", text):
            own = [known for known in names(folder) if _peek(folder, known).get("model") == text]
            use = f"Set vllm_serve_recipe: {own[0]}, the recipe for it." if own else MODEL_INSTEAD.format(text)
            raise RecipeError(f"vllm_serve_recipe={text!r} is the name of a model on the hub, not of a recipe. {use}")
        original, stem = read(path, text), os.path.splitext(os.path.basename(path))[0]
        found = translated(original, text, stem, variant, hosts)
        try:
            return image_steps.beside(found, original, os.path.dirname(os.path.abspath(path)))
        except (image_steps.StepError, OSError) as error:
            raise RecipeError(f"vllm_serve_recipe={text!r}: {error}") from error
    if text not in names(folder):
        known = offered(text, folder)
        # of those that begin so, what these hosts can serve comes first
        fitting = offered(text, folder, hosts or 0)
        begin = sorted((name for name in known if name.startswith(text)), key=lambda name: name not in fitting)
        close = begin or difflib.get_close_matches(text, known, 3, 0.4)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"There are: {', '.join(known)}."
        raise RecipeError(f"vllm_serve_recipe={text!r} is unknown. {hint}")
    return validated(read(os.path.join(folder, f"{text}.yml"), text), text)


def read(path: str, called: str) -> dict[str, Any]:
    """The file as it stands, whatever tool it is for."""
    try:
        with open(path, "rb") as stream:
            raw = stream.read(MOST_CHARACTERS + 1)
    except OSError as error:
        raise RecipeError(f"vllm_serve_recipe={called!r} cannot be read: {error.strerror} ({path}).") from None
    if len(raw) > MOST_CHARACTERS:
        raise RecipeError(f"vllm_serve_recipe={called!r} is no recipe: {path} has more than {MOST_CHARACTERS} bytes.")
    try:
        text = raw.decode("utf-8")
        data = bounded(load_foreign(text), called)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise RecipeError(
            f"vllm_serve_recipe={called!r} is not YAML: {path}, line {line}: not UTF-8. Save the file as UTF-8."
        ) from None
    except yaml.YAMLError as error:
        raise RecipeError(
            f"vllm_serve_recipe={called!r} is not YAML: {path}, {_place_of(error, text)}. Correct it there: "
            "indent with spaces, close quotes and brackets, quote values that hold ': ' or begin with a special sign."
        ) from None
    if not isinstance(data, dict):
        raise RecipeError(f"vllm_serve_recipe={called!r} does not hold a dictionary. Use a recipe file.")
    return data


def _place_of(error: yaml.YAMLError, text: str) -> str:
    """Line, key and problem. The line itself is not shown, for its value may be a secret."""
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    found, begun = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    line: int = found.line if found else text.count("\n", 0, getattr(error, "position", 0))
    context = str(getattr(error, "context", None) or "")
    if begun and ("quoted" in context or "flow" in context):
        # noticed at the end of the file, or where the next key begins
        line, problem = begun.line, f"{context}, {problem} in line {line + 1}"
    line = min(line, len(lines := text.splitlines()) - 1)
    for before in reversed(lines[: line + 1]):
        if key := _KEY.match(before):
            return f"line {line + 1}, key {key.group(1)!r}: {problem}"
    return f"line {line + 1}: {problem}"


def translated(
    data: Mapping[str, Any], called: str, stem: str, variant: str = "", hosts: int | None = None
) -> dict[str, Any]:
    """A recipe of ours, whichever tool it was written for. Raises RecipeError."""
    form = foreign_form(data)
    try:
        if form == PROJECT:
            return translate_project(data, stem, variant, hosts)
        if variant:
            raise RecipeError(f"vllm_serve_recipe={called!r} has no variants. Leave out #{variant}.")
        return translate_sparkrun(data, stem) if form == SPARKRUN else validated(data, called)
    except RecipeError:
        raise
    except STRANGE as error:
        raise RecipeError(
            f"vllm_serve_recipe={called!r} is not understood: a part of it is missing or of another kind "
            f"({type(error).__name__}: {error}). Correct it, or choose another recipe."
        ) from error


def foreign_form(data: Mapping[str, Any]) -> str:
    """The tool or project that a recipe is written for; empty for ours, and for what is no recipe."""
    return PROJECT if is_of_project(data) else SPARKRUN if is_sparkrun(data) else ""


def length_of(asked: Any) -> int | str | None:
    """The context length; `auto` is the longest that the memory holds."""
    if asked is None or str(asked) in ("auto", "-1"):
        return None if asked is None else "auto"
    return parse_length("max_model_len", asked)


def unplannable(data: Mapping[str, Any], error: SizingError) -> RecipeError:
    """What cannot be planned, with the recipe's name and the kind of reason."""
    usual = "split" if error.variable.startswith("vllm_serve_") else "arguments"
    kind = _KINDS.get(error.variable, "shape" if error.variable.startswith("config") else usual)
    return RecipeError(f"recipe {data['name']}: {error}", kind)


def parallel_of(data: Mapping[str, Any], *asked: Any) -> dict[str, Any]:
    """The split, checked, by the arguments of `_plan_parallel`. Raises RecipeError with the recipe's name."""
    try:
        return _plan_parallel(data, *asked)
    except SizingError as error:
        raise unplannable(data, error) from error


def _plan_parallel(
    data: Mapping[str, Any],
    given: Mapping[str, Any],
    args: dict[str, Any],
    hosts: Sequence[str],
    gpus_per_host: int | Sequence[int] | Mapping[str, int],
    topology: str,
    shape: Mapping[str, Any] | None,
    length: Any,
    theirs: bool,
) -> dict[str, Any]:
    """The split, checked; puts `enable-expert-parallel` into `args` where the split needs it."""
    split = _split(data, given, len(hosts), topology)
    parallel = _parallel.plan_parallel(
        list(hosts),
        gpus_per_host,
        topology,
        shape,
        max_model_len=length,
        expert_parallel=given.get("expert_parallel", args.get("enable-expert-parallel", split.get("expert_parallel"))),
        tensor_parallel=split.get("tensor_parallel"),
        pipeline_parallel=split.get("pipeline_parallel"),
        replicas=given.get("replicas", 1),
        padded=theirs and _parallel.PADDED_HEADS in given.get("acknowledged", ()),
    )
    if str(args.get("data-parallel-size", 1)) != "1":
        raise SizingError(
            "data-parallel-size",
            args["data-parallel-size"],
            "makes several replicas of the model in one group, which neither the plan nor the watchdog covers",
            "Leave it out; make a serving group of each replica (serving_groups), with hosts of its own.",
        )
    if str(args.get("prefill-context-parallel-size", 1)) != "1":
        raise SizingError(
            "prefill-context-parallel-size",
            args["prefill-context-parallel-size"],
            "multiplies the ranks of a group, which the plan does not cover: it has a GPU for each of TP x PP",
            "Leave it out; vllm_serve_tensor_parallel_size and vllm_serve_pipeline_parallel_size divide the model over "
            "all GPUs.",
        )
    if parallel["expert_parallel"]:
        args.setdefault("enable-expert-parallel", True)
    return parallel


def _check_fit(data: Mapping[str, Any], sizes: Mapping[str, Any]) -> None:
    if sizes["verdict"] == "does_not_fit":
        numbers = " ".join([*sizes["reasons"], *sizes["suggestions"]])
        raise RecipeError(f"recipe {data['name']} does not fit these hosts. {numbers}", "memory")


def reason_of(
    data: Mapping[str, Any], given: Mapping[str, Any], hosts: int, topology: str, parallel: Mapping[str, Any]
) -> str:
    """Why the model is split this way: the recipe's own words, unless the user split it otherwise."""
    why = str(_split(data, given, hosts, topology).get("why", "")).strip()
    if given.get("tensor_parallel") or given.get("pipeline_parallel") or not why:
        why = str(parallel["why"])
    if why.startswith("TP="):
        return why
    return f"TP={parallel['tensor_parallel']} PP={parallel['pipeline_parallel']}: {why}"


def model_names(data: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What is served by what: the user's choice, else the recipe's."""
    model = str(given.get("model", data["model"]))
    served = given.get("served_model_name", data["served_model_name"]) or model.rstrip("/").rsplit("/", 1)[-1]
    named = {"model": model, "revision": str(given.get("revision", data["revision"])), "served_model_name": served}
    check_names(data, named, given)
    return {
        **named,
        "runtime": given.get("runtime", data["runtime"]),
        "image": given.get("image", data["image"]),
        "image_digest": data["image_digest"],
    }


def _split(data: Mapping[str, Any], given: Mapping[str, Any], hosts: int, topology: str) -> dict[str, Any]:
    """The user's split replaces the recipe's as a whole: half of each would be neither.

    A table of splits is written for RoCE; over TCP, and for a number of hosts that it lacks, the planner splits.
    """
    if given.get("tensor_parallel") or given.get("pipeline_parallel"):
        return {key: given.get(key) for key in ("tensor_parallel", "pipeline_parallel")}
    if data["split"]:
        return dict(data["split"])
    row = dict(data["splits"].get(hosts) or {})
    return (
        {}
        if hosts > 1 and topology not in _parallel.RDMA_TOPOLOGIES and int(row.get("tensor_parallel", 1)) > 1
        else row
    )


def begun(
    recipe: Mapping[str, Any] | str, hosts: Sequence[str], known: Mapping[str, Any], engine: EngineOnHost
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The recipe without what the user's choice replaces, that choice, and what is to be said; checked by the hosts."""
    own = {key: value for key, value in (known.get("overrides") or {}).items() if value not in (None, "")}
    folder = known.get("folder", SHIPPED)
    data, replaced = with_dependents(load(recipe, folder, known.get("base"), len(hosts)), own)
    topology, kinds = str(known.get("topology") or "switch"), known.get("kinds") or {}
    check_recipe_hosts(data, hosts, topology, kinds, folder, engine)
    return data, own, replaced


def check_engine(data: Mapping[str, Any], engine: EngineOnHost) -> None:
    """Raises RecipeError for a recipe whose arguments are another engine's."""
    if data["engine"] == engine.name:
        return
    raise RecipeError(
        f"recipe {data['name']} is for {data['engine']}, whose arguments {engine.title} does not know. Set "
        f"serving_engine: {data['engine']}, or leave the recipe out and set vllm_serve_model: {data['model']} and "
        "vllm_serve_args.",
        "engine",
    )


def check_recipe_hosts(
    data: Mapping[str, Any],
    hosts: Sequence[str],
    topology: str,
    kinds: Mapping[str, str],
    folder: str,
    engine: EngineOnHost = registry.DEFAULT,
) -> None:
    """Raises RecipeError for a recipe that is for another engine, or for other hosts than these."""
    check_engine(data, engine)
    counts = host_counts(data, data["name"])
    if counts and len(hosts) not in counts:
        fitting = offered(data["name"], folder, len(hosts))
        there = f"Recipes for {len(hosts)}: {', '.join(fitting)}." if fitting else ""
        raise RecipeError(
            f"recipe {data['name']} is for {' or '.join(map(str, counts))} host{'s' if counts != [1] else ''} and the "
            f"group cluster has {len(hosts)} ({', '.join(hosts)}). {there}".strip(),
            "hosts",
        )
    # one host has no links, and ranks of a line use TCP as on a lan
    if len(hosts) > 1 and data["topologies"] and {"line": "lan"}.get(topology, topology) not in data["topologies"]:
        raise RecipeError(
            f"recipe {data['name']} is for fabric_topology {' or '.join(data['topologies'])}, not {topology}. "
            "Choose another recipe, or copy this one into your inventory and change its split."
        )
    allowed = data["kinds"]
    strangers = sorted(host for host, kind in kinds.items() if host in hosts and allowed and kind not in allowed)
    if strangers:
        raise RecipeError(
            f"recipe {data['name']} is for hosts of kind {' or '.join(allowed)}, and "
            f"{', '.join(f'{host} is {kinds[host]}' for host in strangers)}. Choose another recipe, or take it out."
        )


def _peek(folder: str, name: str) -> dict[str, Any]:
    return validated(read(os.path.join(folder, f"{name}.yml"), name), name)


def memory_of(
    data: Mapping[str, Any],
    shape: Mapping[str, Any] | None,
    parallel: Mapping[str, Any],
    sizing: Mapping[str, Any],
    length: Any,
    hosts: Sequence[str],
    known: tuple[Any, Any],
    require_fit: bool,
) -> dict[str, Any] | None:
    """The memory plan by what is known of the hosts' memory (in all, free now); None where the shape is not known."""
    if shape is None:
        return None
    world = parallel["world"]

    def by_rank(value: Any) -> Any:
        if isinstance(value, Mapping):
            value = [value[host] for host in hosts if host in value]
            if len(value) != len(hosts):
                return None
        if isinstance(value, (list, tuple)) and len(value) == len(hosts) and world % len(hosts) == 0:
            each = world // len(hosts)
            return [number // each for number in value for _index in range(each)]
        return value

    try:
        sizes = memory.plan(
            shape,
            tensor_parallel=parallel["tensor_parallel"],
            pipeline_parallel=parallel["pipeline_parallel"],
            max_model_len=length,
            memory_bytes=by_rank(known[0]),
            memory_available_bytes=by_rank(known[1]),
            weights_bytes=data["weights_bytes"],
            active_bytes=data["active_bytes"],
            hosts=list(hosts) if world % len(hosts) == 0 else None,
            **sizing,
        )
    except SizingError as error:
        raise unplannable(data, error) from error
    if require_fit:
        _check_fit(data, sizes)
    return sizes
