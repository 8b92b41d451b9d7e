# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""TensorRT-LLM as the planners see it: one program on one host, in the vendor's container.

Over several hosts MPI starts its ranks, by ssh as root without a password, which this collection does not set up. The
size of its cache is pinned by the memory plan. No image of it has been run here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import beside
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.defaults import SPARK
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, parse_length
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.tensorrt_llm import TENSORRT_LLM
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe as _recipe
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engine import OFFLINE, cache_folders
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import free_options, tensorrt_llm_args
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.base import Abilities, PlannedEngine
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import merged, with_nulls
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import ServeConfigError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_serve import Serving

ADDRESS = "127.0.0.1"
#: requests and tokens in one step, unless arguments say otherwise
BATCH, CHUNK = 64, 8192
#: the cache is made of pages of so many tokens
PAGE = 32
_TOKENS = "kv-cache-config.max_tokens"


class PlannedTensorrtLlm(PlannedEngine):
    """One host, one GPU, one container."""

    on_host = TENSORRT_LLM
    can = Abilities(
        executors=frozenset(("mp",)),
        runtimes=frozenset(("container",)),
        kinds=frozenset(("spark",)),
        formats=frozenset(("safetensors",)),
        hosts=1,
        alone="MPI starts the other ranks by ssh, as root and without a password, and nothing here sets that up",
        tensor=False,
        pipeline=False,
        adapters=False,
        checked=False,
    )

    def plan(self, recipe: Mapping[str, Any] | str, hosts: Sequence[str], **known: Any) -> dict[str, Any]:
        data, own, replaced = _recipe.begun(recipe, hosts, known, TENSORRT_LLM)
        acknowledged, length = list(own.get("acknowledged", [])), own.get("max_model_len", data["max_model_len"])
        args, wanted = _arguments(data, own, acknowledged), own.get("environment", {})
        shape = known.get("config") or data["config"]
        _text_alone(data, shape)
        data["weights_bytes"] = known.get("weights_bytes") or data["weights_bytes"]
        topology, kinds = str(known.get("topology") or "switch"), known.get("kinds") or {}
        try:
            parallel = _recipe.parallel_of(
                data, own, {}, hosts, known.get("gpus_per_host", 1), topology, shape, length, False
            )
            sizing = _sizing(args, kinds.get(hosts[0], SPARK))
            memory = (known.get("memory_bytes"), known.get("memory_available_bytes"))
            fits = bool(known.get("require_fit", True))
            sizes = _recipe.memory_of(data, shape, parallel, sizing, length, hosts, memory, fits)
        except SizingError as error:
            raise RecipeError(f"recipe {data['name']}: {error}", "split") from error
        if parallel["world"] > 1:
            raise RecipeError(
                f"recipe {data['name']}: {hosts[0]} has several GPUs, over which nothing is planned with {self.title}; "
                "serve with another engine there",
                "split",
            )
        args, notes = _pinned(args, sizes)
        named = _recipe.model_names(data, own)
        return {
            "name": data["name"],
            **named,
            "max_model_len": _recipe.length_of(length),
            **{"engine_version": "", "calls": [], "needs": {}},
            **{key: parallel[key] for key in ("tensor_parallel", "pipeline_parallel", "expert_parallel")},
            "why": _recipe.reason_of(data, own, len(hosts), topology, parallel),
            "args": args,
            "environment": with_nulls(merged(data["environment"], wanted), wanted),
            "acknowledged": acknowledged,
            "answers": bool(data["answers"]),
            "memory": sizes,
            "sizing": sizing,
            "warnings": [*replaced, *notes],
            "options_checked": "",
            "untranslated": list(data["untranslated"]),
            "command": ["trtllm-serve", "serve", str(named["model"]), *tensorrt_llm_args.words(args)],
        }

    def config(self, serving: Serving) -> dict[str, Any]:
        given = serving.settings
        if len(serving.names) > 1:
            raise ServeConfigError(
                f"vllm_serve_served_model_name: {self.title} serves under one name, and there are "
                f"{', '.join(serving.names)}; keep one"
            )
        if serving.token_limits:
            raise ServeConfigError(
                f"vllm_serve_api_keys: {', '.join(serving.token_limits)} has a limit of tokens, and how {self.title} "
                "says the tokens of a stream is not known here; remove the limits, or serve with another engine"
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
        config: dict[str, Any] = {"model": serving.model_path}
        if length and length != "auto":
            config["max_seq_len"] = int(length)
        # the watchdog reads them: what moves within a request is written with the second alone
        config |= {"return_perf_metrics": True, "enable_iter_perf_stats": True}
        return {**config, **tensorrt_llm_args.nested(serving.args)}

    def environment(self, serving: Serving) -> dict[str, Any]:
        environment = {
            **cache_folders(serving.settings.engine_cache_dir, TENSORRT_LLM),
            **TENSORRT_LLM.no_reports,
            # else one client's answers are kept for the next one who names them
            "TRTLLM_RESPONSES_API_DISABLE_STORE": "1",
            "DO_NOT_TRACK": "1",
            "PYTHONUNBUFFERED": "1",
            **OFFLINE,
        }
        return merged(environment, serving.own_environment)

    def option_arguments(self, serving: Serving) -> dict[str, Any]:
        """None: its options cannot be read without importing it, which takes a GPU's driver."""
        return {}

    def to_acknowledge(self, args: Mapping[str, Any]) -> list[str]:
        return free_options.bound(tensorrt_llm_args.checked(args, "args"), tensorrt_llm_args.is_free)

    def option_problems(self, asked: Mapping[str, Any], table: Mapping[str, Any]) -> list[Finding]:
        return []

    def command(self, serving: Serving) -> list[str]:
        program = serving.engine.program("trtllm-serve", serving.places.service)
        port = str(serving.settings.vllm_serve_engine_port)
        words = tensorrt_llm_args.words(tensorrt_llm_args.of_command(serving.args))
        # the model comes behind the word, as its file has it
        return [
            *(*program, "serve", "--host", ADDRESS, "--port", port),
            *(*words, "--config", f"{serving.places.etc}/{self.on_host.config}"),
        ]

    def socket(self, serving: Serving) -> str:
        return f"{ADDRESS}:{serving.settings.vllm_serve_engine_port}"


def _arguments(data: Mapping[str, Any], own: Mapping[str, Any], acknowledged: Sequence[str]) -> dict[str, Any]:
    """The recipe's arguments and the user's, which win; null takes one away."""
    theirs = tensorrt_llm_args.checked(data["args"], f"recipe {data['name']}: args")
    ours = tensorrt_llm_args.checked(own.get("args") or {}, "vllm_serve_args")
    return free_options.of_both(data["name"], theirs, ours, acknowledged, tensorrt_llm_args.is_free, TENSORRT_LLM.title)


def _text_alone(data: Mapping[str, Any], shape: Mapping[str, Any] | None) -> None:
    """Raises RecipeError for a model that takes media: no option keeps a request from naming a file of the host."""
    if media := [name for name in ("vision_config", "audio_config") if (shape or {}).get(name)]:
        raise RecipeError(
            f"recipe {data['name']}: the model takes media ({', '.join(media)} in its config.json), of which "
            f"{TENSORRT_LLM.title} reads whatever file or URL a request names; serve it with another engine",
            "media",
        )


def _sizing(args: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """What of the arguments decides sizes, by the names of the memory plan's options."""
    graphs = args.get("cuda-graph-config", {})
    return {
        "dtype": str(args.get("dtype", "auto")),
        "kv_cache_dtype": tensorrt_llm_args.planned_cache(str(args.get("kv-cache-config.dtype", "auto"))),
        "gpu_memory_utilization": _recipe.DEFAULT_UTILIZATION,
        "enforce_eager": graphs is False,
        "enable_prefix_caching": bool(args.get("kv-cache-config.enable_block_reuse", True)),
        "max_num_batched_tokens": parse_length("max_num_tokens", args.get("max-num-tokens", CHUNK)),
        "max_num_seqs": parse_length("max_batch_size", args.get("max-batch-size", BATCH)),
        "enable_expert_parallel": False,
        "kind": kind,
        **beside.read(args, beside.OF_TENSORRT_LLM),
    }


def _pinned(args: Mapping[str, Any], sizes: Mapping[str, Any] | None) -> tuple[dict[str, Any], list[str]]:
    """The arguments with the memory that is planned, and what is to be said of it."""
    # without the last one it refuses prompts longer than one step
    made: dict[str, Any] = {"max-batch-size": BATCH, "max-num-tokens": CHUNK, "enable-chunked-prefill": True}
    tokens = (sizes or {}).get("kv_cache_tokens")
    if tokens:
        made[_TOKENS] = int(tokens) // PAGE * PAGE
    notes = []
    if not tokens and _TOKENS not in args:
        notes.append(
            f"the model's size is not known, so its cache takes 0.9 of what its weights leave free; set {_TOKENS}"
        )
    return dict(sorted({**made, **args}.items())), notes
