# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama.cpp as the planners see it: ``llama-server`` on the head, and on each worker ``ggml-rpc-server`` for layers.

Whole layers go to hosts, by the header of the GGUF file and the hosts' memory. The head alone has the model. A worker's
server knows no key, so that its port is open to the head's engine and to nobody else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import gguf, gguf_memory
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.llama_cpp import LLAMA_CPP
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe as _recipe
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engine import cache_folders
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import (
    free_options,
    llama_cpp_args,
    llama_cpp_trust,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.base import (
    Abilities,
    PlannedEngine,
    PortGuard,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import merged, with_nulls
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import ServeConfigError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_serve import Serving

#: by which ``known["config"]`` names the file whose header is the model's shape
HEADER = "gguf"
_EVERY_LAYER = 999


#: variables by which it finds files of its own
_LEADING = ("HOME", "XDG_CACHE_HOME", "LLAMA_CACHE", "XDG_CONFIG_HOME", "GGML_NO_BACKTRACE")


class PlannedLlamaCpp(PlannedEngine):
    """One program on each host, built before; models in GGUF."""

    on_host = LLAMA_CPP
    can = Abilities(
        executors=frozenset(("mp",)),
        runtimes=frozenset(("venv",)),
        kinds=frozenset(("spark", "thor", "generic")),
        formats=frozenset(("gguf",)),
        tensor=False,
        parsers=False,
        adapters=False,
        everywhere=False,
    )

    def plan(self, recipe: Mapping[str, Any] | str, hosts: Sequence[str], **known: Any) -> dict[str, Any]:
        data, own, replaced = _recipe.begun(recipe, hosts, known, LLAMA_CPP)
        acknowledged, length = list(own.get("acknowledged", [])), own.get("max_model_len", data["max_model_len"])
        args, wanted = _arguments(data, own, acknowledged), own.get("environment", {})
        _one_gpu_each(data, hosts, known.get("gpus_per_host", 1), own)
        sizing = llama_cpp_args.sizes(args)
        if len(hosts) > 1 and sizing.get("prompt_cache_mib"):
            raise RecipeError(
                f"recipe {data['name']}: cache-ram={sizing['prompt_cache_mib']} makes llama.cpp end where workers hold "
                "layers (its issue 26529); leave it out",
                "arguments",
            )
        sizes = _memory(data, hosts, length, sizing, known)
        pinned = sizes["arguments"] if sizes else _unsized(hosts, length, sizing)
        named = _recipe.model_names(data, own)
        given = {name: value for name, value in args.items() if value is not None}
        whole = dict(sorted({**pinned, **given}.items()))
        layers = f" ({', '.join(map(str, sizes['ranks']['layers']))} layers)" if sizes and len(hosts) > 1 else ""
        unknown = [] if sizes else ["the model's header is not on the controller: its memory is not planned"]
        return {
            "name": data["name"],
            **named,
            "max_model_len": _recipe.length_of(length),
            **{"calls": [], "needs": {}},
            **{"tensor_parallel": 1, "pipeline_parallel": len(hosts), "expert_parallel": False},
            "why": f"TP=1 PP={len(hosts)}: {self.title} puts whole layers on hosts{layers}",
            "args": whole,
            "environment": with_nulls(merged(data["environment"], wanted), wanted),
            "acknowledged": acknowledged,
            "answers": bool(data["answers"]) and not {"embeddings", "embedding", "rerank"} & set(whole),
            "memory": sizes,
            "sizing": sizing,
            "warnings": [*replaced, *unknown],
            "options_checked": "",
            "untranslated": list(data["untranslated"]),
            "command": ["llama-server", "--model", str(named["model"]), *llama_cpp_args.words(whole)],
        }

    def config(self, serving: Serving) -> dict[str, Any]:
        if not serving.is_head:
            return {"host": str(serving.network["control_address"]), "port": serving.settings.vllm_serve_rpc_port}
        if odd := [name for name in serving.names if "," in name]:
            raise ServeConfigError(
                f"vllm_serve_served_model_name: {odd[0]!r} has a comma, which parts names for {self.title}; change it"
            )
        if serving.token_limits:
            raise ServeConfigError(
                f"vllm_serve_api_keys: {', '.join(serving.token_limits)} has a limit of tokens, and what {self.title} "
                "says of an answer's tokens is not counted here; remove the limits, or serve with another engine"
            )
        if serving.settings.vllm_serve_from_hub:
            raise ServeConfigError(
                f"vllm_serve_from_hub: {self.title} serves from the model store here; leave the variable out"
            )
        if serving.settings.vllm_serve_media_domains:
            raise ServeConfigError(
                f"vllm_serve_media_domains: {self.title} takes no media here, since it would fetch whatever URL a "
                "request names; leave the variable out, or serve with another engine"
            )
        config: dict[str, Any] = {
            "model": serving.model_path,
            "host": serving.places.socket,
            "alias": ",".join(serving.names),
            **{"metrics": True, "offline": True, "no-ui": True},
        }
        if workers := self._workers(serving):
            config["rpc"] = ",".join(f"{address}:{serving.settings.vllm_serve_rpc_port}" for address in workers)
        return {**config, **dict(sorted(serving.args.items()))}

    def environment(self, serving: Serving) -> dict[str, Any]:
        if hidden := sorted(name for name in merged(serving.own_environment) if str(name).startswith("LLAMA_ARG_")):
            raise ServeConfigError(
                f"vllm_serve_env: {hidden[0]} sets an option of {self.title} where nobody looks; use vllm_serve_args"
            )
        cache = serving.settings.engine_cache_dir
        shared = cache_folders(cache, LLAMA_CPP)
        environment = {
            **{name: shared[name] for name in ("HOME", "XDG_CACHE_HOME")},
            "LLAMA_CACHE": f"{cache}/llama.cpp",
            # below it would be the user's file of options, in a folder that the serving user could write
            "XDG_CONFIG_HOME": "/etc/sparkthor",
            # it would start a debugger where one is installed
            "GGML_NO_BACKTRACE": "1",
        }
        return merged(environment, serving.own_environment)

    def option_arguments(self, serving: Serving) -> dict[str, Any]:
        """None: its own parser is asked (:meth:`trial`)."""
        return {}

    def to_acknowledge(self, args: Mapping[str, Any]) -> list[str]:
        return free_options.bound(llama_cpp_args.checked(args, "args"), llama_cpp_trust.free_in_llama_cpp)

    def option_problems(self, asked: Mapping[str, Any], table: Mapping[str, Any]) -> list[Finding]:
        return []

    def trial(self, serving: Serving) -> list[str]:
        if not serving.is_head:
            return []
        program = serving.engine.program(self.on_host.programs[0], serving.places.service)
        # it asks workers while it reads its options, and ends where one does not answer
        options = {name: value for name, value in self.config(serving).items() if name != "rpc"}
        # the last one: what stands behind it is not read
        words = [*program, *llama_cpp_args.words(options), "--version"]
        # all users read a command line: of the user's variables, which may hold a secret, it has none but these
        leading = [f"{name}={value}" for name, value in self.environment(serving).items() if name in _LEADING]
        # as its unit has it: the same files of options are out of sight, and the same variables lead to others
        return [
            *("systemd-run", "--quiet", "--wait", "--pipe", "--collect", "--uid=sparkthor"),
            f"--property=InaccessiblePaths={' '.join(f'-{path}' for path in self.on_host.hidden)}",
            *(f"--property=EnvironmentFile=-{path}" for path in (environment_file.FABRIC, environment_file.ENGINE)),
            # systemd puts variables in place of what follows a dollar sign
            *(word.replace("$", "$$") for word in ("--", "/usr/bin/env", *leading, *words)),
        ]

    def command(self, serving: Serving) -> list[str]:
        head, worker = self.on_host.programs
        program = serving.engine.program(head if serving.is_head else worker, serving.places.service)
        return [*program, "--config", f"{serving.places.etc}/{self.on_host.config}"]

    def listens(self, serving: Serving) -> str:
        if serving.is_head:
            return ""
        address = str(serving.network["control_address"])
        shown = f"[{address}]" if ":" in address else address
        return f"{shown}:{serving.settings.vllm_serve_rpc_port}"

    def guard(self, serving: Serving) -> PortGuard | None:
        workers = self._workers(serving)
        if not workers:
            return None
        port = serving.settings.vllm_serve_rpc_port
        if serving.is_head:
            return PortGuard(port, servers=workers)
        head = serving.fabric[serving.cluster["head"]]
        links = (str(link["address"]).partition("/")[0] for link in head.get("links") or ())
        return PortGuard(port, clients=list(dict.fromkeys([str(head["control_address"]), *links])))

    @staticmethod
    def _workers(serving: Serving) -> list[str]:
        """Addresses of the workers by rank: in this order they are devices, the head's own last."""
        ranks = serving.planned.get("ranks") or serving.cluster["hosts"]
        head = serving.cluster["head"]
        return [str(serving.fabric[host]["control_address"]) for host in ranks if host != head]


def _arguments(data: Mapping[str, Any], own: Mapping[str, Any], acknowledged: Sequence[str]) -> dict[str, Any]:
    """The recipe's arguments and the user's, which win; null takes one away."""
    theirs = llama_cpp_args.checked(data["args"], f"recipe {data['name']}: args")
    ours = llama_cpp_args.checked(own.get("args") or {}, "vllm_serve_args")
    return free_options.of_both(
        data["name"], theirs, ours, acknowledged, llama_cpp_trust.free_in_llama_cpp, LLAMA_CPP.title
    )


def _one_gpu_each(data: Mapping[str, Any], hosts: Sequence[str], gpus: Any, own: Mapping[str, Any]) -> None:
    """Raises RecipeError for what the plan of layers does not cover."""
    counts = gpus if isinstance(gpus, Mapping) else dict.fromkeys(hosts, gpus)
    if several := [host for host in hosts if int(counts.get(host) or 0) > 1]:
        raise RecipeError(
            f"recipe {data['name']}: {', '.join(several)} has several GPUs, over which layers are not planned with "
            f"{LLAMA_CPP.title}; serve with another engine there",
            "split",
        )
    if (stages := own.get("pipeline_parallel")) and int(stages) != len(hosts):
        raise RecipeError(
            f"vllm_serve_pipeline_parallel_size: {stages} stages, and {LLAMA_CPP.title} has one on each of "
            f"{len(hosts)} hosts; leave it out",
            "split",
        )
    if int(own.get("replicas") or 1) > 1:
        raise RecipeError(
            "vllm_serve_replicas: make a serving group of each replica (serving_groups) with llama_cpp", "split"
        )


def _memory(
    data: Mapping[str, Any], hosts: Sequence[str], length: Any, sizing: Mapping[str, Any], known: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The memory plan by the header of the model; None where nobody here has it. Raises RecipeError."""
    path = (known.get("config") or {}).get(HEADER)
    if not path:
        return None
    gpus = known.get("gpus_per_host", 1)
    head_computes = bool(gpus.get(hosts[0]) if isinstance(gpus, Mapping) else gpus)
    try:
        sizes = gguf_memory.plan(
            gguf.read_gguf(str(path)),
            head_computes=head_computes,
            pipeline_parallel=len(hosts),
            hosts=list(hosts),
            max_model_len=length,
            memory_bytes=_by_host(hosts, known.get("memory_bytes")),
            memory_available_bytes=_by_host(hosts, known.get("memory_available_bytes")),
            **sizing,
        )
    except SizingError as error:
        raise RecipeError(f"recipe {data['name']}: {error}", "memory") from error
    if sizes["verdict"] == "does_not_fit" and known.get("require_fit", True):
        numbers = " ".join([*sizes["reasons"], *sizes["suggestions"]])
        raise RecipeError(f"recipe {data['name']} does not fit these hosts. {numbers}", "memory")
    ranks = sizes["ranks"]
    # under the names that the plans of other engines have
    same = {
        "kv_cache_bytes_at_least": ranks["kv_cache_bytes"],
        "weights_bytes_per_rank": ranks["weights_bytes"],
        "budget_bytes": ranks["total_bytes"],
    }
    return {**sizes, "ranks": {**ranks, **same}}


def _by_host(hosts: Sequence[str], value: Any) -> Any:
    return [value[host] for host in hosts] if isinstance(value, Mapping) else value


def _unsized(hosts: Sequence[str], length: Any, sizing: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments for a model whose header is not known: what does not fit is lowered by the engine itself."""
    slots = int(sizing.get("max_num_seqs") or 1)
    found: dict[str, Any] = {"gpu-layers": _EVERY_LAYER, "parallel": slots}
    if re.fullmatch(r"\d+", str(length)):
        found["ctx-size"] = int(length) * slots
    if len(hosts) > 1:
        found["cache-ram"] = 0
    return found
