# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the doctor judges: all that is known of a cluster, and how checks read it.  Pure, on the controller."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import typing as t
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import watchdog_state
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file, foreign
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import limits, places, state_words
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.diagnosis import Hit, Log
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import address_of

GIB: t.Final = 1 << 30

Evidence = Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Serve:
    """The arguments that an engine was, or would be, started with, and where that was read."""

    host: str
    where: str
    args: Mapping[str, t.Any]
    version: str = ""
    #: the serving group beside the host's own one whose engine it is; empty for the own one
    group: str = ""

    def get(self, name: str, default: t.Any = None) -> t.Any:
        value = self.args.get(name)
        return default if value is None else value

    @property
    def model(self) -> str:
        return str(self.get("model", self.get("model-tag", "")))

    @property
    def ours(self) -> bool:
        """Whether this collection wrote it."""
        return self.where.endswith(".yaml")

    def hit(self, line: str, fix: str = "") -> Hit:
        """A finding about it; its variables stand elsewhere where it is a group's beside the own one."""
        told = f"group {self.group} of serving_beside: {line}" if self.group else line
        return Hit(self.host, [told], self.where, fix=fix)


@dataclasses.dataclass
class Case:
    """All that is known of the cluster when it is judged."""

    hosts: list[str]
    evidence: dict[str, Evidence] = dataclasses.field(default_factory=dict)
    unreachable: dict[str, str] = dataclasses.field(default_factory=dict)
    #: by host without evidence, what it lacks and the fix, where that is known; preflight and status say the same
    contact: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    unreadable: dict[str, str] = dataclasses.field(default_factory=dict)
    cluster: Mapping[str, t.Any] | None = None
    #: name, hosts and plan of each serving group, where the inventory names some
    parts: list[tuple[str, list[str], Mapping[str, t.Any]]] = dataclasses.field(default_factory=list)
    #: the one of them that is judged, or nothing
    group: str = ""
    fabric: Mapping[str, t.Any] | None = None
    plan_error: str = ""
    #: nobody was asked: there are only the logs that somebody sent
    logs_only: bool = False
    #: by host, between how many and how many seconds its clock is ahead of the controller's
    clocks: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    serves: list[Serve] = dataclasses.field(default_factory=list)
    #: by host, which risks its inventory says it takes
    acknowledged: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    @property
    def roce(self) -> bool:
        return bool(self.cluster) and self.cluster["profile"] == "roce"  # type: ignore[index]

    def together(self, host: str) -> list[str]:
        """The hosts that serve with this one, itself among them: all of them, or those of its serving group."""
        return next((hosts for _name, hosts, _plan in self.parts if host in hosts), self.hosts)

    @property
    def serving(self) -> set[str]:
        """The hosts whose group serves right now, by what the watchdog of its head says."""
        found: set[str] = set()
        for hosts in [hosts for _name, hosts, _plan in self.parts] or [self.hosts]:
            evidence = self.evidence.get(hosts[0], {}) if hosts else {}
            state = watchdog_state.believed(json_file(evidence, places.OWN.listed("state.json")))
            age = float(evidence.get("ended") or 0) - float(state.get("updated") or 0)
            if state.get("state") == state_words.SERVING and state.get("healthy") and abs(age) < limits.WATCHDOG_STALE:
                found.update(hosts)
        return found

    def node(self, host: str) -> Mapping[str, t.Any]:
        return self.evidence.get(host, {}).get("node") or {}

    def interfaces(self, host: str) -> dict[str, Mapping[str, t.Any]]:
        return {link["name"]: link for link in self.node(host).get("interfaces") or ()}

    def links(self, host: str) -> Sequence[Mapping[str, t.Any]]:
        """The links that this collection configures on a host; none on a lan."""
        entry = (self.fabric or {}).get(host) or {}
        return entry.get("links") or () if entry.get("addressing") == "managed" else ()


def parse_argv(argv: Sequence[str]) -> dict[str, t.Any]:
    """``serve MODEL --key value --flag --no-flag --key=value`` as options by name."""
    options: dict[str, t.Any] = {}
    words = list(argv)
    if "serve" in words[:4]:
        words = words[words.index("serve") + 1 :]
        if words and not words[0].startswith("-"):
            options["model"] = words.pop(0)
    short = {"-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-q": "quantization"}
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("-"):
            continue
        name, sep, value = word.partition("=")
        name = short.get(name, name.lstrip("-")).replace("_", "-")
        if sep:
            options[name] = _plain(value)
        elif index < len(words) and not (words[index].startswith("-") and not _number(words[index])):
            options[name] = _plain(words[index])
            index += 1
        elif name.startswith("no-"):
            options[name[3:]] = False
        else:
            options[name] = True
    return options


def _number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(?:\.\d+)?", text) is not None


def _plain(text: str) -> t.Any:
    try:
        return json.loads(text) if _number(text) else text
    except ValueError:
        # 007 is a name, and no number of JSON
        return text


#: the one whose arguments are judged by checks
JUDGED = registry.DEFAULT
_ARGUMENTS = "non-default args: "
#: characters of them, at most
_MOST_ARGUMENTS = 1 << 20
#: the journal of a group's engine
_BESIDE = re.compile("journal of " + re.escape(places.Places("NAME").unit).replace("NAME", r"(\S+)"))
_VERSION = re.compile(r"(?:vLLM API server version|LLM engine \(v)\s*(\d+\.\d+(?:\.\d+)?[^\s)]*)")


