# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in the serving units:
# pylint: disable=ansible-bad-function

"""How the serving group on the head is seen and moved: systemd, the journal, the engine's socket.

One place for what the watchdog, the C(vllm_service) module and the unit's own preparation need. The standard library
alone: it is installed on the head as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .._lib import command, files, foreign, peer, systemd
from . import observation, places, progress
from .endpoint import endpoint_of
from .engines import registry
from .engines.base import EngineOnHost

#: of the host's own group
CONFIG = places.OWN.config
STATE = places.OWN.state
STARTED_WITH = places.OWN.started_with
STARTS = places.OWN.starts
DRAINING = places.OWN.draining
#: written by the watchdog: the hosts that the group is started without, and with the smaller recipe
DEGRADED = places.OWN.degraded
#: the first survives a reboot (playbooks/stop.yml), the second is for an hour's work by hand
MAINTENANCE = places.OWN.maintenance
#: begins the reason while the host's own group gives way to one that is served on demand
ASLEEP = "asleep: "
#: configurations that served, kept by the playbook that saw them serve (_serving/kept.py)
GOOD = "/var/lib/sparkthor-last-good"
GOOD_INDEX = "index.json"

#: bytes of one of the engine's answers, at most
ANSWER_LIMIT = 4_000_000

#: (argv, seconds) -> (exit status, stdout, stderr)
Runner = Callable[[list[str], float], tuple[int, str, str]]


def run(argv: list[str], seconds: float) -> tuple[int, str, str]:
    """A command that can neither hang nor raise."""
    # systemd's own tools say there how they ended, and systemd logs each word of a process that it does not expect
    inherited = {key: value for key, value in os.environ.items() if key != "NOTIFY_SOCKET"}
    own = {"LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""}
    return command.run_limited(argv, seconds, environment={**inherited, **own})


def write_file(path: str, content: str, mode: int = 0o644) -> None:
    """Replace a file in one step, and make its folder where it is absent.  Raises ``OSError``."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    files.write_atomic(path, content, mode=mode)


def left_out(path: str = DEGRADED) -> dict[str, str]:
    """The hosts that the group does without: name by address."""
    without = files.read_json(path).get("without")
    return {str(one): str(without[one]) for one in sorted(without)} if isinstance(without, dict) else {}


def asleep(paths: Iterable[str] = MAINTENANCE) -> str | None:
    """For whom the host's own group gives way; None where it does not, or where a person keeps it stopped."""
    reason = places.maintenance(paths) or ""
    return reason[len(ASLEEP) :].partition(" ")[0] if reason.startswith(ASLEEP) else None


def why_asleep(config: Mapping[str, Any], paths: Iterable[str] = MAINTENANCE) -> str:
    """Why a group need not run, by its serving.json: of those that share a host on demand one serves.  Empty where it
    should."""
    if config.get("on_demand"):
        return "it starts when its model is asked for"
    group = asleep(paths)
    return f"{group} serves" if group in (config.get("on_demand_groups") or {}) else ""


def fingerprint(paths: Iterable[str], key: str = "") -> dict[str, str]:
    """What the engine is started with: a digest by file. There are secrets among them, so what is written down of it
    has a key of its own: a plain digest would let a secret that a person chose be guessed."""
    digests: dict[str, str] = {}
    for path in paths:
        try:
            with open(path, "rb") as stream:
                content = stream.read()
        except OSError:
            digests[path] = ""
        else:
            keyed = hmac.new(key.encode(), content, hashlib.sha256) if key else hashlib.sha256(content)
            digests[path] = keyed.hexdigest()
    return digests


def differing(wanted: Mapping[str, str], started: Mapping[str, Any]) -> list[str]:
    """Files that are not what the running engine was started with."""
    return sorted(path for path in {*wanted, *started} if wanted.get(path, "") != started.get(path, ""))


