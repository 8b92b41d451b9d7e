# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check `vllm serve` arguments against the option table of one vLLM version, before anything is stopped.

A table (see `_vllm_dump`) says which options there are and which values they take. What vLLM itself lets through or
only finds out after its imports is checked here: prefixes of names, values that a registry refuses later, options
that have no effect without a companion, and values that have frozen machines with unified memory.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import WARNING, Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.versions import release
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_environment, vllm_trust, vllm_values
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import secret_fix, secret_name
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import option_name

#: The tables that come with the collection, for versions that have not been dumped on a host yet.
SHIPPED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vllm_options")

#: Tables of schema 1 lack ranges and fields, which are then not checked.
SCHEMAS = (1, 2)

#: Unified memory: above this share vLLM has taken the whole machine with it.
UTILIZATION_EDGE = 0.90

#: Dangerous options that a user may want all the same, and then acknowledges by name; besides those of vllm_trust.
ACKNOWLEDGEABLE = ("gpu-memory-utilization", "enable-sleep-mode", "disable-log-stats")

#: Options of older versions -> what took their place.
REMOVED = {
    "swap-space": "leave it out: preempted requests are recomputed (for offloading the cache see kv-offloading-size)",
    "cpu-offload-params": "use cpu-offload-gb",
    "enable-reasoning": "use reasoning-parser alone",
    "guided-decoding-backend": "use structured-outputs-config with {backend: ...}",
    "task": "use runner and convert",
    "device": "leave it out: the platform is detected",
    "worker-use-ray": "use distributed-executor-backend: ray",
    "engine-use-ray": "use distributed-executor-backend: ray",
    "use-v2-block-manager": "leave it out: there is only one block manager",
    "num-scheduler-steps": "leave it out: scheduling is asynchronous by itself (async-scheduling)",
    "multi-step-stream-outputs": "leave it out: scheduling is asynchronous by itself (async-scheduling)",
    "num-lookahead-slots": "use speculative-config",
    "speculative-model": "use speculative-config with {model: ...}",
    "num-speculative-tokens": "use speculative-config with {num_speculative_tokens: ...}",
    "rope-scaling": "use hf-overrides with {rope_parameters: ...}",
    "rope-theta": "use hf-overrides with {rope_parameters: {rope_theta: ...}}",
    "max-seq-len-to-capture": "use compilation-config with {max_cudagraph_capture_size: ...}",
    "cuda-graph-sizes": "use compilation-config with {cudagraph_capture_sizes: [...]}",
    "disable-frontend-multiprocessing": "leave it out: the frontend is always a process of its own",
    "use-gpu-for-pooling-score": "leave it out: it is decided by the model",
    "calculate-kv-scales": "leave it out: use a checkpoint with KV scales, or kv-cache-dtype: fp8_per_token_head",
    "max-num-partial-prefills": "leave it out: the scheduler decides",
    "max-long-partial-prefills": "leave it out: the scheduler decides",
    "override-attention-dtype": "use dtype",
    "disable-log-requests": "leave it out: requests are logged only with enable-log-requests",
    "preemption-mode": "leave it out: preempted requests are recomputed",
    "tokenizer-pool-size": "leave it out",
}

#: Short forms, which a configuration file does not take.
SHORT = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "pcp": "prefill-context-parallel-size",
    "dcp": "decode-context-parallel-size",
    "dp": "data-parallel-size",
    "dpn": "data-parallel-rank",
    "dpr": "data-parallel-start-rank",
    "dpl": "data-parallel-size-local",
    "dpa": "data-parallel-address",
    "dpp": "data-parallel-rpc-port",
    "dpb": "data-parallel-backend",
    "dph": "data-parallel-hybrid-lb",
    "dpe": "data-parallel-external-lb",
    "dpm": "data-parallel-multi-port-external-lb",
    "ep": "enable-expert-parallel",
    "asc": "api-server-count",
    "ac": "attention-config",
    "cc": "compilation-config",
    "dc": "diffusion-config",
    "sc": "speculative-config",
    "q": "quantization",
    "n": "nnodes",
    "r": "node-rank",
    "O": "optimization-level",
}

