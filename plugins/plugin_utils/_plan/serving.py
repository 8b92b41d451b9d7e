# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be served, planned from the inventory's variables and the hosts' facts.

A module of its own, because it brings half of the collection along, and a run of the network alone has no use for it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import LOCKED, EngineError, read_engine
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import gguf
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.checkpoint import (
    index_remark,
    read_model_folder,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import model_source
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.local_path import local
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    container_needs,
    drafter,
    engine_version,
    executor,
    goal,
    image_steps,
    known_good,
    listed_models,
    outlook,
    overrides,
    parallel,
    patience,
    ring,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe as _recipe
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import runtime as _runtime
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import llama_cpp, registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.base import PlannedEngine
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_values import OF_LANES
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError

Ask = drafter.Ask
#: what a venv is made of where the inventory names no lock: the default of the role engine
LOCK = os.path.join(os.path.dirname(_recipe.SHIPPED), "requirements", "engine", "cuda13-cp312-aarch64.txt")
_SAFETENSORS = "safetensors"


class ServingError(ValueError):
    """It cannot be served here; the message names the variable."""


#: what a user may say beside a recipe, and the name the recipe has for it
_RECIPE_OVERRIDES = {
    "vllm_serve_model": "model",
    "vllm_serve_served_model_name": "served_model_name",
    "vllm_serve_max_model_len": "max_model_len",
    "vllm_serve_tensor_parallel_size": "tensor_parallel",
    "vllm_serve_pipeline_parallel_size": "pipeline_parallel",
    "vllm_serve_args": "args",
    "vllm_serve_env": "environment",
    "vllm_serve_acknowledged": "acknowledged",
    "vllm_serve_replicas": "replicas",
    "vllm_serve_draft_config": "draft_config",
    "engine_runtime": "runtime",
    "engine_image": "image",
    "engine_image_archive": "image_archive",
}
_DEGRADED = ("vllm_serve_degraded_after", "vllm_serve_degraded_recipe")

#: arguments that have a variable of their own
_ARGUMENTS = {
    "vllm_serve_reasoning_parser": "reasoning-parser",
    "vllm_serve_tool_call_parser": "tool-call-parser",
    "vllm_serve_prefix_caching": "enable-prefix-caching",
    "vllm_serve_kv_cache_dtype": "kv-cache-dtype",
}

#: everything of the head's variables that plan_serving reads
READ_OF_HEAD = (
    *("vllm_serve_recipe", "vllm_serve_from_hub", "engine_vllm_version", "engine_requirements", "model_store_models"),
    *("vllm_serve_executor", "serving_engine", registry.PROGRAMS, goal.VARIABLE),
    image_steps.ACKNOWLEDGED,
    *("engine_wheel_dir", "engine_image", "engine_image_archive", "engine_image_digest", "engine_container_options"),
    *_RECIPE_OVERRIDES,
    *_ARGUMENTS,
)


def plan_serving(
    first: Mapping[str, Any],
    cluster: Mapping[str, Any],
    nodes: Mapping[str, Mapping[str, Any]],
    base: str,
    ask: Ask | None = None,
) -> dict[str, Any]:
    """What is to be served on these hosts, by recipe or by variables alone; empty where neither names a model.

    ``ask`` is asked for a model of the hub that nobody here knows. Raises RecipeError or SizingError when it cannot be
    served here.
    """
    if not first.get("vllm_serve_recipe") and not first.get("vllm_serve_model"):
        return {}
    hosts, kinds = cluster["hosts"], set(cluster["kinds"].values())
    recipe = first.get("vllm_serve_recipe") or ad_hoc(first, kinds)
    data = _recipe.load(recipe, base=base) if isinstance(recipe, str) else recipe
    runtime = _only_way(first, data) or _runtime.choose(first, kinds, data if first.get("vllm_serve_recipe") else None)
    engine = _engine(first, data, kinds, runtime, len(hosts))
    config, weights, remark = model_on_controller(recipe, first, base, engine)
    if config is None and ask is not None and _SAFETENSORS in engine.can.formats:
        config, weights = _asked(ask, data, first) or (None, None)
    chosen = own_choice(first)
    build, said = _build(first, data, runtime, chosen)
    starter, known = _known(engine, first, cluster, nodes, data, runtime)
    own = {**drafter.found(engine, data, chosen, first, ask), **chosen, "runtime": runtime.name}
    known.update(config=config, weights_bytes=weights, base=base, overrides=own)
    split = _for_the_goal(engine, recipe, str(first.get(goal.VARIABLE) or ""), cluster, known)
    if split:
        known["overrides"] = {**own, "tensor_parallel": split.tensor, "pipeline_parallel": split.pipeline}
    with _hub_blamed(str(first.get("vllm_serve_model") or data["model"]), config is None and ask is not None):
        plan, ranks = _along_the_cables(engine, recipe, hosts, starter.name, known)
    plan["why"] = split.why if split else plan["why"]
    plan["warnings"] += [*([remark] if remark else []), *said, *_remarks(plan, runtime, first)]
    if from_hub(first):
        # the engine fetches the model itself, by its whole name; the revision is its to know too
        name, models = str(plan["model"]), list[dict[str, Any]]()
        if plan["revision"]:
            plan["args"] = dict(sorted({"revision": plan["revision"], **plan["args"]}.items()))
    else:
        name, models = stored(plan, _SAFETENSORS not in engine.can.formats)
    return {
        "recipe": first.get("vllm_serve_recipe") or plan["name"],
        "model": name,
        "models": listed_models.in_form(first.get("model_store_models") or (), name, models, engine.can.formats),
        **{key: plan[key] for key in ("served_model_name", "max_model_len", "args", "environment", "why", "memory")},
        **{key: plan[key] for key in ("tensor_parallel", "pipeline_parallel", "warnings", "command")},
        **{key: plan.get(key, "") for key in ("acknowledged", "sizing", "answers", "engine_version", "needs", "calls")},
        "ranks": ranks,
        "everywhere": engine.can.everywhere,
        "image": _runtime.image(runtime, kinds, plan["image"], engine.image),
        **{"image_digest": plan["image_digest"], "build": build},
        **{"engine": engine.name, "runtime": runtime.name, "runtime_why": runtime.why},
        **{"executor": starter.name, "executor_why": starter.why},
        "goal": split._asdict() if split else {},
        "told": _told(split, data, {host: nodes[host] for host in hosts}),
        "outlook": outlook.line(plan, _over_tcp(cluster, plan)),
    }


def _build(
    first: Mapping[str, Any], data: Mapping[str, Any], runtime: _runtime.Runtime, chosen: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The steps that change the image, and what is to be said of those that are left out. Raises RecipeError."""
    contained = runtime.name == _runtime.CONTAINER
    try:
        return image_steps.acknowledged(
            data, first.get(image_steps.ACKNOWLEDGED), contained, str(chosen.get("image") or "")
        )
    except image_steps.StepError as error:
        raise RecipeError(str(error)) from error


def _told(split: goal.GoalChoice | None, data: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What the run says beside the plan: of other splits, and of hosts that differ from what the recipe served with."""
    known = known_good.differs(data.get("known_good") or {}, str(data["name"]), nodes)
    return [*(split.others if split else ()), *known]


def _known(
    engine: PlannedEngine,
    first: Mapping[str, Any],
    cluster: Mapping[str, Any],
    nodes: Mapping[str, Mapping[str, Any]],
    data: Mapping[str, Any],
    runtime: _runtime.Runtime,
) -> tuple[executor.Executor, dict[str, Any]]:
    """What starts the ranks, and what is known of hosts and engine. Raises RecipeError for a Ray that is too old."""
    hosts, topology = cluster["hosts"], _topology_of(cluster)
    image = serving_image(engine, first, runtime, set(cluster["kinds"].values()), data)
    starter = executor.choose(first, runtime, image, {"hosts": hosts, "topology": topology}, data)
    if starter.name not in engine.can.executors:
        starter = executor.Executor(executor.MP, f"{engine.title} knows no other way")
    if starter.name == executor.RAY and (too_old := engine_version.too_old_for_ray(image)):
        raise RecipeError(too_old, "engine")
    return starter, {
        "image": image,
        "topology": topology,
        "gpus_per_host": cluster["gpus"],
        "kinds": cluster["kinds"],
        "memory_bytes": {host: nodes[host]["mem_total_bytes"] for host in hosts},
        "memory_available_bytes": available_bytes(hosts, nodes),
        "version": first.get("engine_vllm_version") or locked_version(first, runtime.name),
    }


def _for_the_goal(
    engine: PlannedEngine, recipe: Any, wanted: str, cluster: Mapping[str, Any], known: Mapping[str, Any]
) -> goal.GoalChoice | None:
    """The split for ``vllm_serve_goal``; None where the inventory names one, or there is one GPU alone."""
    hosts, world = list(cluster["hosts"]), int(cluster["world"])
    if not wanted or world == 1 or not engine.can.tensor or any(known["overrides"].get(name) for name in goal.SPLIT):
        return None
    data = _recipe.load(recipe, base=known["base"], hosts=len(hosts)) if isinstance(recipe, str) else recipe

    def planned(tensor: int, pipeline: int) -> Mapping[str, Any]:
        own = {**known["overrides"], "tensor_parallel": tensor, "pipeline_parallel": pipeline}
        return engine.plan(data, hosts, **{**known, "overrides": own})

    def alone() -> Mapping[str, Any]:
        # what a recipe says of hosts and their split is not meant for one of them
        one = {**data, "hosts": "any", "split": {}, "splits": {}, "topologies": []}
        return engine.plan(one, hosts[:1], **{**known, "topology": "lan"})

    each = max(cluster["gpus"].values())
    widest = world if _topology_of(cluster) in parallel.RDMA_TOPOLOGIES and cluster["profile"] != "tcp" else each
    return goal.choose(wanted, hosts, world, planned, alone, widest)


def _remarks(plan: Mapping[str, Any], runtime: _runtime.Runtime, first: Mapping[str, Any]) -> list[str]:
    """What the container does not allow, and what of a foreign recipe has no counterpart here."""
    options = first.get("engine_container_options") or []
    contained = runtime.name == _runtime.CONTAINER
    needs = container_needs.lacking(plan["args"], plan["environment"], options) if contained else []
    return [*needs, *(f"recipe {plan['name']}: not translated: {part}" for part in plan["untranslated"])]


def serving_image(
    engine: PlannedEngine,
    first: Mapping[str, Any],
    runtime: _runtime.Runtime,
    kinds: Collection[str],
    data: Mapping[str, Any],
) -> str:
    """The image that serves, by its name; empty without one, and for an archive, which may hold any.

    Raises RecipeError where the engine has no image of its own and nobody names one.
    """
    if runtime.name != _runtime.CONTAINER or first.get("engine_image_archive"):
        return ""
    image = str(first.get("engine_image") or _runtime.image(runtime, kinds, str(data.get("image") or ""), engine.image))
    if not image and not engine.image:
        raise RecipeError(
            f"engine_image is not set, and there is no image of {engine.title} that this collection chooses by itself. "
            "Set engine_image and engine_image_digest.",
            "engine",
        )
    return image


def _over_tcp(cluster: Mapping[str, Any], plan: Mapping[str, Any]) -> bool:
    """Whether the parts of a layer are on several hosts that are joined by TCP."""
    return bool(cluster["profile"] == "tcp" and plan["tensor_parallel"] > max(cluster["gpus"].values()))


def _asked(ask: Ask, data: Mapping[str, Any], first: Mapping[str, Any]) -> tuple[dict[str, Any], int] | None:
    """Config and weights from the hub, where neither the recipe has the shape nor a folder of the controller.

    Another model than the recipe's has another shape.
    """
    model = str(first.get("vllm_serve_model") or data["model"])
    if (data.get("config") and model == data["model"]) or not model_source.on_hub(model):
        return None
    return ask(model, str(data.get("revision") or "") if model == data["model"] else "")


@contextlib.contextmanager
def _hub_blamed(model: str, silent: bool) -> Iterator[None]:
    """Where the hub was asked and did not answer, that is why a model's split cannot be chosen."""
    try:
        yield
    except RecipeError as error:
        if not (silent and model_source.on_hub(model) and isinstance(error.__cause__, parallel.NoConfig)):
            raise
        raise RecipeError(
            f"the hub did not answer, and without the config.json of {model} its split cannot be chosen. Connect this "
            "machine to the hub, set vllm_serve_recipe to a recipe that has it, or name a folder with the model as its "
            "source in model_store_models.",
            error.kind,
        ) from error


def from_hub(first: Mapping[str, Any]) -> bool:
    return bool(boolean(first.get("vllm_serve_from_hub") or False, strict=False))


def stored(plan: Mapping[str, Any], in_gguf: bool = False) -> tuple[str, list[dict[str, Any]]]:
    """A hub id is fetched by the model store and served from there, under the last part of its name.

    ``in_gguf`` where the engine reads nothing else: beside safetensors the store would leave that model out.
    """
    model = plan["model"]
    if "/" not in model or model.startswith("/"):
        return model, []
    source, _colon, quantization = (
        model.partition(":") if model_source.on_hub(model.partition(":")[0]) else (model, "", "")
    )
    name, pattern = source.rpartition("/")[2], ""
    if quantization:
        name, pattern = f"{name}-{quantization}", f"*{quantization}*.gguf"
    elif in_gguf and "://" not in source and not model_source.in_gguf(source):
        pattern = gguf.ANY
    entry = {"name": name, "source": source, "revision": plan["revision"]}
    return name, [{**entry, "pattern": pattern} if pattern else entry]


def own_choice(first: Mapping[str, Any]) -> dict[str, Any]:
    """The user's variables under the names that recipes have; an argument given in vllm_serve_args wins."""
    chosen = {theirs: first[ours] for ours, theirs in _RECIPE_OVERRIDES.items() if first.get(ours)}
    args = {flag: first[name] for name, flag in _ARGUMENTS.items() if first.get(name) not in (None, "")}
    if "tool-call-parser" in args:
        args["enable-auto-tool-choice"] = True
    if args:
        chosen["args"] = {**args, **(chosen.get("args") or {})}
    return chosen


def ad_hoc(first: Mapping[str, Any], kinds: Collection[str]) -> dict[str, Any]:
    """A model without a recipe is a recipe in which the user's variables say everything."""
    runtime = _runtime.choose(first, kinds)
    own_image = first.get("engine_image") or first.get("engine_image_archive")
    named = str(first.get(registry.VARIABLE) or registry.DEFAULT.name)
    engine = registry.ENGINES.get(named, registry.DEFAULT)
    ours = _runtime.image(runtime, kinds, "", engine.image) and not own_image
    return {
        "name": str(first["vllm_serve_model"]).rstrip("/").rpartition("/")[2],
        "summary": "by variables alone",
        "model": str(first["vllm_serve_model"]),
        "runtime": runtime.name,
        "hosts": "any",
        "args": {},
        "vllm": {"pinned": engine.image_version} if ours else {},
        "engine": named,
    }


def model_on_controller(
    recipe: Any, first: Mapping[str, Any], base: str, engine: PlannedEngine = registry.DEFAULT
) -> tuple[dict[str, Any] | None, int | None, str]:
    """Config, weights and a remark on them, where the model store takes the model from a folder of the controller:
    that is what will be served, so it wins over what a recipe knows.  Half a set of files stops the run here."""
    if from_hub(first):
        return None, None, ""
    name = (
        first.get("vllm_serve_model")
        or (_recipe.load(recipe, base=base) if isinstance(recipe, str) else recipe)["model"]
    )
    path = model_source.folder_of(str(name), first.get("model_store_models") or [])
    if not path:
        return None, None, ""
    try:
        if _SAFETENSORS not in engine.can.formats:
            file = model_source.gguf_file(str(name), path, first.get("model_store_models") or [])
            return {llama_cpp.HEADER: file}, None, ""
        model_source.require_folder(str(name), path, first.get("model_store_models") or [])
        config, tensors = read_model_folder(path)
        remark = index_remark(path)
    except OSError as error:
        reason = f"{error.filename or path}: {error.strerror}"
        raise RecipeError(
            f"model_store_models: {model_source.last(str(name))} cannot be read on the controller: {reason}. "
            "Let the user who runs Ansible read it."
        ) from error
    return config, sum(tensors.values()), f"model_store_models: {remark}" if remark else ""


def available_bytes(hosts: Sequence[str], nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, int] | None:
    """What is free for the engine; unknown where an engine of ours holds it now and gives it back by its restart."""
    if any(nodes[host].get("serving") or not nodes[host].get("mem_available_bytes") for host in hosts):
        return None
    return {host: int(nodes[host]["mem_available_bytes"]) for host in hosts}


def locked_version(first: Mapping[str, Any], runtime: str) -> str | None:
    """The engine's version that the lock of a venv pins."""
    if runtime != _runtime.VENV:
        return None
    try:
        version = read_engine(local(str(first.get("engine_requirements") or LOCK)), "", "").versions[LOCKED]
    except EngineError:
        return None  # the engine role says what is wrong with it, and before anything is changed
    return version.partition("+")[0] or None


def _topology_between(hosts: int, topology: str) -> str:
    """What so many hosts of a fabric make up: two of a ring are one cable apart; one host needs no fabric."""
    return {1: "lan", 2: "direct" if topology == "ring" else topology}.get(hosts, topology)


def _carried(cluster: Mapping[str, Any]) -> str:
    """The topology, as far as ranks see it: on cables of Thors they use TCP as on a lan."""
    topology = str(cluster["topology"])
    return "lan" if cluster["profile"] == "tcp" and topology in OF_LANES else topology


def _topology_of(cluster: Mapping[str, Any]) -> str:
    """What the hosts of a cluster make up: those of a serving group are a part of the fabric of all hosts."""
    topology, hosts = _carried(cluster), cluster["hosts"]
    if not cluster.get("group"):
        return topology
    if topology in ring.CHAINS and len(hosts) > 1:
        return "direct" if cluster["profile"] == "roce" else "line"
    return _topology_between(len(hosts), topology)


def _only_way(first: Mapping[str, Any], data: Mapping[str, Any]) -> _runtime.Runtime | None:
    """How an engine comes to a host that can in one way alone; None where the inventory says, or there are several."""
    named = str(first.get(registry.VARIABLE) or data.get("engine") or registry.DEFAULT.name)
    engine = registry.ENGINES.get(named, registry.DEFAULT)
    if first.get("engine_runtime") or len(engine.can.runtimes) != 1:
        return None
    return _runtime.Runtime(next(iter(engine.can.runtimes)), f"{engine.title} knows no other way here")


def _engine(
    first: Mapping[str, Any], data: Mapping[str, Any], kinds: Collection[str], runtime: _runtime.Runtime, hosts: int
) -> PlannedEngine:
    """The engine that serves: the inventory's, else the recipe's. Raises RecipeError for one that cannot here."""
    name = str(first.get(registry.VARIABLE) or data.get("engine") or "")
    # nobody asks for a way that is the engine's own: another engine may come by another one
    given = {**first, "engine_runtime": "" if _only_way(first, data) else runtime.name, registry.VARIABLE: name}
    if problems := registry.engine_problems(given, hosts, "the inventory", kinds):
        raise RecipeError(str(problems[0]), "engine")
    return registry.planned_engine(name)


def _along_the_cables(
    engine: PlannedEngine, recipe: Any, hosts: Sequence[str], starter: str, known: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The recipe's plan, and the hosts by rank. Raises RecipeError for what a ring of these hosts cannot serve."""
    topology = str(known["topology"])
    plan = engine.plan(recipe, hosts, **known)
    ranks = ring.rank_order(hosts, plan["tensor_parallel"], plan["pipeline_parallel"], topology)
    if ranks != hosts:
        # the memory of each rank is that of its host
        plan = engine.plan(recipe, ranks, **known)
    if problem := ring.serving_problem(topology, len(hosts), starter, plan["environment"]):
        raise RecipeError(f"{problem[0]}: {problem[1]}")
    # a recipe gives reasons of its own, which know of no ring
    tensor, pipeline = plan["tensor_parallel"], plan["pipeline_parallel"]
    cost = ring.cost(tensor, pipeline, len(hosts)) if topology == "ring" and tensor * pipeline == len(hosts) else ""
    if cost and cost not in plan["why"]:
        plan["why"] += f" On this ring {cost}."
    return plan, ranks


def _check_degraded(
    first: Mapping[str, Any], cluster: Mapping[str, Any], after: int, name: Any, whole: Mapping[str, Any]
) -> None:
    """Refuse settings with which serving without one host cannot work."""
    for holds, words in (
        (after >= 30, f"vllm_serve_degraded_after={after}: a reboot takes longer. Give at least 30, or 0."),
        (name, "vllm_serve_degraded_after needs vllm_serve_degraded_recipe, a recipe for all hosts but one. Name it."),
        (whole, "vllm_serve_degraded_after needs vllm_serve_recipe. Name the recipe for all hosts."),
        (
            not whole or whole["executor"] == executor.RAY,
            "vllm_serve_degraded_after needs vllm_serve_executor=ray: ranks of mp are planned for fixed hosts.",
        ),
        (len(cluster["workers"]) > 0, "vllm_serve_degraded_after needs a worker that may be away."),
        (
            not from_hub(first),
            "vllm_serve_degraded_after needs both models on the hosts, and vllm_serve_from_hub would fetch the smaller "
            "one only while a host is away. Leave vllm_serve_from_hub out.",
        ),
    ):
        if not holds:
            raise RecipeError(words)


def plan_degraded(
    first: Mapping[str, Any],
    cluster: Mapping[str, Any],
    nodes: Mapping[str, Mapping[str, Any]],
    base: str,
    whole: Mapping[str, Any],
) -> dict[str, Any]:
    """What ``vllm_serve_degraded_recipe`` comes to on all hosts but one, whichever worker is away; empty if off.

    Raises RecipeError or SizingError when it cannot be served without one of them.
    """
    after, name = int(first.get("vllm_serve_degraded_after") or 0), first.get("vllm_serve_degraded_recipe") or ""
    if after <= 0:
        return {}
    _check_degraded(first, cluster, after, name, whole)
    config, weights, _remark = model_on_controller(name, {**first, "vllm_serve_model": ""}, base)
    runtime, archive = str(whole["runtime"]), first.get("engine_image_archive")
    image = str(whole["image"]) if runtime == _runtime.CONTAINER and not archive else ""
    plan: dict[str, Any] = {}
    for away in cluster["workers"]:
        hosts = [host for host in cluster["hosts"] if host != away]
        try:
            plan = registry.planned_engine(str(whole.get("engine") or "")).plan(
                name,
                hosts,
                topology=_topology_between(len(hosts), _carried(cluster)),
                gpus_per_host={host: cluster["gpus"][host] for host in hosts},
                kinds={host: cluster["kinds"][host] for host in hosts},
                memory_bytes={host: nodes[host]["mem_total_bytes"] for host in hosts},
                version=first.get("engine_vllm_version") or locked_version(first, runtime),
                config=config,
                weights_bytes=weights,
                image=image,
                overrides={
                    "acknowledged": first.get("vllm_serve_acknowledged") or [],
                    **{"runtime": runtime, "image": image, "image_archive": archive},
                },
                base=base,
            )
        except (RecipeError, SizingError) as error:
            raise RecipeError(f"vllm_serve_degraded_recipe, without {away}: {error}") from error
    _check_environment_of_both(registry.planned_engine(str(whole.get("engine") or "")), whole["environment"], plan)
    extra = sorted(set(plan["environment"].items()) - set(whole["environment"].items()))
    if extra:
        raise RecipeError(
            f"vllm_serve_degraded_recipe sets {', '.join(key for key, _value in extra)}, and the environment does not "
            "change with the recipe. Set it in vllm_serve_env for both."
        )
    keys = ("served_model_name", "max_model_len", "args", "tensor_parallel", "pipeline_parallel", "why", "calls")
    model, models = stored(plan)
    return {
        "recipe": name,
        "hosts": len(cluster["hosts"]) - 1,
        "model": model,
        "models": models,
        **{key: plan[key] for key in keys},
        "warnings": _inherited(whole["environment"], plan["environment"], first.get("vllm_serve_env") or {}),
    }


def _inherited(whole: Mapping[str, Any], smaller: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """What of the whole recipe alone is there when the smaller one starts; what the user sets is meant for both."""
    names = ", ".join(sorted({*whole} - {*smaller} - {*own}))
    words = "does not set them: see that its model serves with them, or set vllm_serve_degraded_after to 0"
    return [f"vllm_serve_degraded_recipe is started with {names} of the whole recipe, and {words}"] if names else []


def _check_environment_of_both(
    engine: PlannedEngine, environment: Mapping[str, Any], smaller: Mapping[str, Any]
) -> None:
    """The smaller recipe is started in the environment of the whole one, so that one must not divide its layers."""
    stages, memory = int(smaller["pipeline_parallel"]), smaller["memory"] or {}
    name = engine.partition
    if name in environment and not overrides.divides(environment[name], stages, memory.get("layers")):
        raise RecipeError(
            f"vllm_serve_degraded_recipe has {stages} pipeline stage{'s' if stages > 1 else ''}, and "
            f"{name}={environment[name]} of the whole one, whose environment it is started with, does not divide its "
            f"layers: {engine.title} would not start. Leave that variable out of the recipe, or set "
            "vllm_serve_degraded_after to 0."
        )


def plan_whole(
    variables: Mapping[str, Any],
    cluster: Mapping[str, Any],
    nodes: Mapping[str, Mapping[str, Any]],
    ask: Ask | None = None,
) -> dict[str, Any]:
    """What is served and, where that is wanted, what is served without one of the hosts; empty where nothing is.

    ``variables`` are the head's, ``ask`` is plan_serving's.  Raises ServingError, which names the variable.
    """
    first = {name: variables[name] for name in (*READ_OF_HEAD, *_DEGRADED) if name in variables}
    base = str(variables.get("inventory_dir") or ".")
    try:
        serving = plan_serving(first, cluster, nodes, base, ask)
    except (RecipeError, SizingError) as error:
        words = str(error)
        variable = "vllm_serve_recipe" if variables.get("vllm_serve_recipe") else "vllm_serve_model"
        # a message may name a variable itself, and then it is the right one
        names_its_own = words.startswith(("vllm_serve_", "model_store_"))
        raise ServingError(words if names_its_own else f"{variable}: {words}") from error
    try:
        degraded = plan_degraded(first, cluster, nodes, base, serving)
    except (RecipeError, SizingError) as error:
        words = str(error)
        named = words if "vllm_serve_degraded" in words else f"vllm_serve_degraded_recipe: {words}"
        raise ServingError(named) from error
    try:
        allowed = patience.plan_patience(variables, serving, cluster["kinds"])
    except patience.PatienceError as error:
        raise ServingError(str(error)) from error
    if serving:
        serving["patience"] = allowed
    if degraded:
        serving["warnings"] = [*serving["warnings"], *degraded.pop("warnings")]
        serving["degraded"] = degraded
        known = {model["name"] for model in serving["models"]}
        serving["models"] = [
            *serving["models"],
            *(model for model in degraded["models"] if model["name"] not in known),
        ]
    return serving
