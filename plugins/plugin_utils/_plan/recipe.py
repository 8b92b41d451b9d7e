# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes: deployments as data, and their resolution against one cluster. Runs on the controller only.

A recipe names a model, an engine, a split and arguments with the reason for each. resolve() turns it, with the hosts
of an inventory and the user's own variables, into what the roles set, checked by the parallelism planner, the memory
plan and the option table of the vLLM that will serve.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import errors_and_others
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import memory
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import with_overrides
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, parse_length
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.base import EngineOnHost
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    engine_version,
    image_steps,
    sizing_options,
    vllm_args,
    vllm_config,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import overrides as _overrides
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import parallel as _parallel
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engine import calls_of
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import merged
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.foreign_yaml import load_foreign
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
    is_vllm_project,
    translate_vllm_project,
)

SHIPPED = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))),
    "recipes",
)
_KEY = re.compile(r"""[\s{-]*["']?([\w.-]+)["']?\s*:(?:\s|$)""")
#: what a recipe is refused for, by the variable that cannot be planned
_KINDS = {"replicas": "replicas", "data-parallel-size": "replicas", "hosts": "split"}
#: how a warning begins of an argument that an image of others may have, and how it ends
UNKNOWN_HERE = "Unknown here:"
OWN_TABLE = "the image is not of the vLLM project, and its own table decides before it serves"
NOT_CHECKED = "No vLLM version is named: arguments are not checked."


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
            use = f"vllm_serve_recipe: {own[0]}, the recipe for it" if own else f"vllm_serve_model: {text}"
            raise RecipeError(
                f"vllm_serve_recipe={text!r} is the name of a model on the hub, not of a recipe. Set {use}."
            )
        original, stem = read(path, text), os.path.splitext(os.path.basename(path))[0]
        found = translated(original, text, stem, variant, hosts)
        try:
            return image_steps.beside(found, original, os.path.dirname(os.path.abspath(path)))
        except (image_steps.StepError, OSError) as error:
            raise RecipeError(f"vllm_serve_recipe={text!r}: {error}") from error
    if text not in names(folder):
        known = offered(text, folder)
        close = [name for name in known if name.startswith(text)] or difflib.get_close_matches(text, known, 3, 0.4)
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
    """A recipe of ours, whichever tool it was written for."""
    if is_vllm_project(data):
        return translate_vllm_project(data, stem, variant, hosts)
    if variant:
        raise RecipeError(f"vllm_serve_recipe={called!r} has no variants. Leave out #{variant}.")
    return translate_sparkrun(data, stem) if is_sparkrun(data) else validated(data, called)


def resolve(
    recipe: Mapping[str, Any] | str,
    hosts: Sequence[str],
    *,
    topology: str = "switch",
    gpus_per_host: int | Sequence[int] | Mapping[str, int] = 1,
    kinds: Mapping[str, str] | None = None,
    memory_bytes: Mapping[str, int] | Sequence[int] | int | None = None,
    memory_available_bytes: Mapping[str, int] | Sequence[int] | int | None = None,
    version: str | None = None,
    table: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    weights_bytes: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    folder: str = SHIPPED,
    base: str | None = None,
    require_fit: bool = True,
    image: str = "",
) -> dict[str, Any]:
    """What the roles set for this recipe on these hosts, or an error before anything is changed.

    `overrides` holds the user's own variables, which win; the filter `recipe` lists them. `image` is what serves.
    """
    given = {key: value for key, value in (overrides or {}).items() if value not in (None, "")}
    data, replaced = _overrides.with_dependents(load(recipe, folder, base, len(hosts)), given)
    check_recipe_hosts(data, hosts, topology, kinds or {}, folder)
    known = engine_version.of_image(image)
    wanted = _engine_version(data, version, table, known)
    args = _arguments(data, wanted or known.most, given)
    notes = _memory_in_gib(data, args, given, memory_bytes, len(hosts))
    acknowledged, length = list(given.get("acknowledged", [])), given.get("max_model_len", data["max_model_len"])
    hf_overrides = vllm_args.fields(args, "hf-overrides")
    shape = _as_served(config or data["config"], hf_overrides)
    data["weights_bytes"] = weights_bytes or data["weights_bytes"]
    theirs = _overrides.own_options(data, given, image)
    parallel = parallel_of(data, given, args, hosts, gpus_per_host, topology, shape, length, theirs)
    serves = sizing_options.of_engine(hosts, kinds, wanted or known.most)
    environment, sizing, left_out = _sizing(data, given, args, parallel, shape, serves)
    sizes = memory_of(data, shape, parallel, sizing, length, hosts, (memory_bytes, memory_available_bytes), require_fit)
    checked, warnings, checked_by = _check_arguments(data, args, environment, acknowledged, wanted, table, theirs)
    named = model_names(data, given)
    return {
        "name": data["name"],
        **named,
        "max_model_len": length_of(length),
        **{"vllm_version": wanted, "calls": calls_of(shape)},
        "needs": _needs(data, given, named["model"], wanted or known.most),
        **{key: parallel[key] for key in ("tensor_parallel", "pipeline_parallel", "expert_parallel")},
        "why": reason_of(data, given, len(hosts), topology, parallel),
        "args": checked,
        "environment": {**environment, **_nulls(given.get("environment", {}))},
        "acknowledged": acknowledged,
        "answers": bool(data["answers"]) and checked.get("runner") != "pooling",
        "memory": sizes,
        "sizing": {**sizing, **({"hf_overrides": hf_overrides} if hf_overrides else {})},
        "warnings": [*replaced, *left_out, *notes, *_of_engine(warnings, image, wanted, known, named, checked)],
        "options_checked": checked_by,
        "untranslated": list(data["untranslated"]),
        "command": _command(named, parallel, length, checked),
    }


