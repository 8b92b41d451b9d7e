# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recipe for vLLM, resolved against one cluster: version, arguments, memory and command. On the controller only."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.vllm_kernels import EXPERTS, KDA
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import errors_and_others
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import beside
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import text_config, with_overrides
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.defaults import SPARK
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import (
    SizingError,
    as_fraction,
    parse_length,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.vllm import VLLM
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    engine_version,
    vllm_args,
    vllm_config,
    vllm_environment,
    vllm_spelling,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import overrides as _overrides
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe as _recipe
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import merged, with_nulls
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe import memory_of
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError

#: how a warning ends of an argument that an image of others may have
OWN_TABLE = "the image is not of the vLLM project, and its own table decides before it serves"
NOT_CHECKED = "No vLLM version is named: arguments are not checked."
#: layers of each pipeline stage, which vLLM reads however many stages there are
PARTITION = "VLLM_PP_LAYER_PARTITION"
_SHARE = "gpu-memory-utilization"
#: arguments that are given to the memory plan as they are
_FLAGS_OF_SIZE = (
    *("enable-expert-parallel", "enable-prefix-caching", "load-format", "speculative-config"),
    *("enable-chunked-prefill", "performance-mode"),
)


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
    folder: str = _recipe.SHIPPED,
    base: str | None = None,
    require_fit: bool = True,
    image: str = "",
) -> dict[str, Any]:
    """What the roles set for this recipe on these hosts, or an error before anything is changed.

    `overrides` holds the user's own variables, which win; the filter `recipe` lists them. `image` is what serves.
    """
    asked = {"overrides": overrides, "folder": folder, "base": base, "topology": topology, "kinds": kinds}
    data, given, replaced = _recipe.begun(recipe, hosts, asked, VLLM)
    known = engine_version.of_image(image)
    wanted, most = _engine_version(data, version, table, known)
    options, unknown = _option_table(wanted, table)
    data, given, args = _arguments(data, given, most, options or vllm_args.newest_table())
    notes = _memory_in_gib(data, args, given, memory_bytes, len(hosts))
    acknowledged, length = list(given.get("acknowledged", [])), given.get("max_model_len", data["max_model_len"])
    hf_overrides = vllm_args.fields(args, "hf-overrides")
    shape = None if (own := config or data["config"]) is None else with_overrides(own, hf_overrides)
    data["weights_bytes"] = weights_bytes or data["weights_bytes"]
    theirs = _own_options(data, given, image)
    limited = None if vllm_environment.allows_long(_environment(data, given)) else length
    parallel = _recipe.parallel_of(data, given, args, hosts, gpus_per_host, topology, shape, limited, theirs)
    args, alone = _overrides.without_drafter(args, given, data, parallel["pipeline_parallel"])
    serves = {"kind": (kinds or {}).get(hosts[0], SPARK), **_of_image(most, theirs, args)}
    environment, sizing, remarks = _sizing(data, given, args, parallel, shape, serves, length)
    sizes = memory_of(data, shape, parallel, sizing, length, hosts, (memory_bytes, memory_available_bytes), require_fit)
    checked, found = _check_arguments(data, args, environment, acknowledged, wanted, options, theirs and table is None)
    named = _recipe.model_names(data, given)
    warnings = _of_engine([*unknown, *found], image, wanted, known, named, checked)
    return {
        **{"name": data["name"], **named},
        **{"max_model_len": _recipe.length_of(length), "engine_version": wanted, "calls": calls_of(shape)},
        "needs": _needs(data, given, named["model"], most),
        **{key: parallel[key] for key in ("tensor_parallel", "pipeline_parallel", "expert_parallel")},
        "why": _recipe.reason_of(data, given, len(hosts), topology, parallel),
        "args": checked,
        "environment": with_nulls(environment, given.get("environment", {})),
        "acknowledged": acknowledged,
        "answers": bool(data["answers"]) and checked.get("runner") != "pooling",
        "memory": sizes,
        "sizing": {**sizing, **({"hf_overrides": hf_overrides} if hf_overrides else {})},
        "warnings": [*replaced, *alone, *remarks, *notes, *warnings],
        "options_checked": options["vllm"] if options else "",
        **{"untranslated": list(data["untranslated"]), "command": _command(named, parallel, length, checked)},
    }


def _own_options(data: Mapping[str, Any], given: Mapping[str, Any], image: str) -> bool:
    """Whether a container serves whose image neither vLLM's project nor NVIDIA made, so that it may know more words.

    An image that another tool builds has no name in any registry, and a recipe of that tool none here.
    """
    if given.get("image_archive"):
        return True
    if given.get("runtime", data["runtime"]) != "container":
        return False
    name = str(image or given.get("image") or data["image"])
    return engine_version.of_image(name) == engine_version.Known() if name else data["source"] == "sparkrun"


