# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes of the community's `sparkrun` tool (versions 1 and 2), translated into recipes of ours.

What the original tool would run is what is planned here; a part that has no counterpart is named, never dropped in
silence and never run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.sglang import SGLANG
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.tensorrt_llm import TENSORRT_LLM
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engine import MODELS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import (
    sglang_command,
    tensorrt_llm_command,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.foreign import Foreign, finished
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serve_command import (
    SHELL_VARIABLE,
    ServedModel,
    read_command,
)

#: fields that say something to a reader only
_INFORMATION = frozenset(("recipe_version", "sparkrun_version", "name", "description", "metadata", "benchmark"))
_TRANSLATED = frozenset(
    (
        *("model", "model_revision", "runtime", "runtime_version", "container", "min_nodes", "max_nodes", "mode"),
        *("solo_only", "cluster_only", "defaults", "env", "command"),
    )
)
#: what the original tool does to an image or around a start, and why it is not done here
_STEPS = {
    "mods": "patches of the image, which are not applied",
    "build_args": "options of the original tool's build",
    "builder": "the original tool's way to build the image",
    "builder_config": "the original tool's way to build the image",
    "pre_exec": "commands before the start, which are not run",
    "post_exec": "commands after the start, which are not run",
    "post_commands": "commands on the controller, which are not run",
}
#: without a command the original tool passes these on and nothing else
_PASSED = {
    "tensor_parallel": "tensor-parallel-size",
    "pipeline_parallel": "pipeline-parallel-size",
    "data_parallel": "data-parallel-size",
    **{
        name: name.replace("_", "-")
        for name in (
            *("port", "host", "gpu_memory_utilization", "max_model_len", "max_num_batched_tokens", "max_num_seqs"),
            *("served_model_name", "dtype", "quantization", "enforce_eager", "enable_prefix_caching"),
            *("trust_remote_code", "distributed_executor_backend", "kv_cache_dtype", "otlp_traces_endpoint", "api_key"),
        )
    },
}
#: of these, true is the bare option and false leaves it out
_SWITCHES = ("enforce_eager", "enable_prefix_caching", "trust_remote_code")
_PLACEHOLDER = re.compile(r"(?<!\$)\{(\w+)\}")
#: the same where doubled braces stand for single ones; read from left to right, so that {{"a":{n}}} ends as it should
_DOUBLED = re.compile(r"\$\{\w+\}|\{\{|\}\}|\{(\w+)\}")
#: placeholders of variables: of a default, and of anything that the tool fills
_OF_DEFAULTS, _OF_TOOL = re.compile(r"\{config\.(\w+)\}"), re.compile(r"\{(?:config|launch)\.\w+\}")
#: by the engine: how a command is read, and the options that the roles decide
_COMMANDS = {
    SGLANG.name: (sglang_command.read_sglang, sglang_command.DECIDED),
    TENSORRT_LLM.name: (tensorrt_llm_command.read_tensorrt_llm, tensorrt_llm_command.DECIDED),
}
#: what sparkrun calls them, and how a command of theirs begins
_ENGINES = {"sglang": SGLANG, "trtllm": TENSORRT_LLM, "trtllm-serve": TENSORRT_LLM}
_OTHER_COMMANDS = ("sglang", "llama-server", "trtllm-serve", "python -m sglang", "python3 -m sglang", "mpirun", "atlas")


def is_sparkrun(data: Mapping[str, Any]) -> bool:
    # venv and container are our runtimes, and a recipe of ours has args
    of_theirs = str(data.get("runtime") or "venv") not in ("venv", "container") and "args" not in data
    return "recipe_version" in data or of_theirs or ("container" in data and ("command" in data or "defaults" in data))


def translate_sparkrun(data: Mapping[str, Any], called: str) -> dict[str, Any]:
    """A recipe of ours from one of sparkrun; what has no counterpart is listed in `untranslated`."""
    model = data.get("model")
    if not isinstance(model, str) or not model:
        raise RecipeError(f"vllm_serve_recipe={called!r} names no model. Add it.")
    defaults = _dictionary(data, "defaults", called)
    command = str(data.get("command") or "")
    engine, executor = _runtime(data, command, called)
    notes = _steps(data)
    if command:
        folder = f"{MODELS}/{model.rstrip('/').rpartition('/')[2]}"
        own = {"model": model, "model_revision": data.get("model_revision") or "main", "resolved_model_path": folder}
        text = filled(command, {**own, **defaults}, str(data.get("recipe_version")), called)
        served = _COMMANDS[engine][0](text, called) if engine in _COMMANDS else read_command(text, called)
        unused = sorted(key for key in defaults if f"{{{key}}}" not in command)
        notes += [f"defaults.{key} (not used by the command)" for key in unused]
    else:
        served = _without_command(engine, defaults, notes, called)
    notes += served.notes
    image = str(data.get("container") or "")
    if image and "/" not in image:
        notes.append(f"container {image} (in no registry: the original tool builds it; set engine_image)")
        image = ""
    foreign = Foreign(
        name=str(data.get("name") or called),
        summary=str(data.get("description") or _dictionary(data, "metadata", called).get("description") or model),
        model=_model(served, model, registry.ENGINES[engine].program, notes),
        revision=_revision(served, str(data.get("model_revision") or "")),
        image=image,
        flags=served.flags,
        environment=_environment(data, defaults, notes, called),
        source="sparkrun",
        notes=notes,
        engine=engine,
    )
    if engine in _COMMANDS:
        foreign.decided = _COMMANDS[engine][1]
    split = foreign.split()
    hosts, splits = _hosts(data, split, foreign.notes, called)
    # one host is started in the same way by either of its runtimes
    foreign.executor = "" if hosts == 1 else executor
    return finished(foreign, called, hosts=hosts, splits=splits)


def _dictionary(data: Mapping[str, Any], key: str, called: str) -> Mapping[str, Any]:
    value = data.get(key) or {}
    if not isinstance(value, Mapping):
        raise RecipeError(f"vllm_serve_recipe={called!r}: {key} is not a dictionary. Write it as one.")
    return value


def _environment(data: Mapping[str, Any], defaults: Mapping[str, Any], notes: list[str], called: str) -> dict[str, Any]:
    """The variables as the tool sets them: since its 0.4 they name defaults, and what it alone knows at a launch."""
    kept: dict[str, Any] = {}
    part = _within(called, "an environment")
    for name, value in _dictionary(data, "env", called).items():
        text = _OF_DEFAULTS.sub(lambda match: part(str(defaults.get(match[1], match[0]))), str(value))
        if left := _OF_TOOL.search(text):
            notes.append(f"env.{name} ({left[0]} is filled by the original tool)")
        else:
            kept[name] = value if text == str(value) else text
    return kept


def _runtime(data: Mapping[str, Any], command: str, called: str) -> tuple[str, str]:
    """The engine, and what starts its ranks where its tool would choose that; an error for another engine."""
    runtime = str(data.get("runtime") or "")
    if not runtime:
        first = command.strip()
        runtime = next((word for word in _OTHER_COMMANDS if first.startswith(word)), registry.DEFAULT.name)
    if other := _ENGINES.get(runtime.rpartition(" ")[2]):
        return other.name, ""
    own = runtime.removeprefix("eugr-")
    if not own.startswith(registry.DEFAULT.name):
        raise RecipeError(
            f"vllm_serve_recipe={called!r} is for {runtime}. Only recipes for {registry.DEFAULT.title}, "
            f"{SGLANG.title} and {TENSORRT_LLM.title} can be served here.",
            "engine",
        )
    if own != runtime or own != registry.DEFAULT.name:
        starter = "ray" if own != runtime else own.removeprefix(f"{registry.DEFAULT.name}-")
        return registry.DEFAULT.name, {"distributed": "mp", "ray": "ray"}.get(starter, "")
    defaults = data.get("defaults") or {}
    ray = str(defaults.get("distributed_executor_backend", "")).lower() == "ray"
    ray = ray or bool(re.search(r"--distributed-executor-backend[\s=]+ray\b", command))
    solo = data.get("solo_only") or data.get("max_nodes") == 1 or data.get("mode") == "solo"
    return registry.DEFAULT.name, "ray" if ray or solo else "mp"


def _steps(data: Mapping[str, Any]) -> list[str]:
    """Parts around the engine, each by its name."""
    notes = []
    swept = data.get("runtime_config")
    merged = {**(swept if isinstance(swept, Mapping) else {}), **data}
    for key in sorted(set(merged) - _TRANSLATED - _INFORMATION - {"runtime_config"}):
        value = merged[key]
        if value in (None, [], {}, "", False):
            continue
        items = ", ".join(str(item) for item in value) if isinstance(value, list) else str(value)
        if key in _STEPS:
            notes.append(f"{key} {items} ({_STEPS[key]})")
        else:
            notes.append(f"{key} (no counterpart)")
    return notes


#: characters that placeholders of a command, or of all variables, are replaced by, in all
MOST_FILLED = 100_000


def _within(called: str, what: str) -> Callable[[str], str]:
    """What every text goes through that a placeholder is replaced by; an error for too many characters in all."""
    left = MOST_FILLED

    def part(text: str) -> str:
        nonlocal left
        left -= len(text)
        if left < 0:
            raise RecipeError(
                f"vllm_serve_recipe={called!r}: its defaults make {what} of more than {MOST_FILLED} characters. "
                "Take out those that hold one another's names."
            )
        return text

    return part


def filled(command: str, values: Mapping[str, Any], version: str, called: str) -> str:
    """The command with its placeholders replaced.

    Version 1 is a template of Python's format(), in which doubled braces stand for single ones; later versions
    replace names they know, again and again, and leave everything else as it is. So does sparkrun with a command of
    version 1 whose braces are single, of which format() would make nothing. Shell variables are no placeholders.
    """
    part = _within(called, "a command")
    if "{{" in command or (version == "1" and "{" not in _DOUBLED.sub("", command)):
        return _DOUBLED.sub(lambda match: part(_part(match, values, called)), command)
    for _round in range(10):
        before = command
        command = _PLACEHOLDER.sub(lambda match: part(_value(match.group(1), values, called)), command)
        if command == before:
            break
    return command


def _part(match: re.Match[str], values: Mapping[str, Any], called: str) -> str:
    if match.group(1):
        return _value(match.group(1), values, called)
    text = match.group()
    return text if text.startswith("$") else text[0]


def _value(name: str, values: Mapping[str, Any], called: str) -> str:
    if values.get(name) is None:
        raise RecipeError(
            f"vllm_serve_recipe={called!r}: the command uses {{{name}}}, which defaults lacks. Add it there."
        )
    return str(values[name])


def _without_command(engine: str, defaults: Mapping[str, Any], notes: list[str], called: str) -> ServedModel:
    """What the original tool would run. Raises RecipeError where that is not known here."""
    if engine == SGLANG.name:
        return sglang_command.from_sparkrun(defaults)
    if engine == TENSORRT_LLM.name:
        raise RecipeError(
            f"vllm_serve_recipe={called!r} has no command, and what the original tool makes of one for "
            f"{TENSORRT_LLM.title} is not known here. Copy the recipe and write the command there."
        )
    return _from_defaults(defaults, notes)


def _from_defaults(defaults: Mapping[str, Any], notes: list[str]) -> ServedModel:
    """What the original tool makes of `defaults` where there is no command."""
    served = ServedModel()
    for key, value in defaults.items():
        name = _PASSED.get(key)
        if name is None:
            notes.append(f"defaults.{key} (the original tool does not pass it on without a command)")
        elif key in _SWITCHES:
            if boolean(value, strict=False):
                served.flags[name] = True
        elif value is not None:
            served.flags[name] = value
    return served


def _model(served: ServedModel, model: str, program: str, notes: list[str]) -> str:
    """The command's model counts, as it does for the original tool; a path inside its container has no meaning here."""
    given = served.model
    if not given or given in (model, f"{MODELS}/{model.rstrip('/').rpartition('/')[2]}"):
        return model
    if given.startswith(("/", ".", "~", "$")) or "/" not in given:
        notes.append(f"{program} {given} (a path of the original container; the recipe's model {model} is served)")
        return model
    notes.append(f"model {model} (only downloaded by the original tool; its command serves {given})")
    return given


def _revision(served: ServedModel, named: str) -> str:
    """The command's counts, and is none of its arguments here: it decides what is fetched, and a folder is served."""
    if "revision" not in served.flags or SHELL_VARIABLE.search(str(served.flags["revision"])):
        return named
    return str(served.flags.pop("revision"))


def _hosts(
    data: Mapping[str, Any], split: dict[str, int], notes: list[str], called: str
) -> tuple[Any, dict[int, dict[str, Any]]]:
    """(numbers of hosts, split for the number that the recipe is written for)"""
    low, high = _number(data, "min_nodes", called), _number(data, "max_nodes", called)
    first = low or 1
    if data.get("cluster_only") or data.get("mode") == "cluster":
        first = max(first, 2)
    last = 1 if data.get("solo_only") or data.get("mode") == "solo" else high
    world = split.get("tensor_parallel", 1) * split.get("pipeline_parallel", 1)
    if last == 1 and first == 1:
        if world != 1:
            notes.append(f"a split over {world} GPUs (the recipe is for one host)")
        return 1, {}
    if last is not None and first > last:
        raise RecipeError(f"vllm_serve_recipe={called!r} wants at least {first} and at most {last} hosts. Correct it.")
    hosts: Any = "any" if (first, last) == (1, None) else list(range(first, (last or max(first, 16)) + 1))
    if split and (hosts == "any" or world in hosts):
        return hosts, {world: {**split, "why": "as the recipe says."}}
    if split:
        notes.append(f"a split over {world} GPUs (not for the {first} hosts and more that the recipe wants)")
    return hosts, {}


def _number(data: Mapping[str, Any], key: str, called: str) -> int | None:
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not str(value).isdigit() or int(value) < 1:
        raise RecipeError(f"vllm_serve_recipe={called!r}: {key}={value!r} is not a number of hosts. Give 2.")
    return int(value)
