# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes of the vLLM project (vllm-project/recipes), translated into recipes of ours for DGX Spark.

Such a file is no command but the parts of one: arguments of the model, of the variant (checkpoint), of the strategy
(parallelism), of the hardware and of features. They are put together in the order that the project's own command
builder has; of two equal options the last counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.foreign import Foreign, finished
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serve_command import read_words

#: the project's names for a DGX Spark: the machine, its generation, its maker
_MACHINE, _GENERATION, _BRAND = "dgx_spark_gb10", "blackwell", "nvidia"
#: what its recipes are called here
PROJECT = "vllm-project"
_GIGABYTES = 128
_COUNTS = (1, 2, 4, 8)
#: strategies whose ranks are one serving group; the others serve several replicas
_STRATEGIES = {
    "single_node_tp": [],
    "single_node_tep": ["--enable-expert-parallel"],
    "multi_node_tp": [],
    "multi_node_tep": ["--enable-expert-parallel"],
    "multi_node_tp_pp": [],
}
_SEVERAL = ("multi_node_tp", "multi_node_tep", "multi_node_tp_pp", "single_node_tp", "single_node_tep")
_ONE = ("single_node_tp", "single_node_tep", "multi_node_tp", "multi_node_tep")


def is_of_project(data: Mapping[str, Any]) -> bool:
    model = data.get("model")
    return isinstance(data.get("meta"), Mapping) and isinstance(model, Mapping) and "model_id" in model


def translate_project(
    data: Mapping[str, Any], called: str, variant: str = "", hosts: int | None = None
) -> dict[str, Any]:
    """A recipe of ours; `variant` names a checkpoint of the recipe, `hosts` how many Sparks it has to fit on."""
    meta, model = data["meta"], data["model"]
    if "omni" in (meta.get("tasks") or []) or data.get("omni"):
        raise RecipeError(
            f"vllm_serve_recipe={called!r} is for vLLM-Omni, another engine. Choose another recipe.", "engine"
        )
    if (meta.get("hardware") or {}).get(_MACHINE) == "unsupported":
        raise RecipeError(
            f"vllm_serve_recipe={called!r} says that DGX Spark is not supported. Choose another recipe.", "hardware"
        )
    key = _variant(data, called, variant, hosts)
    chosen = data["variants"][key]
    counts = _counts(data, chosen)
    if not counts:
        raise RecipeError(
            f"vllm_serve_recipe={called!r} needs {_gigabytes(chosen):.0f} GB for variant {key}, more than it can "
            f"use of {_COUNTS[-1]} Sparks. Choose another by FILE#VARIANT: {', '.join(data['variants'])}.",
            "memory",
        )
    number = hosts if hosts in counts else counts[0]
    strategy = _strategy(data, number, called)
    words, environment, notes = _parts(data, key, strategy)
    served = read_words([str(word) for word in words], called)
    notes += [*_steps(data), *served.notes]
    image = _image(model, chosen)
    if not image:
        notes.append("no image is named (the original takes vllm/vllm-openai:latest; set engine_image)")
    foreign = Foreign(
        name=str(meta.get("slug") or called) + ("" if key == "default" else f"-{key}"),
        summary=str(meta.get("title") or model["model_id"]),
        model=str(chosen.get("model_id") or model["model_id"]),
        flags=served.flags,
        environment=environment,
        source=PROJECT,
        plain_image=True,
        notes=notes,
        image=image,
        versions=_versions(chosen.get("min_vllm_version") or model.get("min_vllm_version")),
        weights_bytes=_weights(chosen),
        differences=[f"Variant {key} of {', '.join(data['variants'])}; choose one by FILE#VARIANT."],
    )
    foreign.split()  # what a part says of it is for other machines
    pipeline = strategy == "multi_node_tp_pp"
    splits = {
        count: {
            "tensor_parallel": 1 if pipeline else count,
            "pipeline_parallel": count if pipeline else 1,
            "why": f"as in the recipe's strategy {strategy}.",
        }
        for count in counts
    }
    return finished(foreign, called, hosts=counts, splits=splits)