def log_arguments(log: Log) -> Iterator[Serve]:
    """What the engine itself printed of its arguments, newest last; only the newest start of a log counts."""
    position = log.text.rfind(_ARGUMENTS + "{")
    if position < 0:
        return
    start = log.text.rfind("\n", 0, position) + 1
    end = log.text.find("\n", position)
    # no expression: a line is as long as whoever wrote it wants
    told = log.text[position + len(_ARGUMENTS) : end if end > 0 else len(log.text)].rstrip()
    if not told.endswith("}") or len(told) > _MOST_ARGUMENTS:
        return
    try:
        given = ast.literal_eval(told)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return
    if not isinstance(given, dict):
        return
    versions = _VERSION.findall(log.text[max(0, start - 4000) : start + 20_000])
    args = {str(key).replace("_", "-"): value for key, value in given.items()}
    beside = _BESIDE.fullmatch(log.name)
    yield Serve(log.host, log.name, args, versions[0] if versions else "", beside[1] if beside else "")


def serve_arguments(host: str, evidence: Evidence, read_yaml: Callable[[str], t.Any]) -> Iterator[Serve]:
    """Arguments out of our configuration files, one for each group, and out of the command lines of running engines.

    ``read_yaml`` gives None for what is no YAML; this file itself needs the standard library alone.
    """
    version = ((evidence.get("engine") or {}).get("versions") or {}).get(JUDGED.name, "")
    files = evidence.get("files") or {}
    for group in groups_told(evidence):
        text = files.get(group.listed(JUDGED.config))
        given = read_yaml(text) if text else None
        if isinstance(given, Mapping):
            args = {str(key).replace("_", "-"): value for key, value in given.items()}
            yield Serve(host, f"{group.etc}/{JUDGED.config}", args, version, group.name)
    for process in evidence.get("processes") or ():
        if process["program"] == JUDGED.name:
            args = parse_argv(process["argv"])
            if "config" not in args:
                yield Serve(host, f"process {process['pid']}", args, version)


def hosts_read(case: Case) -> Iterator[tuple[str, Evidence]]:
    """The hosts that answered, with what they told."""
    for host in case.hosts:
        if host in case.evidence:
            yield host, case.evidence[host]


def groups_told(evidence: Evidence) -> list[places.Places]:
    """The host's own serving group, and those beside it of which it has told anything."""
    told = (name.split("/") for name in evidence.get("files") or {} if name.startswith(f"{places.BESIDE}/"))
    return [places.OWN, *map(places.Places, sorted({parts[1] for parts in told if len(parts) == 3}))]


#: of a worker of our Ray: the job in hexadecimal, the lowest byte first
_RAY_WORKER = re.compile(r"/var/lib/sparkthor/ray/.*/worker-[0-9a-f]+-([0-9a-f]{8})-\d+\.(?:out|err)")
#: a worker that no job has used yet
_NO_JOB = "ffffffff"


def without_former_jobs(case: Case, logs: Sequence[Log]) -> list[Log]:
    """Without what workers of Ray wrote for a job before the one that serves: each start of an engine is a job, and
    what kept an earlier one from serving is over."""
    serving = case.serving
    told: list[tuple[Log, str, int]] = []
    newest: dict[str, int] = {}
    for log in logs:
        match = _RAY_WORKER.fullmatch(log.name) if log.host in serving else None
        head = case.together(log.host)[0] if match and match[1] != _NO_JOB else ""
        job = int.from_bytes(bytes.fromhex(match[1]), "little") if match else 0
        told.append((log, head, job))
        newest[head] = max(job, newest.get(head, 0))
    return [log for log, head, job in told if not head or job == newest[head]]


def fabric_environment(evidence: Evidence) -> dict[str, str]:
    """The variables of a host's fabric.env."""
    return environment_file.parse((evidence.get("files") or {}).get("fabric.env", ""))


def json_file(evidence: Evidence, name: str) -> dict[str, t.Any]:
    """The object in one of a host's files; empty where there is none."""
    try:
        return foreign.parse_object((evidence.get("files") or {}).get(name) or "{}")
    except foreign.ForeignError:
        return {}


def environments(evidence: Evidence) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Every environment by which an engine finds its network: ours, and that of what runs."""
    environment = fabric_environment(evidence)
    if environment:
        yield environment_file.FABRIC, environment
    for process in evidence.get("processes") or ():
        if process["env"]:
            yield f"{process['program']} (process {process['pid']})", process["env"]


def is_loopback(address: str) -> bool:
    try:
        parsed = address_of(address)
        return bool((parsed.ipv4() if parsed.is_ipv4_mapped() else parsed).is_loopback())
    except ValueError:
        return False


def memory_share(serve: Serve) -> float:
    """The share of the host's memory that an engine asks for; 0 where it names none."""
    try:
        return float(serve.get("gpu-memory-utilization", 0))
    except (TypeError, ValueError):
        return 0.0


CHECKS: dict[str, Callable[[Case], Iterable[Hit]]] = {}


def check(function: Callable[[Case], Iterable[Hit]]) -> Callable[[Case], Iterable[Hit]]:
    """Enter a function under its own name, by which rules refer to it."""
    CHECKS[function.__name__] = function
    return function
