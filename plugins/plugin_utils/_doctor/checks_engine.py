# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks of the engine's arguments, its API and its models."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.versions import release
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import answers
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import (
    JUDGED,
    Case,
    Serve,
    check,
    groups_told,
    hosts_read,
    is_loopback,
    json_file,
    memory_share,
    parse_argv,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.diagnosis import Hit
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import MINIMUM_SECRET_LENGTH
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import engine_version, parallel
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_args import REMOVED, UTILIZATION_EDGE

#: seconds for which a hang is worth telling
RECENT = 86400.0


def _last_call(stack: str) -> str:
    """The innermost line of the first thread in py-spy's words: ``    name (file.py:12)``."""
    lines = stack.splitlines()
    first = next((at for at, line in enumerate(lines) if line.startswith("Thread ")), None)
    return "" if first is None or first + 1 >= len(lines) else " ".join(lines[first + 1].split())[:160]


@check
def engine_hung(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        for record in list(evidence.get("hangs") or ())[:1]:
            if float(evidence["ended"]) - record["taken"] > RECENT:
                continue
            when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record["taken"]))
            said = [f"{when}: {record['reason'] or 'the engine was restarted'}"]
            for one in record["processes"][:4]:
                where = _last_call(one["stack"]) or ", ".join(one["waits_in"]) or "no place in the kernel"
                said.append(f"{one['title']} ({one['state']}) was in {where}")
            for gpu in record["gpus"]:
                words = (("sm_mhz", "MHz"), ("watts", "W"), ("utilization", "%"), ("celsius", "°C"))
                shown = [f"{gpu[key]:g} {unit}" for key, unit in words if gpu.get(key) is not None]
                said.append(f"GPU: {', '.join([*shown, *gpu.get('slowed', ())])}")
            said += [f"NCCL: {line.strip()[:200]}" for line in record["nccl"].splitlines() if "rror" in line][:3]
            yield Hit(host, said, "/var/lib/sparkthor-hangs")


@check
def utilization_high(case: Case) -> Iterator[Hit]:
    for serve in case.serves:
        if UTILIZATION_EDGE < memory_share(serve) <= 1:
            yield serve.hit(f"gpu-memory-utilization {memory_share(serve):g}")


@check
def tool_parser_alone(case: Case) -> Iterator[Hit]:
    for serve in case.serves:
        parser, auto = serve.get("tool-call-parser"), bool(serve.get("enable-auto-tool-choice"))
        if parser and not auto:
            yield serve.hit(f"tool-call-parser {parser} without enable-auto-tool-choice")
        elif auto and not parser:
            yield serve.hit("enable-auto-tool-choice without tool-call-parser")


@check
def think_swallowed(case: Case) -> Iterator[Hit]:
    for serve in case.serves:
        given = {"reasoning-parser": serve.get("reasoning-parser")}
        if any(engine_version.parser_problems(serve.model, given, serve.version)):
            yield serve.hit(f"reasoning-parser qwen3 for {serve.model} with {JUDGED.title} {serve.version}")


def _tensor_parallel(serve: Serve) -> int:
    try:
        return int(serve.get("tensor-parallel-size", 1))
    except (TypeError, ValueError):
        return 1


def _indivisible(case: Case, blocks: bool) -> Iterator[Hit]:
    for serve in case.serves:
        served = (case.evidence.get(serve.host) or {}).get("served_model") or {}
        if not served.get("config") or served.get("path") != serve.model:
            continue
        if parallel.PADDED_HEADS in case.acknowledged.get(serve.host, ()):
            continue
        try:
            experts = bool(serve.get("enable-expert-parallel"))
            problems = parallel.tensor_problems(served["config"], _tensor_parallel(serve), experts)
        except SizingError:
            continue
        mine = [problem for problem in problems if ("FP8 block" in problem) is blocks]
        if mine:
            yield serve.hit(f"tensor-parallel-size {_tensor_parallel(serve)}: {mine[0]}")


@check
def heads_indivisible(case: Case) -> Iterator[Hit]:
    return _indivisible(case, blocks=False)


@check
def fp8_block_indivisible(case: Case) -> Iterator[Hit]:
    return _indivisible(case, blocks=True)


@check
def option_gone(case: Case) -> Iterator[Hit]:
    for serve in case.serves:
        for name in sorted(set(serve.args) & set(REMOVED)):
            if name == "swap-space" and serve.version and release(serve.version)[:2] < (0, 20):
                continue
            yield serve.hit(f"{name}: {serve.args[name]!r}", fix=f"{name}: {REMOVED[name]}")


@check
def quantization_nvfp4(case: Case) -> Iterator[Hit]:
    for serve in case.serves:
        if serve.get("quantization") == "nvfp4":
            yield serve.hit("quantization: nvfp4")


@check
def eager_enforced(case: Case) -> Iterator[Hit]:
    for serve in case.serves:
        if serve.get("enforce-eager") is True:
            yield serve.hit("enforce-eager is on")