def _variant(data: Mapping[str, Any], called: str, wanted: str, hosts: int | None) -> str:
    """The variant that is named; else the default; else the one with the most bits that fits on the hosts."""
    variants: Mapping[str, Mapping[str, Any]] = data["variants"]
    if wanted:
        if wanted not in variants:
            raise RecipeError(
                f"vllm_serve_recipe={called!r} has no variant {wanted}. There are: {', '.join(variants)}."
            )
        return wanted
    allowed = [key for key, row in variants.items() if _runs_here(row)]
    if not allowed:
        raise RecipeError(
            f"vllm_serve_recipe={called!r} has no variant for DGX Spark. Choose another recipe.", "hardware"
        )
    fitting = [key for key in allowed if any(count <= (hosts or _COUNTS[-1]) for count in _counts(data, variants[key]))]
    if "default" in fitting:
        return "default"
    if fitting:
        return max(fitting, key=lambda key: _gigabytes(variants[key]))
    return min(allowed, key=lambda key: _gigabytes(variants[key]))


def _runs_here(variant: Mapping[str, Any]) -> bool:
    machines = variant.get("supported_hardware") or []
    limit = variant.get("precision_hardware") or {}
    return (
        (not machines or _MACHINE in machines)
        and str(limit.get("brand", _BRAND)).lower() == _BRAND
        and limit.get("generation", _GENERATION) == _GENERATION
    )


def _gigabytes(variant: Mapping[str, Any]) -> float:
    return float(variant.get("vram_minimum_gb") or 0)


def _weights(variant: Mapping[str, Any]) -> int | None:
    """The project counts 1.2 times the weights."""
    return int(_gigabytes(variant) / 1.2 * 1e9) or None


def _counts(data: Mapping[str, Any], variant: Mapping[str, Any]) -> list[int]:
    """Numbers of Sparks that hold the weights, and that the variant's blocks divide by."""
    least = data.get("strategy_min_gpus")
    most = variant.get("tp")
    if isinstance(most, Mapping):
        most = _keyed(most, None)
    return [
        count
        for count in _COUNTS
        if count * _GIGABYTES >= _gigabytes(variant)
        and (not isinstance(least, int) or count >= least)
        and (not isinstance(most, int) or count <= most)
    ]


def _strategy(data: Mapping[str, Any], hosts: int, called: str) -> str:
    """The recipe's default, or the first of ours that it allows on this number of hosts."""
    gates = data.get("strategy_hardware") or {}
    allowed = [
        name
        for name in _STRATEGIES
        if _keyed(gates.get(name), None) == "supported"
        or (name in (data.get("compatible_strategies") or []) and _keyed(gates.get(name), None) != "unsupported")
    ]
    order = list(_SEVERAL if hosts > 1 else _ONE)
    default = str(data.get("default_strategy") or "")
    if hosts > 1:
        default = default.replace("single_node_", "multi_node_")
    if default in order:
        order.insert(0, default)
    for name in order:
        if name in allowed:
            return name
    offered = ", ".join(data.get("compatible_strategies") or [])
    raise RecipeError(
        f"vllm_serve_recipe={called!r} is for {offered}: several replicas in one group. Choose another recipe.",
        "replicas",
    )


def _keyed(table: Any, fallback: Any) -> Any:
    """What a table by hardware says for a Spark: the machine goes before its generation, that before its maker."""
    if not isinstance(table, Mapping):
        return fallback
    return next((table[name] for name in (_MACHINE, _GENERATION, _BRAND, "default") if name in table), fallback)


def _generation(table: Any) -> Mapping[str, Any]:
    table = table if isinstance(table, Mapping) else {}
    return table.get(_GENERATION) or table.get(_BRAND) or {}


def _exact(table: Any) -> Mapping[str, Any]:
    return (table.get(_MACHINE) if isinstance(table, Mapping) else None) or {}