def record_start(inputs: Iterable[str], invocation: str, path: str = STARTED_WITH) -> None:
    """Write what this engine is started with, for root alone.  Raises ``OSError``."""
    key = secrets.token_hex(16)
    record = {"invocation": invocation, "key": key, "files": fingerprint(inputs, key)}
    write_file(path, json.dumps(record, indent=1) + "\n", 0o600)


def files_changed_since(record: Mapping[str, Any], inputs: Iterable[str] | None = None) -> list[str]:
    """Files that are not what stands in the record of a start: of ``inputs``, else of the record's own."""
    started = record.get("files")
    started = started if isinstance(started, dict) else {}
    # one that an earlier version wrote has no key
    return differing(fingerprint(started if inputs is None else inputs, str(record.get("key") or "")), started)


def model_of(config: str) -> str:
    """The folder or name of the model in an engine's configuration file; empty where that cannot be told."""
    try:
        return registry.named_model(files.read_plain(config).decode("utf-8", "replace"))
    except OSError:
        return ""


def served_by(command: Sequence[str], engine: EngineOnHost) -> str:
    """The model that an engine's command names, or the configuration file in it; empty where that cannot be told."""
    if engine.model_option and engine.model_option in command[:-1]:
        return command[command.index(engine.model_option) + 1]
    return model_of(command[command.index("--config") + 1]) if "--config" in command[:-1] else ""


def start_delay(failed_starts: int) -> float:
    """Seconds to wait before the next start after so many that never served: 0, 0, 0, 10, 20, 40 … 300."""
    return 0.0 if failed_starts < 3 else float(min(300, 10 * 2 ** (failed_starts - 3)))


def note_start(path: str = STARTS) -> float:
    """Count this start; the watchdog forgets the count as soon as one of them served. How long to wait before it."""
    count = files.read_json(path).get("starts")
    count = count if isinstance(count, int) and 0 <= count < 1000 else 0
    with contextlib.suppress(OSError):
        write_file(path, json.dumps({"starts": count + 1}) + "\n")
    return start_delay(count)


_PROPERTIES = (
    "ActiveState,SubState,InvocationID,MainPID,Result,NRestarts,LoadState,ExecMainStatus,ExecMainCode,"
    "ExecMainStartTimestampMonotonic"
)


def show_command(unit: str) -> list[str]:
    return ["systemctl", "show", "--no-pager", f"--property={_PROPERTIES}", unit]


def show(unit: str, runner: Runner = run) -> dict[str, str]:
    status, out, _err = runner(show_command(unit), 15)
    return next(iter(systemd.parse_show(out)), {}) if status == 0 else {}


def unit_state(properties: Mapping[str, str]) -> observation.Unit | None:
    """None when systemd could not be asked: that must not look like a unit that was stopped."""
    if not properties:
        return None

    def number(key: str) -> int:
        value = properties.get(key, "")
        return int(value) if value.isdigit() else 0

    return observation.Unit(
        active=properties.get("ActiveState", "inactive"),
        sub=properties.get("SubState", "dead"),
        invocation=properties.get("InvocationID", ""),
        main_pid=number("MainPID"),
        result=properties.get("Result", "success"),
        restarts=number("NRestarts"),
        started=number("ExecMainStartTimestampMonotonic") / 1e6,
    )


def journal_command(unit: str, invocation: str = "", lines: int = 120) -> list[str]:
    argv = ["journalctl", "--no-pager", "--quiet", "--all", "--output=json", "--output-fields=MESSAGE"]
    if invocation:
        # An invocation belongs to one boot. In a container, a unit with its own /proc/sys sees another boot's identity.
        return [*argv, f"--lines={lines}", f"_SYSTEMD_INVOCATION_ID={invocation}"]
    return [*argv, "--boot", f"--lines={lines}", f"_SYSTEMD_UNIT={unit}"]


def journal(unit: str, invocation: str = "", lines: int = 120, runner: Runner = run) -> list[str]:
    """The newest messages of the unit's own processes (not systemd's about it)."""
    status, out, _err = runner(journal_command(unit, invocation, lines), 20)
    return progress.messages(out) if status == 0 else []


