# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, behind the page:
# pylint: disable=ansible-bad-function
"""What the page on a head shows, as one document of plain values.

Sources: the watchdogs' state files, the exporters of all hosts, and the journal's lines of the watchdogs.  What a host,
an engine or a log says is text here and stays text in the browser.  Without a source a value is null, never a guess.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .._lib.printable import printable
from . import gpu_state, host_versions, last_checks, limits, loads, watchdog
from .engines import registry

#: of the document; the page says so where it knows another one
SCHEMA = 2
#: seconds between two points of the history, and how many there are: an hour
STEP, POINTS = 10.0, 360
#: of a history that is read again
SERIES = 200
#: seconds after which the last word of a host or a watchdog is old
OLD = 30.0
#: of a line that a person reads
LINE = 400
#: of one metric of a page, and of one host's GPUs and links: more is no machine, but somebody who wants this to be slow
MOST_SAMPLES, MOST_PARTS = 2000, 64
#: parts on which hosts differ that are shown
MOST_DIFFERENT = 16
#: of a figure, so that sums and rates of such are numbers that JSON can say
LARGEST = 1e18
#: counters that are remembered, before those that are old are forgotten
MOST_RATES = 4096
_ONE_LINE = re.compile(r"[^\r\n]+")
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+)(?: \d+)?")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Samples = dict[str, list[tuple[dict[str, str], float]]]


def samples(text: str, wanted: Iterable[str]) -> Samples:
    """The wanted metrics of a page in Prometheus' text format: labels and value of each sample."""
    names = frozenset(wanted)
    found: Samples = {}
    # one by one: a host may send a page of nothing but ends of lines
    for one in _ONE_LINE.finditer(text):
        line = one[0]
        name = line.partition("{")[0].partition(" ")[0]
        match = _SAMPLE.fullmatch(line) if name in names else None
        if not match:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if not abs(value) <= LARGEST or len(found.get(name, ())) >= MOST_SAMPLES:
            continue
        labels = {
            key: re.sub(r'\\[\\"n]', lambda one: _ESCAPED[one[0]], told) for key, told in _LABEL.findall(match[2] or "")
        }
        found.setdefault(name, []).append((labels, value))
    return found


def total(found: Samples, name: str) -> float | None:
    """The sum of a metric's samples; None without one."""
    values = [value for _labels, value in found.get(name, ())]
    return sum(values) if values else None


#: what is read of an engine, each by its own name for it
ENGINE_FIGURES = (
    *("running", "waiting", "tokens", "prompt_tokens", "first_token_sum", "first_token_count", "drafted", "accepted"),
)
#: and of a host
HOST = (
    *(
        "sparkthor_node_memory_total_bytes",
        "sparkthor_node_memory_available_bytes",
        "sparkthor_node_memory_cached_bytes",
    ),
    *("sparkthor_node_disk_total_bytes", "sparkthor_node_disk_free_bytes", "sparkthor_node_uptime_seconds"),
    *("sparkthor_gpu_power_watts", "sparkthor_gpu_temperature_celsius", "sparkthor_gpu_clock_hertz"),
    *("sparkthor_gpu_clock_limit_hertz", "sparkthor_gpu_utilization_ratio", "sparkthor_gpu_slowed"),
    *(
        "sparkthor_link_up",
        "sparkthor_link_mtu_bytes",
        "sparkthor_link_rx_bytes_total",
        "sparkthor_link_tx_bytes_total",
    ),
    *("sparkthor_rdma_port_transmit_bytes_total", "sparkthor_rdma_port_receive_bytes_total"),
    *("sparkthor_firewall_closed", "sparkthor_front_requests_total", "sparkthor_front_completion_tokens_total"),
    *("sparkthor_front_prompt_tokens_total", "sparkthor_front_key_tokens", "sparkthor_front_key_tokens_limit"),
)


def engine(text: str) -> dict[str, float | None]:
    """The engine's own figures from its ``/metrics``: counters and gauges, ``cache`` as a share."""
    names = registry.engine_that_says(text).metrics
    figures = names.figures()
    found = samples(text, [*figures.values(), *names.cache_share])
    values = {ours: total(found, figures[ours]) if ours in figures else None for ours in ENGINE_FIGURES}
    shares = [value for name in names.cache_share for _labels, value in found.get(name, ())]
    return {**values, "cache": max(shares) if shares else None}