#: option -> (what it needs, how that is written)
_COMPANIONS = {
    "tool-call-parser": ("enable-auto-tool-choice", "enable-auto-tool-choice: true"),
    "enable-auto-tool-choice": ("tool-call-parser", "tool-call-parser: <name>"),
    "enable-log-outputs": ("enable-log-requests", "enable-log-requests: true"),
    "reasoning-parser-plugin": ("reasoning-parser", "reasoning-parser: <name in the plugin>"),
    "tool-parser-plugin": ("tool-call-parser", "tool-call-parser: <name in the plugin>"),
    "node-rank": ("nnodes", "nnodes: <hosts>"),
    "data-parallel-rank": ("data-parallel-size", "data-parallel-size: <ranks>"),
}

#: Environment variables that people still set and vLLM does not read.
_ENVIRONMENT = {
    "VLLM_ATTENTION_BACKEND": "is not read any more; use the argument attention-backend",
    "VLLM_USE_V1": "is not read any more; leave it out",
}


def refusal(errors: Iterable[str], version: str) -> str:
    """One message of all findings that stop a run; the version may be unknown, and empty."""
    by = f" (vLLM {version})" if version else ""
    return f"vllm_serve_args{by}: {'. '.join(errors)}."


# --------------------------------------------------------------------------------------------------------------
# Tables


def vllm_release(version: str) -> tuple[int, ...]:
    """0.20.1+abc.nv26.05 -> (0, 20, 1); raises SizingError for what is no version."""
    numbers = release(str(version))[:3]
    if not numbers or "." not in str(version):
        raise SizingError("vllm_version", version, "is not a version", "Give it as 0.33.0.")
    return numbers


def shipped_versions(folder: str = SHIPPED) -> list[str]:
    names = [name[:-5] for name in os.listdir(folder) if name.endswith(".json")]
    return sorted(names, key=vllm_release)


def read_table(path: str) -> dict[str, Any]:
    with open(path, encoding="utf-8") as stream:
        return valid_table(json.load(stream), path)


def valid_table(table: Any, source: str) -> dict[str, Any]:
    """The table itself, or an error if it is none: a cached file may have been cut short or be of another schema."""
    if (
        not isinstance(table, dict)
        or table.get("schema") not in SCHEMAS
        or not isinstance(table.get("options"), dict)
        or not isinstance(table.get("value_lists"), dict)
    ):
        raise SizingError("vllm_options", source, "is not an option table", "Delete it; it is dumped again.")
    return table


def find_table(version: str, folder: str = SHIPPED) -> tuple[dict[str, Any], bool]:
    """(table, whether it is of exactly this version). Another patch release of the same minor one will do."""
    wanted = vllm_release(version)
    versions = shipped_versions(folder)
    same = [name for name in versions if vllm_release(name)[:2] == wanted[:2]]
    if not same:
        raise SizingError(
            "vllm_version",
            version,
            "has no option table in this collection",
            f"Let the host dump it (module vllm_options), or use one of {', '.join(versions)}.",
        )
    name = min(same, key=lambda item: abs(vllm_release(item)[2] - wanted[2]))
    return _shipped(os.path.join(folder, f"{name}.json")), vllm_release(name) == wanted


def newest_table() -> dict[str, Any]:
    return find_table(shipped_versions()[-1])[0]


@functools.cache
def _shipped(path: str) -> dict[str, Any]:
    return read_table(path)


# --------------------------------------------------------------------------------------------------------------
# Names


def spellings(table: Mapping[str, Any]) -> dict[str, tuple[str, bool]]:
    """Every accepted spelling -> (the option's name, whether it negates it)."""
    names: dict[str, tuple[str, bool]] = {}
    for name, entry in table["options"].items():
        names[name] = (name, False)
        for alias in entry.get("aliases", ()):
            names[alias] = (name, False)
        if entry["kind"] == "bool":
            for spelling in (name, *entry.get("aliases", ())):
                names[f"no-{spelling}"] = (name, True)
            for opposite in entry.get("inverse", ()):
                names[opposite] = (name, True)
                names[f"no-{opposite}"] = (name, False)
    return names


