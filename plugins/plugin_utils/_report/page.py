# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One self-contained page about the cluster: topology, memory, verify, doctor, versions.  Runs on the controller; pure.

No script, no font, no picture from anywhere: it opens from a mail, prints, and follows the reader's light or dark
scheme.  State is never told by colour alone.  This file says what stands on the page, report.html.j2 how; the template
escapes everything, because most of it came from a host.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import state_words
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import outlook
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import bench, screen, topology

GIB = 1024**3
#: who made a page, as the page itself says it
CABLES_GENERATOR = "sparkthor.cluster discover"


@functools.cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(os.path.abspath(__file__))),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def cables(drawing: Mapping[str, Any], title: str) -> str:
    """A page with the drawing alone, for who looks before there is a cluster."""
    template = _templates().get_template("cables.html.j2")
    return template.render(drawing=drawing, title=title, generator=CABLES_GENERATOR)


def budgets(status: Mapping[str, Any], memory: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """By rank: weights, cache, overhead and reserve in bytes; without a plan, used and available alone."""
    found = []
    # of a model that the plan does not know there is no cache to draw
    ranks = (memory or {}).get("ranks") or {}
    if ranks.get("memory_bytes") and None not in ranks["kv_cache_bytes"]:
        for index, host in enumerate(ranks["host"]):
            total = ranks["memory_bytes"][index] or 0
            budget = ranks["budget_bytes"][index] or 0
            weights = ranks["weights_bytes_per_rank"][index]
            cache = ranks["kv_cache_bytes"][index] or 0
            live = (status["hosts"].get(host) or {}).get("memory") or {}
            found.append(
                {
                    "host": host,
                    "total": total,
                    "weights": weights,
                    "cache": cache,
                    "overhead": max(0, budget - weights - cache),
                    "reserve": max(0, total - max(budget, weights)),
                    "available": live.get("available"),
                }
            )
        return found
    for host, item in status["hosts"].items():
        memory_now = item.get("memory")
        if memory_now:
            used = memory_now["total"] - memory_now["available"]
            found.append(
                {"host": host, "total": memory_now["total"], "used": used, "available": memory_now["available"]}
            )
    return found


#: the parts of a bar: key of a budget, class in report.css, name
_PLANNED = (("weights", "w", "weights"), ("cache", "k", "KV cache"), ("overhead", "o", "buffers and graphs"))
_MEASURED = (("used", "w", "used now"),)


def _memory(status: Mapping[str, Any], memory: Mapping[str, Any] | None, why: str) -> dict[str, Any]:
    rows = budgets(status, memory)
    planned = bool(rows) and "weights" in rows[0]
    parts = _PLANNED if planned else _MEASURED
    found: dict[str, Any] = {
        "parts": [{"kind": kind, "name": name} for _key, kind, name in parts],
        "spare": "reserve for the system" if planned else "available now",
        "verdict": "",
        "why": why or " ".join((memory or {}).get("reasons") or () if not planned else ()),
        "rows": [_memory_row(row, parts) for row in rows],
    }
    if planned and memory:
        verdict = str(memory.get("verdict", ""))
        text = f"{memory.get('max_tokens') or 0:,} tokens of cache, {memory.get('max_model_len') or 0:,} a sequence"
        bound = memory.get("decode_tokens_per_second_bound")
        if bound:
            text += f"; memory bandwidth allows one stream {outlook.most(bound)} tokens/s"
        kind = {"fits": "pass", "tight": "warn"}.get(verdict, "fail")
        found.update(verdict=verdict or "unknown", verdict_kind=kind, verdict_text=text)
    return found


def _memory_row(row: Mapping[str, Any], parts: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    words = [f"{name} {row[key] / GIB:.1f}" for key, _kind, name in parts]
    if "reserve" in row:
        words.append(f"reserve {row['reserve'] / GIB:.1f}")
    if row.get("available") is not None:
        words.append(f"available now {row['available'] / GIB:.1f}")
    return {
        "host": row["host"],
        "words": f"{', '.join(words)} of {row['total'] / GIB:.1f} GiB",
        "bars": [
            {"kind": kind, "percent": min(100.0, 100 * row[key] / (row["total"] or 1))} for key, kind, _name in parts
        ],
    }


def curve(values: Sequence[float]) -> list[tuple[float, float]]:
    """The points of a small curve of earlier values, oldest left; none where there is nothing to compare."""
    if len(values) < 2:
        return []
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return [
        (4 + 104 * index / (len(values) - 1), 21 - 17 * (value - low) / span if high > low else 13.0)
        for index, value in enumerate(values)
    ]


def history_of(runs: Sequence[Mapping[str, Any]], check: str, where: str) -> list[float]:
    """What one line of verify measured, run by run."""
    found = []
    for run in runs:
        for entry in run["lines"]:
            value = entry.get("value")
            if (entry["check"], entry["where"]) == (check, where) and isinstance(value, (int, float)):
                found.append(float(value))
    return found


def _verify(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    if not runs:
        return None
    last = runs[-1]
    return {
        "failed": sum(entry["verdict"] == "fail" for entry in last["lines"]),
        "taken": last["taken"],
        "runs": len(runs),
        "rows": [_verify_row(entry, runs) for entry in last["lines"]],
    }


def _verify_row(entry: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    known = {"pass": ("pass", "ok"), "fail": ("fail", "FAIL"), "not proven": ("warn", "not proven")}
    kind, verdict = known.get(entry["verdict"], ("info", "info"))
    value = entry["value"]
    shown = "" if value is None else (f"{value:g}" if isinstance(value, (int, float)) else str(value))
    sign = "≤ " if entry["check"] in ("latency", "TTFT") else "≥ "
    history = history_of(runs, entry["check"], entry["where"])
    told = ""
    if history:
        told = f"{len(history)} runs, from {min(history):g} to {max(history):g}, last {history[-1]:g}"
    return {
        "kind": kind,
        "verdict": verdict,
        "check": entry["check"],
        "where": entry["where"],
        "measured": f"{shown} {entry['unit']}".strip(),
        "needed": "" if entry["threshold"] is None else f"{sign}{entry['threshold']:g}",
        "points": curve(history),
        "told": told,
        "note": entry["note"],
        "fix": entry["fix"],
    }


def _speed(benchmarks: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    if not benchmarks:
        return None
    last = benchmarks[-1]
    return {
        "taken": last["taken"],
        "runs": len(benchmarks),
        "tool": last.get("tool", ""),
        "bound": outlook.most(last["bound"]) if last.get("bound") else "",
        "titles": [heading for heading, _key in bench.COLUMNS],
        "rows": [bench.cells(row) for row in last["rows"]],
        "slower": last.get("slower") or [],
    }


def _doctor(doctor: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if doctor is None:
        return None
    return {"time": doctor.get("time", ""), "findings": [_finding(item) for item in doctor.get("findings") or []]}


def _finding(item: Mapping[str, Any]) -> dict[str, Any]:
    hosts = item.get("hosts") or ([item["host"]] if item.get("host") else [])
    evidence = item.get("evidence") or []
    return {
        "severity": "error" if item.get("severity") == "error" else "warning",
        "title": item.get("title") or item.get("symptom") or item.get("rule", ""),
        "hosts": ", ".join(str(host) for host in hosts),
        "evidence": [_words(line) for line in ([evidence] if isinstance(evidence, str) else list(evidence)[:5])],
        "explained": [
            (name, _words(item[key]))
            for key, name in (("cause", "cause"), ("fix", "fix"), ("source", "source"))
            if item.get(key)
        ],
    }


def _words(value: Any) -> str:
    if isinstance(value, Mapping) and set(value) <= {"title", "url"}:
        return " ".join(str(value[key]) for key in ("title", "url") if value.get(key))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return "; ".join(_words(item) for item in value)
    return str(value)


def _host(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    if not found["reachable"]:
        return {"name": name, "error": found["error"]}
    units = ", ".join(f"{unit.removeprefix('sparkthor-')} {state['active']}" for unit, state in found["units"].items())
    cells = (
        name,
        f"{found['kind']}, {found['role']}",
        screen.duration(found["uptime_seconds"]),
        f"{found['memory']['available'] / GIB:.1f} GiB",
        f"{found['disk']['free'] / GIB:.0f} GiB",
        f"{found['load'][0]:.1f}" if found["load"] else "",
        screen.gpu_words(found),
        units or "none",
    )
    return {"name": name, "error": None, "cells": cells}


def page(
    status: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    doctor: Mapping[str, Any] | None,
    memory: Mapping[str, Any] | None,
    why_no_memory: str = "",
    benchmarks: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The whole page as HTML."""
    state = status["serving"]["state"]
    text = (
        _templates()
        .get_template("report.html.j2")
        .render(
            cluster=status["cluster"],
            serving=status["serving"],
            state_word=state_words.word(state, bool(status["serving"].get("healthy"))),
            state_kind="pass" if state == "serving" else ("info" if state in ("asleep", "absent") else "fail"),
            ray=status["ray"],
            taken=status["taken"],
            drawing=topology.drawing(status),
            problems=status["problems"],
            doctor=_doctor(doctor),
            memory=_memory(status, memory, why_no_memory),
            verify=_verify(runs),
            speed=_speed(benchmarks),
            hosts=[_host(name, found) for name, found in status["hosts"].items()],
            versions=screen.common_versions(status),
            differences=[
                (name, ", ".join(f"{host} {version or '-'}" for host, version in versions.items()))
                for name, versions in status["differences"].items()
            ],
        )
    )
    # most of it came from hosts: what hides or turns text in a browser is no part of the page
    return printable(text, lines=True)
