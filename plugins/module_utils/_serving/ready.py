# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is the serving group ready, and if not, is it worth waiting? The host's half of C(vllm_service)."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files, foreign
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import answers as tasks
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    loads,
    observation,
    places,
    progress,
    rank_state,
    serving,
    state_words,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.base import LogForm
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept

#: seconds for the one completion that proves serving; a busy engine is asked again, at leisure, by its role
COMPARED = 5.0


class ReadyError(Exception):
    """The host is not set up for serving; the message says what to run."""


@dataclasses.dataclass
class Readiness:
    """Where the serving group stands."""

    ready: bool = False
    changed: bool = False
    line: str = ""
    state: str = ""
    invocation: str = ""
    latency: float | None = None
    median_latency: float | None = None
    deadline: float | None = None
    interval: float | None = None
    stale: list[str] = dataclasses.field(default_factory=list)
    failure: dict[str, Any] | None = None
    #: what took how long in the load that has just ended; empty where nobody watched it
    loaded: str = ""


def _explain(unit: str, invocation: str, runner: serving.Runner, form: LogForm) -> dict[str, Any]:
    found = progress.explain(serving.journal(unit, invocation, 600, runner), form)
    return {**dataclasses.asdict(found), "invocation": invocation}


def stale_files(unit: observation.Unit, record: Mapping[str, Any], inputs: Sequence[str]) -> list[str]:
    """Those of ``inputs`` that the engine should be started anew for."""
    if unit.active not in ("active", "activating", "reloading"):
        return []
    if record.get("invocation") != unit.invocation:
        # a start that has not come to noting its files yet will read the ones that lie there now
        return [] if unit.active == "activating" else sorted(inputs)
    return serving.files_changed_since(record, inputs)


def stale_elsewhere(state_path: str, wall: Callable[[], float] = time.time) -> list[str]:
    """The same for the ranks of other hosts, as they report it to the head (executor mp)."""
    stale = rank_state.published(state_path, wall).get("stale") if state_path else None
    if not isinstance(stale, dict):
        return []
    # the file is the serving user's
    lists = ((host, paths) for host, paths in sorted(stale.items()) if isinstance(paths, list))
    return [f"{path} on {host}"[:200] for host, paths in lists for path in paths[:20] if isinstance(path, str)]


def paths_of(group: str) -> dict[str, Any]:
    """Where :func:`ensure` looks for a group beside the host's own one; for that one, which has no name, it knows."""
    if not group:
        return {}
    own = places.Places(group)
    return {
        "config_path": own.config,
        "state_path": own.state,
        "record_path": own.started_with,
        "maintenance_paths": own.maintenance,
    }


def ensure(
    config_path: str = serving.CONFIG,
    start: bool = False,
    check: bool = False,
    known_invocation: str = "",
    patience: float = 20.0,
    runner: serving.Runner = serving.run,
    state_path: str = serving.STATE,
    record_path: str = serving.STARTED_WITH,
    maintenance_paths: tuple[str, ...] = serving.MAINTENANCE,
    wall: Callable[[], float] = time.time,
    settle: float = 0.0,
    sleep: Callable[[float], None] = time.sleep,
    restart: Callable[[], str] | None = None,
) -> Readiness:
    """Start or restart the group if it must be, then say where it stands. ``restart`` does it in another way, and says
    what went wrong."""
    config = files.read_json(config_path)
    if not config.get("model"):
        if check:
            return Readiness(changed=start, line="not set up yet")
        raise ReadyError(f"{config_path} is missing or names no model on this host; run the vllm_serve role first")
    unit_name, engine = str(config.get("unit", places.OWN.unit)), registry.engine_of(config)
    properties = serving.show(unit_name, runner)
    unit = serving.unit_state(properties)
    if unit is None:
        raise ReadyError("systemd gives no answer on this host (systemctl show failed)")
    if properties.get("LoadState") in ("not-found", "masked", "bad-setting"):
        if check:
            return Readiness(changed=start, line="not set up yet")
        raise ReadyError(f"{unit_name} is {properties['LoadState']} on this host; run the vllm_serve role")
    readiness = Readiness(invocation=unit.invocation)
    if unit.active in ("inactive", "failed") and (why := serving.why_asleep(config, maintenance_paths)):
        return dataclasses.replace(readiness, ready=True, state=state_words.ASLEEP, line=f"asleep: {why}")
    if start:
        readiness.stale = stale_files(unit, files.read_json(record_path), config.get("inputs") or [])
        if not readiness.stale and unit.active in ("active", "activating"):
            sleep(settle)
            readiness.stale = stale_elsewhere(str(config.get("group_state") or ""), wall)
        if readiness.stale or unit.active in ("inactive", "failed"):
            readiness.changed = True
            if not check:
                error = restart() if restart else serving.restart(unit_name, False, runner)
                if error:
                    raise ReadyError(f"{unit_name} cannot be started: {error}")
            readiness.state = state_words.STARTING
            readiness.line = "starting: " + (
                "anew, because of " + ", ".join(readiness.stale) if readiness.stale else "the unit was not running"
            )
            return readiness
    _judge(readiness, config, unit, state_path, patience, runner, wall)
    failed = unit.active == "failed" or unit.sub == "auto-restart"
    # one that systemd started again; a restart by the watchdog or by a person is no failure of the engine's
    another = bool(known_invocation) and unit.restarts > 0 and unit.invocation not in ("", known_invocation)
    if not readiness.ready and (failed or another):
        readiness.failure = _explain(unit_name, unit.invocation if failed else known_invocation, runner, engine.log)
    reason = places.maintenance(maintenance_paths)
    if not readiness.ready and reason is not None:
        readiness.line += f"; maintenance ({reason}): the watchdog keeps quiet"
    return readiness