@functools.cache
def known_options() -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Every spelling in the shipped tables -> (the option's name, what the newest table that has it says of it)."""
    found: dict[str, tuple[str, Mapping[str, Any]]] = {}
    for version in shipped_versions():
        table, _exact = find_table(version)
        found.update({spelled: (name, table["options"][name]) for spelled, (name, _no) in spellings(table).items()})
    return found


def meant(name: str) -> list[str]:
    """The options that a name without fields may stand for: its own, or all that it is the beginning of.

    argparse takes a beginning that is no other option's for the whole name.
    """
    known = known_options()
    if name in known:
        return [known[name][0]]
    return [name, *sorted({full for spelled, (full, _entry) in known.items() if spelled.startswith(name)})]


def _places(args: Mapping[str, Any]) -> Iterator[vllm_trust.Place]:
    """Arguments by the options that they may mean, negations undone."""
    for key, value in args.items():
        head, _dot, rest = option_name(key).partition(".")
        if head.startswith("no-"):
            head, value = head[3:], not value if isinstance(value, bool) else value
        for option in meant(SHORT.get(head, head)):
            yield [option, *(part.rstrip("+").replace("-", "_") for part in rest.split(".") if part)], value


def check_trust(args: Mapping[str, Any], acknowledged: Collection[str]) -> list[Finding]:
    """What the inventory has to acknowledge, and has not; needs no table, and so holds for any version."""
    return vllm_trust.findings(_places(args), acknowledged)


def to_acknowledge(args: Mapping[str, Any]) -> list[str]:
    """Names for ``acknowledged`` with which none of these arguments is refused as dangerous."""
    return [*ACKNOWLEDGEABLE, *vllm_trust.needing(_places(args))]


def unknown_here(finding: Finding) -> bool:
    """Whether a table lacks the option, the field or the value, which the image of others may have all the same."""
    return finding.id == "unknown" or finding.what.endswith("does not know it")


def without_idle_flags(args: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """A flag that is off is left out: unlike a switch it has no negation that vLLM would take."""

    def idle(name: str, value: Any) -> bool:
        return value is False and table["options"].get(name, {}).get("kind") == "flag"

    return {name: value for name, value in args.items() if not idle(name, value)}


def fields(args: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The dictionary that is given as one, as JSON, by dotted fields, or by several of these."""
    values: dict[str, Any] = {}
    for key, value in args.items():
        head, dot, rest = option_name(key).partition(".")
        if head == name and dot:
            _nest(values, rest.split("."), value)
        elif head == name:
            value = parsed(value)
            values = _merged(value, values) if isinstance(value, Mapping) else values
    return values


def _merged(whole: Mapping[str, Any], fields_of_it: Mapping[str, Any]) -> dict[str, Any]:
    merged = copy.deepcopy(dict(whole))
    for name, value in fields_of_it.items():
        former = merged.get(name)
        if isinstance(former, Mapping) and isinstance(value, Mapping):
            value = _merged(former, value)
        merged[name] = value
    return merged


def parsed(value: Any) -> Any:
    """A dictionary that was written as JSON; anything else as it is."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _nest(target: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = target.setdefault(part, {})
        if not isinstance(inner, dict):
            inner = target[part] = {}
        target = inner
    target[path[-1]] = value


def _resolve(args: Mapping[str, Any], table: Mapping[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """Arguments under their full names with negations undone, and what could not be resolved."""
    names = spellings(table)
    resolved: dict[str, Any] = {}
    given: dict[str, str] = {}
    problems: list[Finding] = []
    version = table["vllm"]
    for key, value in args.items():
        spelled = option_name(key)
        if value is None:
            continue
        head, dot, rest = spelled.partition(".")
        if head not in names:
            problems.append(_unknown(head, value, names, version))
            continue
        name, negated = names[head]
        kind = table["options"][name]["kind"]
        if dot:
            if kind != "json":
                problems.append(
                    Finding(
                        "unknown", f"{name} takes no fields", f"give {name} a plain value", where=spelled, value=value
                    )
                )
                continue
            inner = parsed(resolved.get(name, {}))
            if isinstance(inner, Mapping):
                # a copy: the dictionary may be the user's own variable
                resolved[name] = copy.deepcopy(dict(inner))
                _nest(resolved[name], rest.split("."), value)
            else:
                problems.append(_no_dictionary(spelled, value, f"is a field of {name}, which is not a dictionary"))
            continue
        if name in given:
            problems.append(
                Finding(
                    "twice", f"is the same option as {given[name]!r}", "keep one of the two", where=spelled, value=value
                )
            )
            continue
        given[name] = str(key)
        if negated:
            if not isinstance(value, bool):
                problems.append(Finding("type", "is a switch", "give true or leave it out", where=spelled, value=value))
                continue
            value = not value
        earlier = resolved.get(name)  # fields of it that stood before
        if earlier is None:
            resolved[name] = value
            continue
        whole = parsed(value)
        if isinstance(whole, Mapping):
            resolved[name] = _merged(whole, earlier)
        else:
            problems.append(_no_dictionary(spelled, value, "is not a dictionary, and fields of it are given"))
    return resolved, problems


def _no_dictionary(option: str, value: Any, problem: str) -> Finding:
    return Finding("twice", problem, "keep one of the two, or give a dictionary", where=option, value=value)


def _unknown(name: str, value: Any, names: Collection[str], version: str) -> Finding:
    if name in REMOVED:
        return Finding("removed", f"vLLM {version} has no such option any more", REMOVED[name], where=name, value=value)
    if name in SHORT:
        return Finding(
            "unknown",
            "is a short form, which a configuration file does not take",
            f"use {SHORT[name]}",
            where=name,
            value=value,
        )
    close = vllm_values.closest(name, names)
    fix = f"did you mean {close}" if close else "see `vllm serve --help=all` of that version"
    return Finding("unknown", f"vLLM {version} has no such option", fix, where=name, value=value)


# --------------------------------------------------------------------------------------------------------------
# Dangers and companions


def _dangers(resolved: Mapping[str, Any], acknowledged: Collection[str]) -> list[Finding]:
    problems = []
    known = {option_name(name) for name in acknowledged}
    share = resolved.get("gpu-memory-utilization")
    if share is not None and "gpu-memory-utilization" not in known:
        try:
            number = float(share)
        except (TypeError, ValueError):
            number = 0.0
        if number > UTILIZATION_EDGE:
            problems.append(
                Finding(
                    "dangerous",
                    f"memory is unified: above {UTILIZATION_EDGE:.2f} the whole machine has frozen",
                    "use 0.85, or write vllm_serve_acknowledged: [gpu-memory-utilization]",
                    where="gpu-memory-utilization",
                    value=share,
                )
            )
    if resolved.get("enable-sleep-mode") and "enable-sleep-mode" not in known:
        problems.append(
            Finding(
                "dangerous",
                "memory is unified: waking up has crashed engines and whole machines (vllm#50011)",
                "leave it out, or write vllm_serve_acknowledged: [enable-sleep-mode]",
                where="enable-sleep-mode",
                value=True,
            )
        )
    return problems + _blinding(resolved, known)


def _blinding(resolved: Mapping[str, Any], known: Collection[str]) -> list[Finding]:
    """The watchdog holds a busy engine for alive by its token counters, and a drain counts requests by them."""
    if not resolved.get("disable-log-stats") or "disable-log-stats" in known:
        return []
    return [
        Finding(
            "dangerous",
            "without these numbers the watchdog takes a busy engine for one that hangs and restarts it, and a drain "
            "cannot see when the last request has ended",
            "leave it out, or write vllm_serve_acknowledged: [disable-log-stats]",
            where="disable-log-stats",
            value=True,
        )
    ]


def _companions(resolved: Mapping[str, Any], table: Mapping[str, Any]) -> list[Finding]:
    problems = []
    for name, (needs, how) in _COMPANIONS.items():
        if not resolved.get(name) or needs not in table["options"]:
            continue
        if not resolved.get(needs):
            problems.append(
                Finding("companion", f"has no effect without {needs}", f"add {how}", where=name, value=resolved[name])
            )
    batched, length = resolved.get("max-num-batched-tokens"), resolved.get("max-model-len")
    if (
        resolved.get("enable-chunked-prefill") is False
        and isinstance(batched, int)
        and isinstance(length, int)
        and batched < length
    ):
        problems.append(
            Finding(
                "companion",
                f"is less than max-model-len {length} while chunked prefill is off",
                "raise it, or leave chunked prefill on",
                where="max-num-batched-tokens",
                value=batched,
            )
        )
    return problems


# --------------------------------------------------------------------------------------------------------------
# The check


def check(args: Mapping[str, Any], table: Mapping[str, Any], acknowledged: Collection[str] = ()) -> list[Finding]:
    """All findings, fatal and not; an empty list means that vLLM will take the arguments as they are meant."""
    if not isinstance(args, Mapping):
        return [Finding("type", "is not a dictionary", "give option: value", where="vllm_serve_args", value=args)]
    resolved, problems = _resolve(args, table)
    told = {problem.where.partition(".")[0] for problem in problems}
    for name, value in resolved.items():
        entry = table["options"][name]
        problems += [] if name in told else vllm_values.problems(name, value, table, resolved)
        if entry.get("deprecated"):
            problems.append(
                Finding(
                    "deprecated",
                    f"is deprecated in vLLM {table['vllm']}",
                    "leave it out",
                    where=name,
                    value=value,
                    severity=WARNING,
                )
            )
    drafts = parsed(resolved.get(vllm_values.DRAFTS))
    problems += vllm_values.of_drafting(drafts, table, resolved)
    problems += _share_out_of_range(resolved)
    problems += _companions(resolved, table)
    problems += _dangers(resolved, acknowledged)
    problems += check_trust(args, acknowledged)
    if "gpu-memory-utilization" not in resolved and "kv-cache-memory-bytes" not in resolved:
        default = 0.9 if vllm_release(table["vllm"])[:2] < (0, 20) else 0.92
        problems.append(
            Finding(
                "default",
                f"is not given, and vLLM's own {default} is too much for unified memory",
                "give 0.85",
                where="gpu-memory-utilization",
                severity=WARNING,
            )
        )
    if resolved.get("enforce-eager") and "enforce-eager" not in {option_name(name) for name in acknowledged}:
        problems.append(
            Finding(
                "slow",
                "costs about half of decode speed",
                "keep it as a fallback only",
                where="enforce-eager",
                value=True,
                severity=WARNING,
            )
        )
    return problems


def _share_out_of_range(resolved: Mapping[str, Any]) -> list[Finding]:
    share = resolved.get("gpu-memory-utilization")
    try:
        number = float(share) if share is not None else 0.5
    except (TypeError, ValueError):
        return []
    if 0 < number <= 1:
        return []
    return [
        Finding("value", "is not a share of memory", "give 0.85, not 85", where="gpu-memory-utilization", value=share)
    ]


def normalise(args: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments under their full names, sorted, dotted fields as dictionaries; only for arguments that passed.

    What the table does not know stays as it is, for an image that has options of its own.
    """
    resolved, _problems = _resolve(args, table)
    names = spellings(table)
    strange = {name: value for key, value in args.items() if (name := option_name(key)).partition(".")[0] not in names}
    known = without_idle_flags(resolved, table)
    return dict(sorted({**known, **{name: value for name, value in strange.items() if value is not None}}.items()))


def check_environment(environment: Mapping[str, Any]) -> list[Finding]:
    """Environment variables of older guides that do nothing, would leak a secret or are dangerous."""
    removed = [
        Finding("removed", text, "remove it", where=name, value=environment[name])
        for name, text in _ENVIRONMENT.items()
        if name in environment
    ]
    dangerous = [
        Finding(
            "dangerous",
            "expandable_segments has wedged hosts with unified memory, and KV offloading refuses it",
            "leave that part out",
            where=name,
            value=environment[name],
        )
        for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
        if "expandable_segments" in str(environment.get(name, ""))
    ]
    secret = "is a secret in the environment, which Ray copies to workers"
    secrets = [
        Finding("removed", secret, secret_fix(name), where=name, value="(hidden)")
        for name, value in environment.items()
        if secret_name(name, value)
    ]
    return [*removed, *dangerous, *secrets, *vllm_environment.choice_problems(environment)]


def words_of(option: str, value: Any) -> list[str]:
    """One argument as the words of a command line that vLLM's parser reads so.

    The value of a field (``x.y``) is JSON there, so a switch needs its word, and a text that JSON reads quotes.
    """
    name = option_name(option)
    if "." in name and not isinstance(value, str):
        return [f"--{name}", json.dumps(value, sort_keys=True)]
    if "." in name:
        with contextlib.suppress(ValueError):
            json.loads(value)
            value = json.dumps(value)
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, Mapping):
        return [f"--{name}", json.dumps(value, sort_keys=True)]
    return [f"--{name}", *(str(item) for item in (value if isinstance(value, list) else [value]))]


def command(model: str, args: Mapping[str, Any]) -> list[str]:
    """The `vllm serve` command line that says the same, for people to read and compare with guides."""
    return ["vllm", "serve", model, *(word for name, value in args.items() for word in words_of(name, value))]