def _nulls(environment: Mapping[str, Any]) -> dict[str, None]:
    """The user's nulls stay, for they take away variables of the role's as well."""
    return {name: None for name, value in environment.items() if value is None}


def length_of(asked: Any) -> int | str | None:
    """The context length; `auto` is vLLM's word for the longest that its memory holds."""
    if asked is None or str(asked) in ("auto", "-1"):
        return None if asked is None else "auto"
    return parse_length("max_model_len", asked)


def _memory_in_gib(
    data: Mapping[str, Any], args: dict[str, Any], own: Mapping[str, Any], memory_bytes: Any, hosts: int
) -> list[str]:
    """Turns an amount of memory into the share that vLLM takes, by the smallest host; what is to be said about it."""
    amount = data["gpu_memory_gib"]
    if amount is None or "gpu-memory-utilization" in {vllm_args.option_name(key) for key in own.get("args", {})}:
        return []
    given = memory_bytes.values() if isinstance(memory_bytes, Mapping) else memory_bytes
    sizes = list(given) if isinstance(given, Iterable) else [given] * hosts
    if not sizes or None in sizes:
        usual = sizing_options.DEFAULT_UTILIZATION
        return [f"gpu_memory_gib={amount:g}: without the hosts' memory {usual} of it is planned"]
    args["gpu-memory-utilization"] = math.floor(amount * 2**30 / min(sizes) * 1000) / 1000
    return []


def _as_served(config: Mapping[str, Any] | None, hf_overrides: Mapping[str, Any]) -> dict[str, Any] | None:
    """The config.json that vLLM will read, such as one with an extended context."""
    return None if config is None else with_overrides(config, hf_overrides)


def _planned(data: Mapping[str, Any], error: SizingError) -> RecipeError:
    """What cannot be planned, with the recipe's name and the kind of reason."""
    usual = "split" if error.variable.startswith("vllm_serve_") else "arguments"
    kind = _KINDS.get(error.variable, "shape" if error.variable.startswith("config") else usual)
    return RecipeError(f"recipe {data['name']}: {error}", kind)


def parallel_of(data: Mapping[str, Any], *asked: Any) -> dict[str, Any]:
    """The split, checked, by the arguments of `_plan_parallel`. Raises RecipeError with the recipe's name."""
    try:
        return _plan_parallel(data, *asked)
    except SizingError as error:
        raise _planned(data, error) from error


