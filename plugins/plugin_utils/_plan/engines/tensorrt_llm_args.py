# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""TensorRT-LLM's options: which the role decides, which are set freely, and how its file takes them. Pure.

An option of its file that holds others is written with dots, as ``kv-cache-config.dtype``. No table of its options is
at hand, so the list of free ones is all that is known of them: whatever is not on it has to be acknowledged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.free_options import WORD, is_word
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import option_name

_ONE_GPU = "nothing: it serves on one GPU of one host here"
#: options that the role itself decides, with what to set instead
OWNED: dict[str, str] = {
    "model": "vllm_serve_model",
    "served-model-name": "vllm_serve_served_model_name",
    "max-seq-len": "vllm_serve_max_model_len",
    **dict.fromkeys(("tensor-parallel-size", "tp-size", "pipeline-parallel-size", "pp-size"), _ONE_GPU),
    **dict.fromkeys(("context-parallel-size", "cp-size", "gpus-per-node", "moe-cluster-parallel-size"), _ONE_GPU),
    **dict.fromkeys(("moe-expert-parallel-size", "ep-size", "cluster-size", "enable-attention-dp"), _ONE_GPU),
    **dict.fromkeys(("server-role", "metadata-server-config-file", "disagg-cluster", "disagg-cluster-uri"), _ONE_GPU),
    "host": "vllm_serve_listen (the front proxy listens; the engine itself is reached from its host alone)",
    "port": "vllm_serve_engine_port",
    **dict.fromkeys(("return-perf-metrics", "enable-iter-perf-stats"), "nothing: the watchdog reads them"),
    **dict.fromkeys(("config", "extra-llm-api-options"), "vllm_serve_args itself: it becomes the configuration file"),
}
#: other names of the same, those of the role's variables among them
_SAME: dict[str, str] = {
    **dict.fromkeys(
        ("free-gpu-memory-fraction", "kv-cache-free-gpu-memory-fraction"), "kv-cache-config.free_gpu_memory_fraction"
    ),
    "kv-cache-dtype": "kv-cache-config.dtype",
    "enable-prefix-caching": "kv-cache-config.enable_block_reuse",
    "tool-call-parser": "tool-parser",
}
#: taken by its command line alone
_OF_COMMAND = ("tool-parser", "chat-template", "log-level", "media-io-kwargs", "custom-module-dirs")
_PARSERS = {"deepseek_r1": "deepseek-r1"}
_CACHES = {"auto": "auto", "fp8": "fp8", "nvfp4": "nvfp4"}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*(?:\.[a-z0-9_]+)*")
_FREE = re.compile(
    # kernels
    r"attn-backend|moe-config\.(?:backend|max_num_tokens|disable_finalize_fusion)|sampler-type|enable-autotuner"
    r"|allreduce-strategy|disable-overlap-scheduler|torch-compile-config\.(?:enable_\w+|max_num_streams)"
    r"|cuda-graph-config(?:\.(?:batch_sizes|max_batch_size|enable_padding))?"
    # kinds of numbers
    r"|dtype|kv-cache-config\.(?:dtype|mamba_ssm_cache_dtype)|load-format|backend"
    # sizes
    r"|max-(?:batch-size|num-tokens|beam-width)|num-postprocess-workers"
    r"|kv-cache-config\.(?:max_tokens|free_gpu_memory_fraction|host_cache_size|tokens_per_block|max_attention_window)"
    r"|kv-cache-config\.(?:enable_block_reuse|enable_partial_reuse|copy_on_partial_reuse)"
    # the order of work
    r"|enable-chunked-prefill|stream-interval|print-iter-log|log-level|batch-wait-\w+(?:-\w+)*"
    r"|scheduler-config\.(?:capacity_scheduler_policy|context_chunking_policy)|fail-fast-on-attention-window-too-large"
    # drafts without a model of their own
    r"|speculative-config\.(?:decoding_type|num_nextn_predict_layers|max_draft_len|max_matching_ngram_size)"
    # answers
    r"|reasoning-parser|tool-parser|guided-decoding-backend"
)
#: where other words lead to a file, a host or code, or to another engine
_WORDS = {"backend": re.compile(r"pytorch"), "load-format": re.compile(r"auto|dummy")}


def is_free(name: str, value: Any) -> bool:
    parts = value if isinstance(value, list) else [value]
    return bool(_FREE.fullmatch(name)) and all(is_word(part, _WORDS.get(name, WORD)) for part in parts)


def checked(args: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The arguments under their plain names, without others inside; null stays, to take one away.

    Raises RecipeError for what the role decides and for what has no name.
    """
    found: dict[str, Any] = {}
    for key, value in _flat(args):
        head, dot, rest = option_name(key).partition(".")
        name = f"{head}{dot}{rest.replace('-', '_')}"
        if not _NAME.fullmatch(name):
            raise RecipeError(f"{where}: {key!r} is not the name of an option; write it without dashes", "arguments")
        if head in OWNED:
            raise RecipeError(f"{where}: {key} is decided by the role; set {OWNED[head]} instead", "arguments")
        if name == "enable-auto-tool-choice":
            # it has no such switch: a parser is enough
            continue
        name = _SAME.get(name, name)
        if isinstance(value, str) and head in _OF_COMMAND and value.lstrip().startswith("-"):
            raise RecipeError(f"{where}: {key}={value!r} begins with a dash, which reads as an option", "arguments")
        if name == "reasoning-parser":
            value = _PARSERS.get(str(value), value)
        if name in found:
            raise RecipeError(f"{where}: {key} is given twice, in two spellings; keep one", "arguments")
        found[name] = value
    return found


def _flat(args: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """The options inside options by names with dots."""
    found: list[tuple[str, Any]] = []
    for key, value in args.items():
        name = f"{before}{key}"
        found += _flat(value, f"{name}.") if isinstance(value, Mapping) and value else [(name, value)]
    return found


def nested(args: Mapping[str, Any]) -> dict[str, Any]:
    """As its file has them, but for those of its command line. Raises RecipeError where one is both value and more."""
    found: dict[str, Any] = {}
    for name, value in args.items():
        if name in _OF_COMMAND:
            continue
        *outer, last = name.replace("-", "_").split(".")
        place = found
        for part in outer:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise RecipeError(f"vllm_serve_args: {part} is a value, and {name} is inside it; keep one", "arguments")
        place[last] = value
    return found


def of_command(args: Mapping[str, Any]) -> dict[str, Any]:
    """Those that its file does not take."""
    return {name: value for name, value in args.items() if name in _OF_COMMAND}


def words(args: Mapping[str, Any]) -> list[str]:
    """As a person would write them."""
    found: list[str] = []
    for name, value in args.items():
        option = f"--{name.replace('-', '_')}"
        if value is True:
            found.append(option)
        elif value is not False:
            found += [option, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return found


def planned_cache(name: str) -> str:
    """The memory plan's name of a cache's dtype. Raises RecipeError for one that is not planned."""
    if name not in _CACHES:
        raise RecipeError(
            f"vllm_serve_args: kv-cache-config.dtype={name!r} is not planned here; use one of {', '.join(_CACHES)}",
            "arguments",
        )
    return _CACHES[name]