def _judge(
    readiness: Readiness,
    config: Mapping[str, Any],
    unit: observation.Unit,
    state_path: str,
    patience: float,
    runner: serving.Runner,
    wall: Callable[[], float],
) -> None:
    state = files.read_json(state_path)
    memory, fresh = _mapping(state, "memory"), rank_state.kept_up(state, wall())
    current = fresh and memory.get("invocation") == unit.invocation
    if current:
        readiness.state, readiness.line = str(state.get("state", "")), str(state.get("line", ""))
    elif not unit.running:
        readiness.state = state_words.STOPPED if unit.active == "inactive" else state_words.STARTING
        readiness.line = f"{readiness.state}: the unit is {unit.active} ({unit.sub})"
    else:
        readiness.state = state_words.LOADING
        lines = serving.journal(str(config["unit"]), unit.invocation, 160, runner)
        newest = progress.progress(lines, form=registry.engine_of(config).log)
        readiness.line = f"{readiness.state}: {newest.text or 'no line in the log yet'}"
        if not fresh:
            # no word at all is what the first seconds of a host look like, too
            late = "does not answer" if state else "has said nothing yet"
            readiness.line += f"; the watchdog {late} (journalctl -u sparkthor-watchdog)"
    if not unit.running or (current and not memory.get("served")):
        return
    socket = str(config.get("socket", ""))
    if not serving.listening(socket):
        return
    # the proof is our own: the watchdog's newest one may be older than the rank that was lost since
    probe = serving.complete(socket, str(config["model"]), patience, engine=registry.engine_of(config))
    if not probe.ok:
        readiness.line = f"{readiness.state}: {probe.text}"
        return
    completion = _mapping(state, "completion")
    settings = config.get("settings") or {}
    readiness.ready = True
    readiness.state, readiness.line = state_words.SERVING, state_words.SERVING
    readiness.latency = round(probe.seconds, 4)
    readiness.median_latency = _seconds(completion.get("median_latency")) if current else None
    readiness.deadline = settings.get("deadline")
    readiness.interval = settings.get("interval")
    kept = loads.loads(
        files.read_json(str(config.get("loads") or places.Places(str(config.get("beside") or "")).loads))
    )
    readiness.loaded = next((loads.took(row) for row in kept if row.get("invocation") == unit.invocation), "")


def _mapping(state: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = state.get(name)
    return value if isinstance(value, dict) else {}


def _seconds(value: Any) -> float | None:
    try:
        return foreign.number(value)
    except foreign.ForeignError:
        return None


def answers(config_path: str = serving.CONFIG, seconds: float = 60.0) -> dict[str, Any] | None:
    """How many simple tasks the model answers rightly; None where that cannot be known, or not within the time."""
    config = files.read_json(config_path)
    if not config.get("answers"):
        return None
    found = tasks.ask_engine(str(config["socket"]), str(config["model"]), seconds)
    return found if found.get("asked") else None


def answers_problem(found: Mapping[str, Any] | None) -> str:
    """What to say about a model that answers most simple tasks wrongly, and what to do about it."""
    text = tasks.problem(found or {})
    return f"{text}. {tasks.fix()}" if text else ""


def deadline_problem(found: Mapping[str, Any]) -> str:
    """A deadline that ordinary completions of this cluster nearly miss would restart a healthy group.

    And an interval shorter than one of them would keep the engine answering its watchdog.
    """
    latencies = [found[key] for key in ("latency", "median_latency") if found.get(key)]
    if not latencies:
        return ""
    usual = min(latencies)
    for name, least in (("deadline", 2 * usual), ("interval", usual)):
        value = found.get(name)
        if value and value < least:
            return (
                f"vllm_serve_watchdog_{name}: {value:g} s is too short: a one-token completion takes {usual:.2f} s on "
                f"this cluster; set at least {max(1, math.ceil(4 * usual))}"
            )
    return ""


def difference(arguments: Mapping[str, Any]) -> str:
    """What is not as the arguments of the module ``vllm_service`` want it; nothing is started."""
    if arguments["state"] == "kept":
        return "" if kept.newest_is_present(arguments["paths"]) else "what serves is not kept for a rollback yet"
    found = ensure(**paths_of(str(arguments.get("group") or "")), start=True, check=True, patience=COMPARED)
    problem = deadline_problem(dataclasses.asdict(found))
    return problem or ("" if found.ready and not found.changed else found.line or "it does not serve")