class Rates:
    """Counters as they were a moment ago, so that a second reading says how fast they move."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, float]] = {}

    def per_second(self, name: str, value: float | None, now: float) -> float | None:
        """By how much it grows in a second; None at first, without a value, and after it began anew."""
        if value is None:
            self._before.pop(name, None)
            return None
        then, before = self._before.get(name, (now, value))
        self._before[name] = (now, value)
        if len(self._before) > MOST_RATES:
            self._before = {name: old for name, old in self._before.items() if abs(now - old[0]) <= OLD}
        return (value - before) / (now - then) if now > then and value >= before else None


def _first(found: Samples, name: str) -> float | None:
    return next((value for _labels, value in found.get(name, ())), None)


def _at_power_limit_alone(gpu: Mapping[str, Any]) -> bool:
    """Whether nothing but its own power limit holds it, and its clock does not say that the limit is too low."""
    busy = gpu.get("share", 0.0) * 100 > limits.GPU_BUSY
    low = busy and "hertz" in gpu and gpu["hertz"] < limits.GPU_SHARE * gpu.get("limit_hertz", 0.0)
    return gpu.get("slowed") == [gpu_state.POWER_LIMIT] and not low


def host(text: str, name: str, rates: Rates, now: float) -> dict[str, Any]:
    """One host by its exporter's page: bytes, watts, degrees Celsius, shares."""
    found = samples(text, HOST)
    gpus: dict[str, dict[str, Any]] = {}
    for key, metric in (
        ("watts", "sparkthor_gpu_power_watts"),
        ("celsius", "sparkthor_gpu_temperature_celsius"),
        ("hertz", "sparkthor_gpu_clock_hertz"),
        ("limit_hertz", "sparkthor_gpu_clock_limit_hertz"),
        ("share", "sparkthor_gpu_utilization_ratio"),
    ):
        for labels, value in found.get(metric, ())[:MOST_PARTS]:
            gpus.setdefault(_word(labels.get("gpu", "0")), {})[key] = value
    for labels, value in found.get("sparkthor_gpu_slowed", ())[:MOST_PARTS]:
        if value:
            own = gpus.setdefault(_word(labels.get("gpu", "0")), {})
            own.setdefault("slowed", []).append(_word(labels.get("reason", "")))
    for own in filter(_at_power_limit_alone, gpus.values()):
        del own["slowed"]
    links = []
    planned = [one for one in found.get("sparkthor_link_up", ()) if one[0].get("planned") == "yes"]
    for labels, value in planned[:MOST_PARTS]:
        device = labels.get("netdev", "")
        if len(device) <= MOST_PARTS:
            links.append(
                {"netdev": _word(device), "up": bool(value), "bytes": _traffic(found, name, device, rates, now)}
            )
    closed = _first(found, "sparkthor_firewall_closed")
    return {
        "memory": _pair(found, "sparkthor_node_memory_total_bytes", "sparkthor_node_memory_available_bytes"),
        "disk": _pair(found, "sparkthor_node_disk_total_bytes", "sparkthor_node_disk_free_bytes"),
        "uptime": _first(found, "sparkthor_node_uptime_seconds"),
        "gpus": [{"gpu": gpu, **own} for gpu, own in sorted(gpus.items())],
        "links": sorted(links, key=lambda link: str(link["netdev"])),
        "firewall": None if closed is None else bool(closed),
    }


def versions_told(text: str) -> dict[str, str]:
    """What a host's exporter says that it runs, by part."""
    told = samples(text, ["sparkthor_node_version"]).get("sparkthor_node_version", [])[:MOST_PARTS]
    return {_word(labels.get("part", "")): _word(labels.get("version", "")) for labels, _value in told}


def versions(
    by_host: Mapping[str, Mapping[str, str]], kinds: Mapping[str, str], parts: Iterable[Collection[str]] = ()
) -> dict[str, Any]:
    """What the hosts that answer run alike, and on what they differ, in the words of status.yml."""
    different = host_versions.differing(by_host, kinds, parts)
    alike = host_versions.common(by_host)
    return {
        "same": [f"{part} {version}" for part, version in alike.items()],
        "differ": [host_versions.difference(part, told)[:LINE] for part, told in different.items()][:MOST_DIFFERENT],
        "fix": host_versions.FIX,
    }