@check
def executor_not_named(case: Case) -> Iterator[Hit]:
    for serve in case.serves:
        try:
            world = _tensor_parallel(serve) * int(serve.get("pipeline-parallel-size", 1))
        except (TypeError, ValueError):
            continue
        gpus = int(case.node(serve.host).get("gpus") or 1)
        named = serve.get("distributed-executor-backend") or serve.get("nnodes")
        if world > gpus and not named and serve.host in case.evidence:
            yield serve.hit(f"{world} ranks, {gpus} GPU here, and no distributed-executor-backend")


@check
def api_key_empty(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        secret = (evidence.get("secrets") or {}).get("api_key")
        if secret is not None and secret["characters"] < MINIMUM_SECRET_LENGTH:
            seen = f"{secret['characters']} characters" if secret["characters"] else "empty"
            yield Hit(host, [f"/etc/sparkthor/secrets/api_key is {seen}"], "/etc/sparkthor/secrets/api_key")
        for process in evidence.get("processes") or ():
            engine = registry.ENGINES.get(process["program"])
            if engine and process["api_key"] == "empty":
                yield Hit(host, [f"{engine.key_variable} is set and empty"], f"process {process['pid']}")


@check
def api_open(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        for process in evidence.get("processes") or ():
            args = parse_argv(process["argv"])
            if process["program"] != JUDGED.name or process["api_key"] or "config" in args:
                continue
            address = str(args.get("host", "0.0.0.0"))
            if "api-key" not in args and "uds" not in args and not is_loopback(address):
                port = args.get("port", 8000)
                yield Hit(
                    host, [f"{JUDGED.program} listens on {address}:{port} without a key"], f"process {process['pid']}"
                )


def _sounder_kernels(case: Case, host: str) -> str:
    """Which other kernels to choose for the own group's model; empty where its format is no known cause."""
    served = (case.evidence.get(host) or {}).get("served_model") or {}
    chosen = next((serve for serve in case.serves if serve.host == host and not serve.group), None)
    try:
        shape = read_shape(served.get("config") or {})
    except SizingError:
        return ""
    if shape.quantization != "nvfp4":
        return ""
    option = "moe-backend" if shape.experts else "linear-backend"
    now = str(chosen.get(option, "auto") if chosen else "auto")
    other = "flashinfer_cutlass" if now == "marlin" else "marlin"
    return f"vllm_serve_args: {{{option}: {other}}} instead of {now}, then site.yml --tags serve"


@check
def answers_wrong(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        for group in groups_told(evidence):
            told = json_file(evidence, group.listed("state.json")).get("answers") or {}
            problem = answers.problem(told)
            if problem and group.name:
                yield Hit(host, [f"group {group.name} of serving_beside: {problem}"], group.watchdog)
            elif problem:
                yield Hit(host, [problem], "the watchdog", fix=_sounder_kernels(case, host))


@check
def hub_links_broken(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        for model in evidence.get("models") or ():
            if model["broken_count"]:
                names = ", ".join(model["broken"][:3])
                yield Hit(
                    host, [f"{model['path']}: {model['broken_count']} links lead nowhere: {names}"], model["path"]
                )


@check
def revision_differs(case: Case) -> Iterator[Hit]:
    by_name: dict[str, dict[str, list[str]]] = {}
    for host, evidence in hosts_read(case):
        for model in evidence.get("models") or ():
            if model["revision"]:
                by_name.setdefault(model["name"], {}).setdefault(model["revision"], []).append(host)
    for name, revisions in by_name.items():
        if len(revisions) < 2:
            continue
        with_it = [host for host in case.hosts if any(host in hosts for hosts in revisions.values())]
        usual = max(revisions, key=lambda value: (len(revisions[value]), with_it[0] in revisions[value]))
        for revision, hosts in revisions.items():
            if revision != usual:
                for host in hosts:
                    yield Hit(host, [f"{name} is at {revision}, but {usual} on {', '.join(revisions[usual])}"], name)


@check
def model_absent(case: Case) -> Iterator[Hit]:
    ours = [serve for serve in case.serves if serve.ours and serve.model.startswith("/")]
    paths = {serve.model for serve in ours if not serve.group}
    for host, evidence in hosts_read(case):
        models = evidence.get("models") or ()
        known = {path for model in models for path in (model["path"], *model.get("folders", ()))}
        served = evidence.get("served_model") or {}
        for path in sorted(paths):
            here = served.get("present") if served.get("path") == path else path in known
            if not here:
                yield Hit(host, [f"{path} has no config.json" if path in known else f"{path} is not there"], path)
        # of such a group its one host needs the model, and only in a folder of models can be seen what is absent
        folders = {os.path.dirname(path) for path in known}
        for serve in ours:
            if serve.group and serve.host == host and serve.model not in known:
                if os.path.dirname(serve.model) in folders:
                    yield serve.hit(f"{serve.model} is not there")