def _sizing(
    data: Mapping[str, Any],
    given: Mapping[str, Any],
    args: Mapping[str, Any],
    parallel: Mapping[str, Any],
    shape: Mapping[str, Any] | None,
    serves: Mapping[str, str],
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """(environment as it is served, what of it and of the arguments decides sizes, what was left out)"""
    environment = merged(data["environment"], given.get("environment", {}))
    stages, padded = parallel["pipeline_parallel"], {"padded_heads": True} if parallel["padded"] else {}
    try:
        layers = None if shape is None else read_shape(shape).num_layers
        kept, left_out = _overrides.without_partition(environment, given, data, stages, layers)
        _overrides.check_partition(kept, stages, layers)
        options = sizing_options.of_arguments(args, kept)
        return kept, {**options, **serves, **_drafter(data, given, args), **padded}, left_out
    except SizingError as error:
        raise _planned(data, error) from error


def _drafter(data: Mapping[str, Any], given: Mapping[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the model that drafts: the user's word, else the recipe's of the drafter that it names."""
    if not args.get("speculative-config"):
        return {}
    theirs = args["speculative-config"] == {
        vllm_args.option_name(name): value for name, value in data["args"].items()
    }.get("speculative-config")
    source = given if given.get("draft_config") or not theirs else data
    return {name: source[name] for name in ("draft_config", "draft_weights_bytes") if source.get(name)}


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


def _command(model: Mapping[str, Any], parallel: Mapping[str, Any], length: Any, args: Mapping[str, Any]) -> list[str]:
    """The `vllm serve` command that this stands for."""
    planned: dict[str, Any] = {
        "served-model-name": model["served_model_name"],
        "tensor-parallel-size": parallel["tensor_parallel"],
        "pipeline-parallel-size": parallel["pipeline_parallel"],
    }
    if length is not None:
        planned["max-model-len"] = length
    return vllm_args.command(model["model"], {**planned, **args})


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


def _engine_version(
    data: Mapping[str, Any], version: str | None, table: Mapping[str, Any] | None, known: engine_version.Known
) -> str:
    wanted = str((table or {}).get("vllm") or version or data["vllm"].get("pinned") or known.exact)
    minimum, most = data["vllm"].get("minimum"), wanted or known.most
    if most and minimum and vllm_args.vllm_release(most) < vllm_args.vllm_release(str(minimum)):
        serves = f"{wanted} will serve" if wanted else f"the image has at most {most} (by {known.source})"
        raise RecipeError(
            f"recipe {data['name']} needs vLLM {minimum} or later, and {serves}. Set engine_requirements to "
            "a lock that pins it, or engine_image to an image that has it.",
            "arguments",
        )
    return wanted


def _of_engine(
    warnings: Sequence[str],
    image: str,
    version: str,
    known: engine_version.Known,
    model: Mapping[str, Any],
    args: Mapping[str, Any],
) -> list[str]:
    """What is to be said of the arguments, and of an image whose version is not known yet."""
    parsers = [str(finding) for finding in engine_version.parser_problems(str(model["model"]), args, version)]
    if not image or version:
        return [*warnings, *parsers]
    return [engine_version.unknown(image, known), *(line for line in warnings if line != NOT_CHECKED), *parsers]


def _needs(data: Mapping[str, Any], own: Mapping[str, Any], model: str, version: str) -> dict[str, Any]:
    given = [vllm_args.option_name(key) for key in own.get("args", {})]
    taken = {str(rule["version"]): _is_below(rule, version) for rule in data["args_below"]}
    return engine_version.needs(data, model, given, taken)


def _is_below(rule: Mapping[str, Any], version: str) -> bool:
    """Whether arguments for vLLM before ``rule``'s version are those of this one; not of one that is not known."""
    return bool(version) and vllm_args.vllm_release(version) < vllm_args.vllm_release(str(rule["version"]))


def _arguments(data: Mapping[str, Any], version: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe's arguments, those of old versions, and the user's, which win; null takes an argument away."""
    args = {vllm_args.option_name(key): value for key, value in data["args"].items()}
    for rule in data["args_below"]:
        if _is_below(rule, version):
            args.update({vllm_args.option_name(key): value for key, value in rule["args"].items()})
    try:
        vllm_config.render_args(args, f"recipe {data['name']}: args")
        vllm_config.render_args(given.get("args", {}))
    except vllm_config.ServeConfigError as error:
        raise RecipeError(str(error), "arguments") from error
    for key, value in given.get("args", {}).items():
        name = vllm_args.option_name(key)
        opposite = name[3:] if name.startswith("no-") else f"no-{name}"
        args.pop(opposite, None)
        args[name] = value
    args = {key: value for key, value in args.items() if value is not None}
    if "kv-cache-memory-bytes" not in args:
        args.setdefault("gpu-memory-utilization", sizing_options.DEFAULT_UTILIZATION)
    return args


def _check_arguments(
    data: Mapping[str, Any],
    args: Mapping[str, Any],
    environment: Mapping[str, Any],
    acknowledged: Collection[str],
    version: str,
    table: Mapping[str, Any] | None,
    theirs: bool,
) -> tuple[dict[str, Any], list[str], str]:
    """(arguments, warnings, version of the table they were checked by); ``theirs``: others made the image."""
    options, unknown = table, "No vLLM version is named: arguments are not checked."
    if options is None and version:
        try:
            options, _exact = vllm_args.find_table(version)
        except SizingError as error:
            unknown = str(error)
    # what is dangerous is so in a version that nobody here knows as well
    problems = vllm_args.check(args, options, acknowledged) if options else vllm_args.check_trust(args, acknowledged)
    strange = [one for one in problems if theirs and table is None and vllm_args.unknown_here(one)]
    problems = [finding for finding in problems if finding not in strange]
    errors, warnings = errors_and_others([*problems, *vllm_args.check_environment(environment)])
    warnings += [f"{UNKNOWN_HERE} {finding.where}: {finding.what}; {OWN_TABLE}" for finding in strange]
    if errors:
        words = vllm_args.refusal(errors, options["vllm"] if options else version)
        raise RecipeError(f"recipe {data['name']}: {words}", "arguments")
    if not options:
        return _unchecked(args), [unknown], ""
    return vllm_args.normalise(args, options), warnings, options["vllm"]


def _unchecked(args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for a vLLM without a table; which flags have no negation has not changed for long."""
    newest, _exact = vllm_args.find_table(vllm_args.shipped_versions()[-1])
    return dict(sorted(vllm_args.without_idle_flags(args, newest).items()))


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
        raise _planned(data, error) from error
    if require_fit:
        _check_fit(data, sizes)
    return sizes