def checks(kept: Mapping[str, Any], now: float) -> dict[str, Any]:
    """What doctor.yml and drift.yml found last: ``lines`` in the words of status.yml, and the findings themselves."""
    doctor, drift = _mapping(kept.get("doctor")), _mapping(kept.get("drift"))
    return {
        "lines": [{"text": text, "fine": fine} for text, fine in last_checks.judged(kept, now)],
        "findings": list(doctor.get("findings") or ()),
        "drift": list(drift.get("lines") or ()),
    }


def _word(told: str) -> str:
    """A label's value that a host gave, for people."""
    return printable(told)[:MOST_PARTS]


def _pair(found: Samples, all_of_it: str, left: str) -> dict[str, float] | None:
    whole, free = _first(found, all_of_it), _first(found, left)
    return None if whole is None or free is None else {"total": whole, "left": free}


def _traffic(found: Samples, host_name: str, device: str, rates: Rates, now: float) -> float | None:
    """Bytes a second both ways.  RDMA shows in no counter of the netdev, so the larger of the two counts."""
    seen = []
    for ways in (
        ("sparkthor_link_rx_bytes_total", "sparkthor_link_tx_bytes_total"),
        ("sparkthor_rdma_port_receive_bytes_total", "sparkthor_rdma_port_transmit_bytes_total"),
    ):
        values = [value for way in ways for labels, value in found.get(way, ()) if labels.get("netdev") == device]
        rate = rates.per_second(f"{host_name} {device} {ways[0]}", sum(values) if values else None, now)
        if rate is not None:
            seen.append(rate)
    return max(seen) if seen else None


#: by which requests without a known key are counted
STRANGER = "-"
PERIODS = ("minute", "month")
_KEY_NAME = re.compile(r"[a-z0-9_-]{1,32}")


