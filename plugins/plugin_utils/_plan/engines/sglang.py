# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""SGLang as the planners see it: one rank on each host, started by units of their own, in a container image.

Its memory is planned by our one rule, and pinned: ``max-total-tokens`` makes the cache as large as the plan says,
however much is free at a start. Layers are divided by our own rule, which it is told, because its own gives what does
not divide to the last stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import beside
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.defaults import SPARK
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.split import split_layers
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import (
    SizingError,
    as_fraction,
    as_int,
    parse_length,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.sglang import SGLANG
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import overrides, patience
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe as _recipe
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engine import OFFLINE, WORK_DIR, cache_folders
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import (
    free_options,
    sglang_args,
    sglang_trust,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.base import Abilities, PlannedEngine
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import merged, with_nulls
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.parallel import tensor_problems
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import ServeConfigError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_serve import Serving

ADDRESS = "127.0.0.1"
NO_MEDIA = '{"image": 0, "video": 0, "audio": 0}'
PARTITION = "SGLANG_PP_LAYER_PARTITION"
#: tokens of a prompt in one step, unless arguments say otherwise
CHUNK = 8192
#: the cache is made of pages of so many tokens at most
PAGE = 64
_EXPERTS = "ep-size"
_GRAPHS = "cuda-graph-backend-decode"
_MEMORY = "mem-fraction-static"
_TOKENS = "max-total-tokens"


class PlannedSglang(PlannedEngine):
    """Ranks without Ray, each in a container."""

    on_host = SGLANG
    can = Abilities(
        executors=frozenset(("mp",)),
        runtimes=frozenset(("container",)),
        kinds=frozenset(("spark", "thor", "generic")),
        formats=frozenset(("safetensors",)),
    )
    partition = PARTITION

    def plan(self, recipe: Mapping[str, Any] | str, hosts: Sequence[str], **known: Any) -> dict[str, Any]:
        data, own, replaced = _recipe.begun(recipe, hosts, known, SGLANG)
        topology, kinds = str(known.get("topology") or "switch"), known.get("kinds") or {}
        acknowledged, length = list(own.get("acknowledged", [])), own.get("max_model_len", data["max_model_len"])
        args = _arguments(data, own, acknowledged)
        shape = known.get("config") or data["config"]
        data["weights_bytes"] = known.get("weights_bytes") or data["weights_bytes"]
        try:
            asked = _split_arguments(args)
            parallel = _recipe.parallel_of(
                data, own, asked, hosts, known.get("gpus_per_host", 1), topology, shape, length, False
            )
            _check_experts(args.get(_EXPERTS, 1), parallel["tensor_parallel"], shape)
            environment, left_out = _environment(data, own, parallel, shape)
            sizing = _sizing(args, environment, parallel, hosts, kinds)
            sizes = _recipe.memory_of(
                data,
                shape,
                parallel,
                sizing,
                length,
                hosts,
                (known.get("memory_bytes"), known.get("memory_available_bytes")),
                bool(known.get("require_fit", True)),
            )
        except SizingError as error:
            raise RecipeError(f"recipe {data['name']}: {error}", "split") from error
        args, notes = _pinned(args, sizing, sizes, parallel)
        named = _recipe.model_names(data, own)
        return {
            "name": data["name"],
            **named,
            "max_model_len": _recipe.length_of(length),
            **{"engine_version": "", "calls": [], "needs": {}},
            **{key: parallel[key] for key in ("tensor_parallel", "pipeline_parallel", "expert_parallel")},
            "why": _recipe.reason_of(data, own, len(hosts), topology, parallel),
            "args": args,
            "environment": with_nulls(environment, own.get("environment", {})),
            "acknowledged": acknowledged,
            "answers": bool(data["answers"]) and not args.get("is-embedding"),
            "memory": sizes,
            "sizing": sizing,
            "warnings": [*replaced, *left_out, *notes],
            "options_checked": "",
            "untranslated": list(data["untranslated"]),
            "command": ["sglang", "serve", "--model-path", str(named["model"]), *sglang_args.words(args)],
        }

    def config(self, serving: Serving) -> dict[str, Any]:
        given, hosts = serving.settings, serving.cluster["hosts"]
        if len(serving.names) > 1:
            raise ServeConfigError(
                f"vllm_serve_served_model_name: {self.title} serves under one name, and there are "
                f"{', '.join(serving.names)}; keep one"
            )
        if serving.token_limits:
            raise ServeConfigError(
                f"vllm_serve_api_keys: {', '.join(serving.token_limits)} has a limit of tokens, and {self.title} says "
                "the tokens of a stream only to a client that asks; remove the limits, or serve with another engine"
            )
        if given.vllm_serve_from_hub:
            raise ServeConfigError(
                f"vllm_serve_from_hub: {self.title} serves from the model store here; leave the variable out"
            )
        if given.vllm_serve_media_domains:
            raise ServeConfigError(
                f"vllm_serve_media_domains: {self.title} that takes media reads also whatever file a request names, so "
                "it gets none here; leave the variable out"
            )
        length = serving.planned.get("max_model_len", given.vllm_serve_max_model_len)
        config: dict[str, Any] = {"model-path": serving.model_path, "served-model-name": serving.names[0]}
        if length and length != "auto":
            config["context-length"] = int(length)
        config |= {"tp-size": serving.tensor_parallel, "pp-size": serving.pipeline_parallel}
        if len(hosts) > 1:
            address = serving.cluster["head_address"]
            if not address:
                raise ServeConfigError("the head has no control address; several hosts need one")
            config |= {"nnodes": len(hosts), "node-rank": serving.rank}
            config["dist-init-addr"] = f"{address}:{given.vllm_serve_master_port}"
        config |= {"host": ADDRESS, "port": given.vllm_serve_engine_port, "enable-metrics": True}
        rest = {
            # its scheduler else spins on a core while nobody asks
            "sleep-on-idle": True,
            # steps between two moves of the counter that the watchdog reads
            "decode-log-interval": 8,
            # ours acts first
            "watchdog-timeout": patience.step_timeout(serving.patience["step_patience"]),
            # it reads whatever file, port or host a request names as an image
            "limit-mm-data-per-request": NO_MEDIA,
            **dict(serving.args),
        }
        return {**config, **dict(sorted(rest.items()))}

    def environment(self, serving: Serving) -> dict[str, Any]:
        environment = {
            **cache_folders(serving.settings.engine_cache_dir, SGLANG),
            # else its queues between hosts may take another network
            "SGLANG_HOST_IP": str(serving.network["control_address"]),
            # a hang of NCCL 2.30's NVLink switches, which these machines do not have
            "NCCL_NVLS_ENABLE": "0",
            "DO_NOT_TRACK": "1",
            "PYTHONUNBUFFERED": "1",
            **OFFLINE,
        }
        return merged(environment, serving.own_environment)

    def option_arguments(self, serving: Serving) -> dict[str, Any]:
        version = serving.engine.versions.get(self.name)
        return {
            "engine_name": self.name,
            "command": list(serving.engine.python),
            **({"version": version} if version else {}),
            "cache_dir": WORK_DIR,
            "engine": serving.engine.digest,
            # the whole file: an older release may lack an option of ours
            "arguments": self.config(serving),
        }

    def to_acknowledge(self, args: Mapping[str, Any]) -> list[str]:
        return free_options.bound(sglang_args.checked(args, "args"), sglang_trust.free_in_sglang)

    def option_problems(self, asked: Mapping[str, Any], table: Mapping[str, Any]) -> list[Finding]:
        return sglang_args.problems(asked["arguments"], table)

    def command(self, serving: Serving) -> list[str]:
        program = serving.engine.program(self.name, serving.places.service)
        return [*program, "serve", "--config", f"{serving.places.etc}/{self.on_host.config}"]

    def socket(self, serving: Serving) -> str:
        return f"{ADDRESS}:{serving.settings.vllm_serve_engine_port}"


def _arguments(data: Mapping[str, Any], own: Mapping[str, Any], acknowledged: Sequence[str]) -> dict[str, Any]:
    """The recipe's arguments and the user's, which win; null takes one away."""
    theirs = sglang_args.checked(data["args"], f"recipe {data['name']}: args")
    ours = sglang_args.checked(own.get("args") or {}, "vllm_serve_args")
    return free_options.of_both(data["name"], theirs, ours, acknowledged, sglang_trust.free_in_sglang, SGLANG.title)


def _split_arguments(args: dict[str, Any]) -> dict[str, Any]:
    """What of the arguments the planner of the split reads, by its names; without ``ep-size`` it decides itself."""
    found = {"data-parallel-size": args.pop("dp-size", 1)}
    if _EXPERTS in args:
        args[_EXPERTS] = as_int(_EXPERTS, args[_EXPERTS])
        found["enable-expert-parallel"] = args[_EXPERTS] > 1
    return found


def _check_experts(experts: int, tensor: int, shape: Mapping[str, Any] | None) -> None:
    """Raises SizingError where so many groups cannot share the experts: the ranks of each divide their widths."""
    if tensor % experts:
        fix = f"Give {tensor} or a number that divides it, or leave it out."
        raise SizingError(_EXPERTS, experts, f"does not divide TP={tensor}", fix)
    if shape is not None and experts > 1 and (problems := tensor_problems(shape, tensor // experts)):
        raise SizingError(_EXPERTS, experts, "; ".join(problems), f"Give {tensor}, which keeps experts whole.")


def _environment(
    data: Mapping[str, Any], own: Mapping[str, Any], parallel: Mapping[str, Any], shape: Mapping[str, Any] | None
) -> tuple[dict[str, Any], list[str]]:
    """With the layers of each stage by our rule, unless somebody names them; and what of the recipe was left out."""
    stages, layers = parallel["pipeline_parallel"], None if shape is None else read_shape(shape).num_layers
    asked = merged(data["environment"], own.get("environment", {}))
    found, left_out = overrides.without_partition(asked, own, data, stages, layers, PARTITION)
    overrides.check_partition(found, stages, layers, PARTITION, SGLANG.title)
    if stages > 1 and layers is not None and PARTITION not in found:
        found[PARTITION] = ",".join(map(str, split_layers(layers, stages)))
    return found, left_out


def _sizing(
    args: Mapping[str, Any],
    environment: Mapping[str, Any],
    parallel: Mapping[str, Any],
    hosts: Sequence[str],
    kinds: Mapping[str, str],
) -> dict[str, Any]:
    """What of the arguments decides sizes, by the names of the memory plan's options."""
    found: dict[str, Any] = {
        "dtype": str(args.get("dtype", "auto")),
        "kv_cache_dtype": sglang_args.cache_dtype(str(args.get("kv-cache-dtype", "auto"))),
        "gpu_memory_utilization": as_fraction(_MEMORY, args.get(_MEMORY, _recipe.DEFAULT_UTILIZATION)),
        "enforce_eager": bool(args.get("disable-decode-cuda-graph") or args.get(_GRAPHS) == "disabled"),
        "enable_prefix_caching": not args.get("disable-radix-cache", False),
        "max_num_batched_tokens": parse_length("chunked-prefill-size", args.get("chunked-prefill-size", CHUNK)),
        "enable_expert_parallel": bool(parallel["expert_parallel"]),
        "kind": kinds.get(hosts[0], SPARK),
        **beside.read(args, beside.OF_SGLANG),
    }
    if args.get("max-running-requests"):
        found["max_num_seqs"] = parse_length("max-running-requests", args["max-running-requests"])
    if PARTITION in environment:
        found["layer_partition"] = str(environment[PARTITION])
    return found


def _pinned(
    args: Mapping[str, Any], sizing: Mapping[str, Any], sizes: Mapping[str, Any] | None, parallel: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The arguments with the memory that is planned, and what is to be said of it."""
    made: dict[str, Any] = {
        _MEMORY: sizing["gpu_memory_utilization"],
        "chunked-prefill-size": sizing["max_num_batched_tokens"],
    }
    if parallel["expert_parallel"]:
        made[_EXPERTS] = parallel["tensor_parallel"]
    tokens = (sizes or {}).get("kv_cache_tokens")
    if tokens:
        made[_TOKENS] = int(tokens) // PAGE * PAGE
    notes = []
    if not tokens and _TOKENS not in args:
        notes.append(f"the model's size is not known, so its cache is as large as {_MEMORY} leaves room; set {_TOKENS}")
    return dict(sorted({**made, **args}.items())), notes