def _of_image(version: str, theirs: bool, args: Mapping[str, Any]) -> dict[str, Any]:
    """The release whose rules the memory plan follows, and whether it may meet a cache that the image alone knows."""
    others = {"image_of_others": True} if theirs and "kv-cache-dtype" in args else {}
    return {**({"vllm_version": version} if version else {}), **others}


def calls_of(config: Mapping[str, Any] | None) -> list[str]:
    """What a model calls of vLLM's libraries beside what every model does; nothing where its config is not known."""
    if config is None:
        return []
    text = text_config(config)
    experts = read_shape(config).experts > 0
    kda = isinstance(text.get("linear_attn_config"), Mapping) or str(text.get("model_type")).startswith("glm5_next")
    return [*([EXPERTS] if experts else []), *([KDA] if kda else [])]


def _memory_in_gib(
    data: Mapping[str, Any], args: dict[str, Any], own: Mapping[str, Any], memory_bytes: Any, hosts: int
) -> list[str]:
    """Turns an amount of memory into the share that vLLM takes, by the smallest host; what is to be said about it."""
    amount = data["gpu_memory_gib"]
    if amount is None or _SHARE in own["args"]:
        return []
    given = memory_bytes.values() if isinstance(memory_bytes, Mapping) else memory_bytes
    sizes = list(given) if isinstance(given, Iterable) else [given] * hosts
    if not sizes or None in sizes:
        return [f"gpu_memory_gib={amount:g}: without the hosts' memory {_recipe.DEFAULT_UTILIZATION} of it is planned"]
    args[_SHARE] = math.floor(amount * 2**30 / min(sizes) * 1000) / 1000
    return []