def keys(text: str, known: Sequence[str] = (), blocked: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What each key asked for since the exporter of a head began to count, and its limits of tokens.

    ``known``: names that the front proxy has keys for; ``blocked``: of those that it refuses all the same.
    """
    found = samples(text, HOST)
    by_key: dict[str, dict[str, Any]] = {}

    def of(labels: Mapping[str, str]) -> dict[str, Any]:
        name = labels.get("key", STRANGER)
        # the exporter is the serving user's, who may write what no key is called, and of that as much as it likes
        if name not in (*known, *by_key) and (not _KEY_NAME.fullmatch(name) or len(by_key) >= MOST_PARTS):
            name = STRANGER
        return by_key.setdefault(name, {"requests": 0, "refused": 0, "tokens": 0, "limits": {}})

    for labels, value in found.get("sparkthor_front_requests_total", ()):
        of(labels)["requests"] += int(value)
        if labels.get("status", "")[:1] in ("4", "5"):
            of(labels)["refused"] += int(value)
    for name in ("sparkthor_front_completion_tokens_total", "sparkthor_front_prompt_tokens_total"):
        for labels, value in found.get(name, ()):
            of(labels)["tokens"] += int(value)
    for labels, value in found.get("sparkthor_front_key_tokens_limit", ()):
        if labels.get("period") in PERIODS:
            of(labels)["limits"].setdefault(labels["period"], {})["limit"] = int(value)
    for labels, value in found.get("sparkthor_front_key_tokens", ()):
        if labels.get("period") in PERIODS:
            of(labels)["limits"].setdefault(labels["period"], {})["used"] = int(value)
    # of a key without a limit there is nothing to compare with
    for own in by_key.values():
        own["limits"] = {period: both for period, both in own["limits"].items() if "limit" in both}
    for name in known:
        of({"key": name})
    more = {name: {"known": name in known, "blocked": name in known and name in blocked} for name in by_key}
    return [{"name": name, **own, **more[name]} for name, own in sorted(by_key.items())]


class GroupFacts(NamedTuple):
    """Of a serving group whose head this host is, or whose head answers."""

    name: str
    model: str
    #: of the watchdog's file; empty without one
    state: Mapping[str, Any]
    #: why a person keeps it stopped; None where nobody does
    stopped: str | None = None
    draining: bool = False
    on_demand: bool = False
    #: the hosts that it has, by name
    hosts: Sequence[str] = ()
    #: its loads, as they are kept
    loads: Sequence[Mapping[str, Any]] = ()


def group(facts: GroupFacts, metrics: str, rates: Rates, now: float) -> dict[str, Any]:
    """A serving group: what its watchdog says, and what its engine counts.  Seconds, shares, tokens a second."""
    told = facts.state
    seen = engine(metrics)
    rate = rates.per_second(f"{facts.name} tokens", seen["tokens"], now)
    answered = rates.per_second(f"{facts.name} first", seen["first_token_count"], now)
    waited = rates.per_second(f"{facts.name} first sum", seen["first_token_sum"], now)
    fraction, updated = _number(told.get("fraction")), _number(told.get("updated"))
    completion, ranks, load = (_mapping(told.get(name)) for name in ("completion", "ranks", "load"))
    drafted = seen["drafted"]
    state, problem = _state(facts, updated, now)
    return {
        "name": facts.name,
        "model": printable(facts.model)[:LINE],
        "hosts": list(facts.hosts),
        "state": state,
        "problem": problem,
        "detail": _line(told.get("detail")),
        "line": _line(told.get("line")),
        "progress": _line(told.get("progress")),
        "percent": None if fraction is None else round(100 * fraction),
        "healthy": bool(told.get("healthy")),
        # seconds until the first completion, and by how many former loads
        "left": _number(load.get("left")),
        "former": _number(load.get("former")),
        "loads": last_loads(facts.loads),
        "since": _number(told.get("since")),
        "age": None if updated is None else max(0.0, now - updated),
        "stopped": None if facts.stopped is None else _line(facts.stopped),
        "draining": facts.draining,
        "on_demand": facts.on_demand,
        "proof": {"age": _number(completion.get("seconds_ago")), "seconds": _number(completion.get("latency"))},
        "answers": _answers(told.get("answers")),
        "missing": _names(ranks.get("missing")),
        "without": _names(ranks.get("without")),
        "next_restart": _number(told.get("next_restart_in")),
        "running": seen["running"],
        "waiting": seen["waiting"],
        "cache": seen["cache"],
        "tokens_per_second": rate,
        "first_token": _quotient(waited, answered),
        "accepted": _quotient(seen["accepted"] or 0.0, drafted),
    }


def last_loads(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, float | None]]:
    """The newest five that loaded the same as the newest one: seconds, and when they had ended."""
    if not rows:
        return []
    same = [row for row in rows if all(row.get(key) == rows[-1].get(key) for key in ("engine", "model", "split"))]
    return [{"seconds": _number(row.get("seconds")), "ended": _number(row.get("ended"))} for row in same[-5:]]


def _quotient(part: float | None, of: float | None) -> float | None:
    """One by the other; None where that is no number that anybody can use."""
    found = part / of if part is not None and of else None
    return found if found is not None and abs(found) <= LARGEST else None


def _age(seconds: float) -> str:
    """A long time without its small parts."""
    hours = round(seconds / 3600)
    return f"{hours // 24} days" if hours > 48 else f"{hours} h" if seconds >= 5400 else loads.duration(seconds)


def _state(facts: GroupFacts, updated: float | None, now: float) -> tuple[str, str]:
    """A word for the state, and why it is ``unknown``.

    The words are the watchdog's, and ``stopped``, ``asleep``, ``draining``, ``unknown``.
    """
    if facts.stopped is not None:
        return "asleep" if facts.stopped.startswith("asleep: ") else "stopped", ""
    told = facts.state.get("state")
    if not facts.state:
        return ("asleep", "") if facts.on_demand else ("unknown", "Its watchdog has said nothing yet.")
    if facts.state.get("version") != watchdog.VERSION or not isinstance(told, str) or updated is None:
        return "unknown", "Its watchdog speaks another version than this page: run site.yml."
    if now - updated > OLD * 3:
        return "unknown", f"The last word of its watchdog is {_age(now - updated)} old."
    if updated - now > OLD * 3:
        return "unknown", f"The word of its watchdog is from {_age(updated - now)} ahead: a clock was set."
    return "draining" if facts.draining and facts.state.get("healthy") else printable(told)[:40], ""


def _number(value: Any) -> float | None:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if plain and abs(value) < 1e15 else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _line(value: Any) -> str:
    return printable(str(value))[:LINE] if isinstance(value, (str, int, float)) else ""


def _names(value: Any) -> list[str]:
    return [printable(str(one))[:80] for one in value[:64]] if isinstance(value, list) else []


def _answers(value: Any) -> dict[str, float | None] | None:
    if not isinstance(value, dict) or not value.get("asked"):
        return None
    return {"asked": _number(value.get("asked")), "right": _number(value.get("right"))}


class History:
    """An hour of a few series, a point each ``STEP`` seconds; a gap is null."""

    def __init__(self) -> None:
        self._points: dict[str, deque[float | None]] = {}
        self._slot: int | None = None

    def add(self, values: Mapping[str, float | None], now: float) -> None:
        """Keep these as the values of the current step.  A clock that jumps begins the history anew."""
        slot = int(now // STEP)
        if self._slot is None or not 0 <= slot - self._slot < POINTS:
            self._points.clear()
            self._slot = slot
        while self._slot < slot:
            self._slot += 1
            for series in self._points.values():
                series.append(None)
        for name, value in values.items():
            series = self._points.setdefault(name, deque([None], maxlen=POINTS))
            series[-1] = value

    def document(self) -> dict[str, Any]:
        """The series, the newest value last; ``slot`` is the number of its step since 1970."""
        series = {name: list(points) for name, points in sorted(self._points.items())}
        return {"step": STEP, "slot": self._slot, "series": series}

    def restore(self, document: Any) -> None:
        """Go on with what an earlier process kept; what is no history of this form is left alone."""
        told = _mapping(document)
        slot, series = told.get("slot"), _mapping(told.get("series"))
        if told.get("step") != STEP or not isinstance(slot, int) or isinstance(slot, bool) or len(series) > SERIES:
            return
        if not all(isinstance(points, list) and len(points) <= POINTS for points in series.values()):
            return
        self._slot = slot
        self._points = {name: deque(map(_number, points), maxlen=POINTS) for name, points in series.items()}


#: of a watchdog's line: what kind of news it is
_KINDS = (
    ("bad", re.compile(r"restart|failed|broken|lost|wedged|no answer|cannot", re.IGNORECASE)),
    ("warn", re.compile(r"degraded|waiting for|slow|drain|missing|stopped", re.IGNORECASE)),
    ("good", re.compile(r"serving", re.IGNORECASE)),
    ("busy", re.compile(r"loading|starting", re.IGNORECASE)),
)


def event(at: float, who: str, text: str) -> dict[str, Any]:
    """A line of the journal or of the audit, as news: ``at`` in seconds since 1970."""
    line = printable(text)[:LINE]
    kind = next((name for name, pattern in _KINDS if pattern.search(line)), "dot")
    return {"at": round(at, 3), "who": printable(who)[:60], "kind": kind, "text": line}


def wish_event(wish: Mapping[str, Any]) -> dict[str, Any]:
    """A wish that was written down, as news."""
    verb, group, told = (printable(str(wish.get(name) or ""))[:200] for name in ("do", "group", "reason"))
    words = [verb, *([f"of {group}"] if group else []), str(wish.get("state") or "")]
    text = " ".join(words) + (f": {told}" if told else "")
    if wish.get("state") in ("failed", "refused"):
        text += f" ({printable(str(wish.get('text') or ''))[:200]})"
    found = event(_number(wish.get("at")) or 0.0, str(wish.get("who") or ""), text)
    key = printable(str(wish.get("key") or ""))[:80]
    return {**found, "kind": "person", **({"key": key} if key else {})}


def state_of_metrics(text: str, now: float) -> dict[str, Any]:
    """What another head's exporter says of its watchdog, as that one's state file has it; empty without an answer."""
    prefix = "sparkthor_serving_"
    found = samples(
        text,
        [f"{prefix}{name}" for name in ("state", "healthy", "state_seconds", "completion_age_seconds", "rank_alive")],
    )
    state = next((labels.get("state") for labels, value in found.get(f"{prefix}state", ()) if value), None)
    if state is None:
        return {}
    seconds = _first(found, f"{prefix}state_seconds")
    return {
        "version": watchdog.VERSION,
        "state": state,
        "healthy": bool(_first(found, f"{prefix}healthy")),
        "since": None if seconds is None else now - seconds,
        "updated": now,
        "completion": {"seconds_ago": _first(found, f"{prefix}completion_age_seconds")},
        "ranks": {
            "missing": [labels.get("rank", "") for labels, value in found.get(f"{prefix}rank_alive", ()) if not value]
        },
    }
