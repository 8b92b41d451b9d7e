# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status document as one screen of text.  Runs on the controller; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import host_versions, state_words
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import half_or_lane

GIB = 1024**3


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    whole = int(seconds)
    for size, name, smaller_size, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller_size
            return f"{whole // size} {name}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _rate(value: float | None) -> str:
    return "?" if value is None else f"{value:g}G"


def _units(found: Mapping[str, Any]) -> str:
    shown = []
    for name, unit in found["units"].items():
        if unit["active"] in ("active", "reloading"):
            continue
        if unit["active"] == "inactive" and unit["enabled"] not in ("enabled",):
            continue
        shown.append(f"{name.removeprefix('sparkthor-')} {unit['active']}")
    if not found["units"]:
        return "none"
    running = [name.removeprefix("sparkthor-") for name, unit in found["units"].items() if unit["active"] == "active"]
    return ", ".join(shown) or " ".join(running) or "none"


def gpu_words(found: Mapping[str, Any]) -> str:
    """Temperature and power of a host's GPUs, as far as the driver has numbers."""
    shown = [
        " ".join(f"{gpu[key]:.0f}{unit}" for key, unit in (("celsius", "°C"), ("watts", "W")) if gpu[key] is not None)
        for gpu in found.get("gpu_state") or ()
    ]
    return ", ".join(filter(None, shown)) or "-"


def render(status: Mapping[str, Any], limit: int = 12) -> str:
    """At most a screen: serving, hosts, links, versions, and what is wrong; ``limit`` problems at most."""
    lines = [*_serving_lines(status), "", *table(_host_rows(status))]
    links = _link_rows(status)
    if len(links) > 1:
        lines += ["", *table(links)]
    versions = common_versions(status)
    if versions:
        lines += ["", "versions: " + ", ".join(f"{name} {version}" for name, version in versions.items())]
    ends = [
        f"{host}: {found['previous_boot']}" for host, found in status["hosts"].items() if found.get("previous_boot")
    ]
    if ends:
        lines += ["", *ends]
    waiting = {host: found.get("security_updates") for host, found in status["hosts"].items()}
    told = ", ".join(f"{host} {number}" for host, number in waiting.items() if number)
    if told:
        lines += ["", f"security updates: {told} (install them between playbooks/stop.yml and start.yml)"]
    return "\n".join([*lines, "", *_problem_lines(status["problems"], limit)])


def _serving_lines(status: Mapping[str, Any]) -> list[str]:
    cluster = status["cluster"]
    lines = []
    for name, one in (status.get("groups") or {"": {**status, "head": cluster["head"]}}).items():
        number, head = len(one.get("hosts") or ()) if name else len(cluster["hosts"]), one["head"]
        place = f"{name}: " if name else ""
        heading = f"{place}{cluster['topology'] or 'no plan'}, {number} hosts, head {head}"
        lines += _group_lines(heading, one["serving"], one["ray"])
    if virtual := status.get("virtual"):
        lines.append(f"virtual address {virtual['address']}: {' and '.join(virtual['holders']) or 'on no host'}")
    return lines


def _group_lines(heading: str, serving: Mapping[str, Any], ray: Mapping[str, Any]) -> list[str]:
    since = f" for {duration(serving['since_seconds'])}" if serving.get("since_seconds") else ""
    word = state_words.word(serving["state"], bool(serving.get("healthy")))
    lines = [f"{heading}: {word.upper()}{since}"]
    if serving.get("model"):
        split = f"TP={serving['tensor_parallel']} PP={serving['pipeline_parallel']}"
        newest = _newest_completion(serving.get("completion") or {})
        parts = [f"model {serving['model']}", split, serving.get("endpoint", ""), newest]
        lines.append("  " + ", ".join(part for part in parts if part))
    if serving.get("page"):
        lines.append(f"  page {serving['page']}")
    lines += [f"  {line}" for line in serving.get("checked") or ()]
    if serving.get("certificate"):
        lines.append(f"  certificate of the API, made on the head: SHA-256 {serving['certificate']}")
    if serving["state"] not in ("serving", "absent"):
        lines.append(f"  {serving['line'][:150]}")
    return [*lines, f"  Ray {ray['state']}: {ray['line'][:150]}"]


def _newest_completion(completion: Mapping[str, Any]) -> str:
    if completion.get("seconds_ago") is None:
        return ""
    latency = "" if completion.get("latency") is None else f" in {completion['latency']:.2f} s"
    return f"last completion {duration(completion['seconds_ago'])} ago{latency}"


def _ray_of(status: Mapping[str, Any], host: str) -> Mapping[str, Any]:
    own = [one["ray"] for one in (status.get("groups") or {}).values() if host in one["hosts"]]
    found: Mapping[str, Any] = own[0] if own else status["ray"]
    return found


def _host_rows(status: Mapping[str, Any]) -> list[list[str]]:
    rows = [["HOST", "KIND", "UP", "MEMORY FREE", "DISK FREE", "LOAD", "GPU", "RAY", "UNITS"]]
    for host, status_of in status["hosts"].items():
        name = host + ("*" if status_of["role"] == "head" else "")
        ray = _ray_of(status, host)
        if not status_of["reachable"]:
            seen = "not asked" if status_of["error"].startswith("not asked") else "no answer"
            rows.append([name, status_of["kind"] or "-", seen, "-", "-", "-", "-", "-", "-"])
            continue
        memory, disk = status_of["memory"], status_of["disk"]
        member = "alive" if host in ray.get("alive", {}) else ("-" if ray["state"] == "absent" else "absent")
        rows.append(
            [
                name,
                status_of["kind"],
                duration(status_of["uptime_seconds"]),
                f"{memory['available'] / GIB:.1f} of {memory['total'] / GIB:.1f} GiB",
                f"{disk['free'] / GIB:.0f} GiB",
                f"{status_of['load'][0]:.1f}" if status_of["load"] else "-",
                gpu_words(status_of),
                member,
                _units(status_of),
            ]
        )
    return rows


def _link_rows(status: Mapping[str, Any]) -> list[list[str]]:
    rows = [["LINK", "HALF", "STATE", "SPEED", "MTU", "ADDRESS", "TO"]]
    for host, found in status["hosts"].items():
        for link in found["links"]:
            peer = f"{link['peer']} {link['peer_netdev']}".strip() or status["cluster"]["topology"]
            rows.append(
                [
                    f"{host} {link['netdev']}",
                    half_or_lane(link).removeprefix("half "),
                    link["state"].upper() if link["state"] != "up" else "up",
                    _rate(link["rate_gbits"]),
                    str(link["mtu"] or "-") + ("!" if link["planned_mtu"] not in (None, link["mtu"]) else ""),
                    link["address"],
                    peer,
                ]
            )
    return rows


def _problem_lines(problems: Sequence[Mapping[str, str]], limit: int) -> list[str]:
    if not problems:
        return ["nothing to fix"]
    lines = [f"{len(problems)} to fix:"]
    for item in problems[:limit]:
        lines.append(f"  {item['host']}: {item['text']}"[:160])
        lines.append(f"      -> {item['fix']}"[:320])
    if len(problems) > limit:
        lines.append(f"  and {len(problems) - limit} more (-e status_output=json shows all)")
    return lines


def common_versions(status: Mapping[str, Any]) -> dict[str, str]:
    """What all hosts have in common, in the order a person asks for it."""
    told = {
        host: {**found["versions"], **{part: found[part] for part in ("python", "kernel", "driver")}}
        for host, found in status["hosts"].items()
        if found["reachable"]
    }
    return host_versions.common(told)