def _sizing(
    data: Mapping[str, Any],
    given: Mapping[str, Any],
    args: Mapping[str, Any],
    parallel: Mapping[str, Any],
    shape: Mapping[str, Any] | None,
    serves: Mapping[str, Any],
    length: Any,
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """(environment as it is served, what of it and of the arguments decides sizes, what is to be said about it)"""
    environment = _environment(data, given)
    stages, padded = parallel["pipeline_parallel"], {"padded_heads": True} if parallel["padded"] else {}
    try:
        layers = None if shape is None else read_shape(shape).num_layers
        kept, left_out = _overrides.without_partition(environment, given, data, stages, layers, PARTITION)
        _overrides.check_partition(kept, stages, layers, PARTITION, VLLM.title)
        options = sizing_of_arguments(args, kept)
        return (
            kept,
            {**options, **serves, **_drafter(data, given, args), **padded},
            [*left_out, *_too_long(kept, shape, length)],
        )
    except SizingError as error:
        raise _recipe.unplannable(data, error) from error


def _environment(data: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    return merged(data["environment"], given.get("environment", {}))


def _too_long(environment: Mapping[str, Any], shape: Mapping[str, Any] | None, length: Any) -> list[str]:
    """What vLLM itself says of a context that the environment lets be longer than the model's own."""
    limit, asked = None if shape is None else read_shape(shape).max_position, _recipe.length_of(length)
    if limit is None or not isinstance(asked, int) or asked <= limit or not vllm_environment.allows_long(environment):
        return []
    return [
        f"vllm_serve_max_model_len={asked} is longer than the model's own {limit} tokens, which "
        f"{vllm_environment.LONG} allows: beyond them vLLM may answer nonsense, or end"
    ]


def sizing_of_arguments(args: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """What of the arguments and the environment decides sizes, as the memory plan wants it."""
    options: dict[str, Any] = {
        "dtype": str(args.get("dtype", "auto")),
        "kv_cache_dtype": str(args.get("kv-cache-dtype", "auto")),
        "gpu_memory_utilization": as_fraction(_SHARE, args.get(_SHARE, _recipe.DEFAULT_UTILIZATION)),
        "enforce_eager": bool(args.get("enforce-eager", False)),
        "language_model_only": bool(args.get("language-model-only", False)),
        "mamba_ssm_cache_dtype": str(args.get("mamba-ssm-cache-dtype", "auto")),
    }
    for flag in _FLAGS_OF_SIZE:
        if args.get(flag) is not None:
            options[flag.replace("-", "_")] = args[flag]
    for number in ("max-num-batched-tokens", "max-num-seqs", "kv-cache-memory-bytes"):
        if args.get(number):
            options[number.replace("-", "_")] = parse_length(number, args[number])
    options |= beside.read(args, beside.ARGUMENTS)
    if vllm_environment.allows_long(environment):
        options["allow_long_max_model_len"] = True
    if PARTITION in environment:
        options["layer_partition"] = str(environment[PARTITION])
    return options


def _drafter(data: Mapping[str, Any], given: Mapping[str, Any], args: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of the model that drafts: the user's word, else the recipe's of the drafter that it names."""
    if not args.get("speculative-config"):
        return {}
    theirs = args["speculative-config"] == vllm_args.fields(data["args"], "speculative-config")
    source = given if given.get("draft_config") or not theirs else data
    return {name: source[name] for name in ("draft_config", "draft_weights_bytes") if source.get(name)}


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


def _engine_version(
    data: Mapping[str, Any], version: str | None, table: Mapping[str, Any] | None, known: engine_version.Known
) -> tuple[str, str]:
    """The version that serves, where it is known, and else the newest that it may be."""
    wanted = str((table or {}).get("vllm") or version or data["vllm"].get("pinned") or known.exact)
    minimum, most = data["vllm"].get("minimum"), wanted or known.most
    if most and minimum and vllm_args.vllm_release(most) < vllm_args.vllm_release(str(minimum)):
        serves = f"{wanted} will serve" if wanted else f"the image has at most {most} (by {known.source})"
        raise RecipeError(
            f"recipe {data['name']} needs vLLM {minimum} or later, and {serves}. Set engine_requirements to "
            "a lock that pins it, or engine_image to an image that has it.",
            "arguments",
        )
    return wanted, most


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
    taken = {str(rule["version"]): _is_below(rule, version) for rule in data["args_below"]}
    return engine_version.needs(data, model, own["args"], taken)


def _is_below(rule: Mapping[str, Any], version: str) -> bool:
    """Whether arguments for vLLM before ``rule``'s version are those of this one; not of one that is not known."""
    return bool(version) and vllm_args.vllm_release(version) < vllm_args.vllm_release(str(rule["version"]))


def _arguments(
    data: Mapping[str, Any], given: Mapping[str, Any], version: str, table: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The recipe and the user's choice with arguments in one spelling, and what is served of them.

    These are the recipe's, those of old versions, and the user's, which win; null takes an argument away.
    """
    try:
        vllm_config.render_args(data["args"], f"recipe {data['name']}: args")
        vllm_config.render_args(given.get("args", {}))
    except vllm_config.ServeConfigError as error:
        raise RecipeError(str(error), "arguments") from error
    theirs, own = (vllm_spelling.canonical(one.get("args", {}), table) for one in (data, given))
    below = [{**rule, "args": vllm_spelling.canonical(rule["args"], table)} for rule in data["args_below"]]
    older = [rule["args"] for rule in below if _is_below(rule, version)]
    args = vllm_spelling.layered(table, theirs, *older, own)
    if "kv-cache-memory-bytes" not in args:
        args.setdefault(_SHARE, _recipe.DEFAULT_UTILIZATION)
    return {**data, "args": theirs, "args_below": below}, {**given, "args": own}, args


def _option_table(version: str, table: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, list[str]]:
    """The table that decides, or why there is none."""
    if table is not None:
        return table, []
    try:
        return (vllm_args.find_table(version)[0], []) if version else (None, [NOT_CHECKED])
    except SizingError as error:
        return None, [str(error)]


def _check_arguments(
    data: Mapping[str, Any],
    args: Mapping[str, Any],
    environment: Mapping[str, Any],
    acknowledged: Collection[str],
    version: str,
    options: Mapping[str, Any] | None,
    theirs: bool,
) -> tuple[dict[str, Any], list[str]]:
    """(arguments, warnings of their check); ``theirs``: others made the image, so it may know more than the table."""
    # what is dangerous is so in a version that nobody here knows as well
    problems = vllm_args.check(args, options, acknowledged) if options else vllm_args.check_trust(args, acknowledged)
    strange = [one for one in problems if theirs and vllm_args.unknown_here(one)]
    problems = [finding for finding in problems if finding not in strange]
    errors, warnings = errors_and_others([*problems, *vllm_args.check_environment(environment)])
    warnings += [f"{_recipe.UNKNOWN_HERE} {finding.where}: {finding.what}; {OWN_TABLE}" for finding in strange]
    if errors:
        words = vllm_args.refusal(errors, options["vllm"] if options else version)
        raise RecipeError(f"recipe {data['name']}: {words}", "arguments")
    if not options:
        return _unchecked(args), []
    return vllm_args.normalise(args, options), warnings


def _unchecked(args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for a vLLM without a table; which flags have no negation has not changed for long."""
    return dict(sorted(vllm_args.without_idle_flags(args, vllm_args.newest_table()).items()))