def _parts(data: Mapping[str, Any], key: str, strategy: str) -> tuple[list[Any], dict[str, Any], list[str]]:
    """(arguments, environment, notes), put together in the order of the project's command builder."""
    model, variant = data["model"], data["variants"][key]
    override = (data.get("strategy_overrides") or {}).get(strategy) or {}
    by_strategy = _generation(override.get("hardware_overrides"))
    # a strategy's word on a generation replaces the recipe's and the variant's
    by_hardware = (
        [by_strategy]
        if by_strategy
        else [_generation(data.get("hardware_overrides")), _generation(variant.get("hardware_overrides"))]
    )
    layers: list[Mapping[str, Any]] = [
        {"extra_args": model.get("base_args"), "extra_env": model.get("base_env")},
        variant,
        _exact(variant.get("hardware_overrides")),
        {"extra_args": _STRATEGIES[strategy]},
        override,
        {"extra_args": override.get("vllm_args"), "extra_env": override.get("env")},
        *by_hardware,
        _exact(override.get("hardware_overrides")),
    ]
    words = [word for layer in layers for word in layer.get("extra_args") or []]
    environment = {name: value for layer in layers for name, value in (layer.get("extra_env") or {}).items()}
    notes: list[str] = []
    for name, feature in _features(data, key):
        if strategy not in (feature.get("strategies") or [strategy]):
            continue
        if feature.get("companion"):
            notes.append(f"feature {name} (needs a program beside vLLM, which is not started)")
            continue
        words += _feature_words(feature, name, key, variant)
    return words, environment, notes


def _features(data: Mapping[str, Any], key: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Features that are on unless a user says otherwise."""
    off = {*(data.get("opt_in_features") or []), *((data.get("hardware_opt_in_features") or {}).get(_MACHINE) or [])}
    off -= set(data["variants"][key].get("default_modes") or {})
    return [(name, row) for name, row in (data.get("features") or {}).items() if name not in off]


def _feature_words(feature: Mapping[str, Any], name: str, key: str, variant: Mapping[str, Any]) -> list[Any]:
    modes = feature.get("modes")
    if not isinstance(modes, Mapping):
        return list(_generation(feature.get("hardware_overrides")).get("args") or feature.get("args") or [])
    allowed = {
        mode: row
        for mode, row in modes.items()
        if key in (row.get("variants") or [key])
        and "unsupported" not in [(row.get("hardware") or {}).get(place) for place in (_GENERATION, _MACHINE)]
    }
    asked = [(variant.get("default_modes") or {}).get(name), feature.get("default_mode"), *allowed]
    mode: Mapping[str, Any] = next((allowed[text] for text in asked if text in allowed), {})
    special: Mapping[str, Any] = _keyed(mode.get("hardware_overrides"), {})
    return list(special.get("args") or mode.get("args") or [])


def _steps(data: Mapping[str, Any]) -> list[str]:
    """What the original has people install besides."""
    notes = []
    for row in data.get("dependencies") or []:
        if not row.get("optional"):
            words = str(row.get("note") or row.get("command") or "").strip().splitlines()
            notes.append(f"dependency {words[0] if words else ''} (not installed)")
    if data["model"].get("install"):
        notes.append("install (steps of the original, which are not run)")
    return notes


def _image(model: Mapping[str, Any], variant: Mapping[str, Any]) -> str:
    for value in (
        _exact(variant.get("hardware_overrides")).get("docker_image"),
        variant.get("docker_image"),
        model.get("docker_image"),
    ):
        named = value.get(_BRAND, value) if isinstance(value, Mapping) else value
        if isinstance(named, Mapping):
            named = named.get("cu130") or named.get("cu129")
        if named:
            return str(named)
    return ""


def _versions(minimum: Any) -> dict[str, Any]:
    text = str(minimum or "")
    return {"minimum": text} if text[:1].isdigit() else {}