def listening(place: str, seconds: float = 2.0) -> bool:
    """Whether the engine takes connections; ``place`` as serving.json has it."""
    return endpoint_of(place).listening(seconds)


def connections(place: str, table: str = "") -> int | None:
    """Open connections to the engine, one for each request: nobody who asks keeps his alive.

    The engine's own gauges follow a step's output: they show nothing of a request that uploads, is tokenized, or is in
    its first step.  ``table`` is another one of the kernel's, for tests.  None if unknown.
    """
    return endpoint_of(place).connections(*([table] if table else []))


def request(
    place: str, method: str, target: str, seconds: float, body: Mapping[str, Any] | None = None
) -> tuple[int, str]:
    """Status and body, within ``seconds``. Raises OSError (TimeoutError among them) or http.client.HTTPException."""
    payload = None if body is None else json.dumps(body)
    headers = {"Content-Type": "application/json"} if payload else {}
    answer = peer.ask(endpoint_of(place).connect(), method, target, seconds, payload, headers, ANSWER_LIMIT)
    return answer.status, answer.body.decode("utf-8", "replace")


def complete(
    place: str,
    model: str,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    engine: EngineOnHost = registry.DEFAULT,
) -> observation.Probe:
    """One real one-token completion, the only answer that proves all ranks; or what the engine has in its place."""
    started = clock()
    route, *others = engine.probes
    try:
        status, text = request(place, "POST", route.target, seconds, {"model": model, **route.body})
        for other in others if status in (404, 501) else ():
            asked = request(place, "POST", other.target, seconds, {"model": model, **other.body})
            if asked[0] == 200:
                route, (status, text) = other, asked
                break
    except TimeoutError:
        return observation.Probe(started, clock(), "timeout", f"completion timed out after {seconds:.0f} s")
    except (OSError, http.client.HTTPException) as error:
        return observation.Probe(started, clock(), "refused", f"the engine's socket: {error or type(error).__name__}")
    finished = clock()
    if status == 200:
        try:
            found = foreign.parse_object(text, ANSWER_LIMIT).get(route.field)
        except foreign.ForeignError:
            found = None
        if found:
            return observation.Probe(started, finished, "ok")
        return observation.Probe(started, finished, "http", f"the completion came without {route.field}")
    message = f"completion answered {status}: {_message(text)}"
    kind = "unready" if status == 503 else "rejected" if 400 <= status < 500 and status != 429 else "http"
    return observation.Probe(started, finished, kind, message)


def _message(text: str) -> str:
    try:
        data = foreign.parse_object(text, ANSWER_LIMIT)
        error = data.get("error", data)
        found = error.get("message") if isinstance(error, dict) else error
        return str(found)[:200]
    except (ValueError, AttributeError):
        return text.strip()[:200]


def metrics(place: str, seconds: float = 2.0, engine: EngineOnHost = registry.DEFAULT) -> str:
    """The engine's own metrics text; empty when it does not answer."""
    try:
        status, text = request(place, "GET", engine.metrics.target, seconds)
    except (OSError, http.client.HTTPException):
        return ""
    return text if status == 200 else ""


def restart_commands(unit: str, kill: bool) -> list[list[str]]:
    # one that hangs would use up its whole stop timeout
    return [
        *([["systemctl", "kill", "--signal=SIGKILL", unit]] if kill else []),
        ["systemctl", "reset-failed", unit],
        ["systemctl", "--no-block", "restart", unit],
    ]


def restart(unit: str, kill: bool, runner: Runner = run) -> str:
    """Start the unit anew without waiting; an empty answer means that systemd took the order."""
    *first, last = restart_commands(unit, kill)
    for argv in first:
        runner(argv, 15)
    status, _out, err = runner(last, 30)
    return "" if status == 0 else (err.strip() or f"systemctl ended with {status}")
