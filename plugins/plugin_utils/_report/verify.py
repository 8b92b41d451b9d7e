# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What verify found, against which thresholds, and what follows from it.  Runs on the controller; pure.

A threshold is data: a default by kind of host, and the user's ``verify_thresholds`` above it.  A measurement that
could not be made is a failure with its reason, never a gap.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.versions import release
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import answers
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric_speed, outlook
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import half_or_lane
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.ring import PATCHES
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.toolchain import RING_NCCL

VERSION = 1
PASS, FAIL, INFO, UNPROVEN = "pass", "fail", "info", "not proven"
_ASK_HEAD = "make the head answer; the line of its host says how"
_PERFTEST = "sudo apt-get install perftest on both hosts, or verify.yml -e verify_install_perftest=true"

#: by kind of host; where two hosts measure together, the weaker one's count.  Sources: healthy values of a ConnectX-7
#: half are 92 to 97 Gb/s and of both about 190; NCCL's bus bandwidth at least 21.9 GB/s (10 on a ring), about 11 with
#: one half only, about 2 over sockets; a throttled NIC gives 1.6 or 13 Gb/s.
THRESHOLDS: dict[str, dict[str, float]] = {
    "spark": {
        "rdma_half_gbits": 85.0,
        "rdma_both_gbits": 165.0,
        "tcp_half_gbits": 15.0,
        "tcp_both_gbits": 20.0,
        "busbw_nccl_gbytes": 21.875,
        "busbw_nccl_ring_gbytes": 10.0,
        "busbw_nccl_tcp_gbytes": 0.8,
        "busbw_gloo_gbytes": 0.5,
        "latency_us": 500.0,
        "decode_fraction": 0.25,
        "ttft_seconds": 5.0,
        "batch_gain": 1.5,
        "answers_right": answers.SENSE,
    },
    "thor": {"tcp_half_gbits": 5.0, "tcp_both_gbits": 5.0, "busbw_nccl_tcp_gbytes": 0.5},
    "generic": {"tcp_half_gbits": 0.8, "tcp_both_gbits": 0.8, "busbw_nccl_tcp_gbytes": 0.1, "rdma_half_gbits": 8.0},
}
#: what a switch or LAN port gives at least of what it negotiated
LAN_FRACTION = 0.6


class VerifyError(ValueError):
    """A variable of verify cannot be used; the message names it."""


#: those that a link's speed decides, as they are at the full speed
BY_SPEED = ("rdma_both_gbits", "busbw_nccl_gbytes", "busbw_nccl_ring_gbytes")


def thresholds(kinds: Sequence[str], given: Any = None, speed: int = fabric_speed.FULL) -> dict[str, float]:
    """The weakest default of the given kinds at this speed of links in Gb/s, under the user's own values.

    One half of a cage reaches about 98 Gb/s on a link of 100 as well; both together share it.
    """
    known = THRESHOLDS["spark"]
    merged = dict(known)
    for name in known:
        values = [THRESHOLDS.get(kind, {}).get(name, known[name]) for kind in kinds or ["spark"]]
        merged[name] = max(values) if name in ("latency_us", "ttft_seconds") else min(values)
    for name in BY_SPEED:
        merged[name] *= speed / fabric_speed.FULL
    if given in (None, ""):
        return merged
    if not isinstance(given, Mapping):
        raise VerifyError(f"verify_thresholds: {given!r} is not a dictionary of names and numbers")
    for name, value in given.items():
        if name not in known:
            raise VerifyError(f"verify_thresholds: {name} is not known; possible: {', '.join(sorted(known))}")
        try:
            merged[name] = float(value)
        except (TypeError, ValueError) as error:
            raise VerifyError(f"verify_thresholds: {name}: {value!r} is not a number") from error
        if merged[name] < 0:
            raise VerifyError(f"verify_thresholds: {name}: {value!r} is negative")
    return merged


def cluster_limits(
    cluster: Mapping[str, Any], fabric: Mapping[str, Mapping[str, Any]], own: Any = None
) -> dict[str, float]:
    """Those of all hosts of a cluster together, by their kinds and the slowest of their planned links."""
    slowest = min((fabric_speed.of(fabric.get(host)) for host in cluster["hosts"]), default=fabric_speed.FULL)
    return thresholds(list(cluster["kinds"].values()), own, slowest)


# -- what follows ---------------------------------------------------------------------------------------------------


def line(
    check: str,
    where: str,
    verdict: str,
    value: Any = None,
    unit: str = "",
    threshold: float | None = None,
    note: str = "",
    fix: str = "",
) -> dict[str, Any]:
    return {
        "check": check,
        "where": where,
        "value": value,
        "unit": unit,
        "threshold": threshold,
        "verdict": verdict,
        "note": note,
        "fix": fix,
    }


def at_least(check: str, where: str, value: float, unit: str, least: float, note: str, fix: str) -> dict[str, Any]:
    good = value >= least
    return line(check, where, PASS if good else FAIL, value, unit, least, note, "" if good else fix)


def at_most(check: str, where: str, value: float, unit: str, most: float, note: str, fix: str) -> dict[str, Any]:
    good = value <= most
    return line(check, where, PASS if good else FAIL, value, unit, most, note, "" if good else fix)


def host_lines(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Hosts that did not answer and links that are not as planned: what everything below would trip over."""
    lines = []
    for host, state in status["hosts"].items():
        if not state["reachable"]:
            lines.append(line("host", host, FAIL, note="did not answer", fix=state["error"]))
            continue
        for link in state["links"]:
            half = f"{host} {link['netdev']} ({half_or_lane(link)})"
            for text, fix in link["problems"]:
                lines.append(line("link", half, FAIL, note=text, fix=fix))
    if not lines:
        count = sum(len(state["links"]) for state in status["hosts"].values())
        lines.append(line("link", f"{len(status['hosts'])} hosts", PASS, count, "ports", note="all as planned"))
    return lines


def link_least(
    how: str, both: bool, limits: Mapping[str, float], speeds: Sequence[float | None], lan: bool, own: Mapping[str, Any]
) -> float:
    name = f"{how}_{'both' if both else 'half'}_gbits"
    known = [speed for speed in speeds if speed]
    if lan and known and name not in own:
        return round(LAN_FRACTION * min(known), 2)
    return limits[name]


def where_of(test: Mapping[str, Any]) -> str:
    """The place that the lines of a measurement name."""
    paths = test["paths"]
    if len(paths) > 1:
        way = f"both halves{' of ' + test['cage'] if test.get('cage') else ''}"
    else:
        way = f"{half_or_lane(paths[0])} ({paths[0]['netdev']} to {paths[0]['peer_netdev']})"
    return f"{test['host']} to {test['peer']}, {way}"


def link_lines(
    tests: Sequence[Mapping[str, Any]],
    results: Mapping[str, Mapping[str, Any]],
    cluster: Mapping[str, Any],
    given: Mapping[str, Any],
    speeds: Mapping[str, Mapping[str, float | None]],
    fabric: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """One line a measurement, and more; ``speeds``: Gb/s that links negotiated, by host and NIC."""
    kinds, lines = cluster["kinds"], []
    # a Thor's lane may be of several fixed rates as well
    lan = cluster["topology"] == "lan" or all(kind == "thor" for kind in kinds.values())
    for test in tests:
        both = len(test["paths"]) > 1
        first = test["paths"][0]
        where = where_of(test)
        measured = results.get(test["id"])
        if measured is None:
            lines.append(line("bandwidth", where, FAIL, note="not measured", fix="see the task that measures"))
            continue
        if not both and "mtu" in measured:
            lines.append(_mtu_line(where, measured["mtu"], first))
        how = measured["how"]
        if "error" in measured:
            fix = "check cable, address and firewall of both ends (playbooks/status.yml)"
            lines.append(line("bandwidth", where, FAIL, note=measured["error"], fix=fix))
            continue
        slowest = min(fabric_speed.of(fabric.get(host)) for host in (test["host"], test["peer"]))
        limits = thresholds([kinds.get(test["host"], "spark"), kinds.get(test["peer"], "spark")], given, slowest)
        ends = [speeds.get(test["host"], {}).get(p["netdev"]) for p in test["paths"]]
        ends += [speeds.get(test["peer"], {}).get(p["peer_netdev"]) for p in test["paths"]]
        least = link_least(how, both, limits, ends, lan, given)
        note = "ib_write_bw" if how == "rdma" else "TCP streams"
        if how == "tcp" and test["how"] == "rdma":
            # TCP over these ports says nothing about RDMA, on which the plan rests
            note = "RDMA is not proven: perftest is not installed on both ends; TCP streams were measured"
            if measured["gbits"] >= least:
                lines.append(line("bandwidth", where, UNPROVEN, measured["gbits"], "Gb/s", least, note, _PERFTEST))
                continue
        lines.append(
            at_least("bandwidth", where, measured["gbits"], "Gb/s", least, note, _slow(measured["gbits"], how))
        )
    return lines


def _slow(gbits: float, how: str) -> str:
    if how == "rdma" and 10 <= gbits <= 16:
        return "13 Gb/s is a throttled NIC: power the host off, pull its plug for a minute, check the power supply"
    if how == "rdma" and 1 <= gbits <= 2.5:
        return "1.6 Gb/s is a throttled NIC: power the host off, pull its plug for a minute, check the power supply"
    return "try the other half and the other direction: the port that both slow lines share is the one to check"


def _mtu_line(where: str, mtu: int, path: Mapping[str, Any]) -> dict[str, Any]:
    wanted = path["wanted_mtu"]
    if mtu >= wanted:
        return line("path MTU", where, PASS, mtu, "bytes", wanted)
    note = "nothing passes" if mtu == 0 else f"larger packets are lost between {path['netdev']} and its other end"
    if mtu == 0:
        return line("path MTU", where, FAIL, mtu, "bytes", wanted, note, "check the cable and the address of both ends")
    fix = f"give both ends, and the switch between them, MTU {wanted} (fabric_mtu), or lower fabric_mtu everywhere"
    return line("path MTU", where, FAIL, mtu, "bytes", wanted, note, fix)


def shared_ports(lines: Sequence[Mapping[str, Any]], tests: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ports that every slow measurement of one half has in common, and no good one: where to look first."""
    slow: dict[tuple[str, str], int] = {}
    good: set[tuple[str, str]] = set()
    verdicts = {entry["where"]: entry["verdict"] for entry in lines if entry["check"] == "bandwidth"}
    for test in tests:
        if len(test["paths"]) != 1:
            continue
        path = test["paths"][0]
        where = where_of(test)
        ends = [(test["host"], path["netdev"]), (test["peer"], path["peer_netdev"])]
        for end in ends:
            if verdicts.get(where) == FAIL:
                slow[end] = slow.get(end, 0) + 1
            elif verdicts.get(where) in (PASS, UNPROVEN):
                good.add(end)
    suspects = [end for end, count in slow.items() if end not in good and count > 1]
    return [f"{host} {netdev}" for host, netdev in suspects]


def collective_lines(
    results: Mapping[str, Mapping[str, Any]],
    hosts: Sequence[str],
    topology: str,
    profile: str,
    fabric: Mapping[str, Mapping[str, Any]],
    limits: Mapping[str, float],
) -> list[dict[str, Any]]:
    """Bus bandwidth, latency, and over which network it went."""
    where = f"{len(hosts)} ranks"
    # two hosts of a ring that serve by themselves are a pair
    ringed = topology == "ring" and len(hosts) > 2
    errors = {host: results[host]["error"] for host in hosts if results.get(host, {}).get("error")}
    absent = [host for host in hosts if host not in results]
    if absent or errors:
        told = [f"{host}: {text}" for host, text in errors.items()] + [f"{host}: no result" for host in absent]
        fix = "is the engine installed, do all ranks reach the head's control address?"
        return [line("all-reduce", where, FAIL, note="; ".join(told)[:600], fix=fix)]
    first = results[hosts[0]]
    rows = first["rows"]
    backend = first["backend"]
    lines = []
    if not all(results[host].get("right") for host in hosts):
        lines.append(
            line("all-reduce", where, FAIL, note="the sum of the ranks is wrong", fix="same engine everywhere?")
        )
    best = max(rows, key=lambda row: row["busbw_gbytes"])
    name = "busbw_gloo_gbytes"
    if backend == "nccl":
        name = "busbw_nccl_tcp_gbytes" if profile == "tcp" else "busbw_nccl_gbytes"
        if profile != "tcp" and ringed:
            name = "busbw_nccl_ring_gbytes"
    value = round(best["busbw_gbytes"], 4)
    fix = "about 11 GB/s is one half only, about 2 is sockets: see the transport and the links above"
    lines.append(
        at_least("all-reduce", f"{where}, {size(best['bytes'])}", value, "GB/s bus", limits[name], backend, fix)
    )
    latency = round(min(rows, key=lambda row: row["bytes"])["seconds"] * 1e6, 1)
    lines.append(
        at_most(
            "latency",
            f"{where}, {size(rows[0]['bytes'])}",
            latency,
            "µs",
            limits["latency_us"],
            f"{backend} all-reduce",
            "something else uses the links or the CPUs; on a LAN raise verify_thresholds latency_us",
        )
    )
    for host in hosts:
        lines.append(transport_line(host, results[host], profile, fabric[host]))
    if ringed and backend == "nccl":
        lines += [nccl_line(host, results[host], fabric[host].get("env") or {}) for host in hosts]
    return lines


def nccl_line(host: str, found: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """On a ring NCCL has to know which port leads to which neighbour, as the engine's own library says it can.

    Of a patch that the owner names a library knows the variable by name, and one without the patch does not.
    """
    version = str(found.get("nccl") or "")
    good = release(version) >= release(RING_NCCL)
    fix = "" if good else "use an engine with a newer NCCL: site.yml with another lock or image"
    note = f"a ring needs {RING_NCCL} or newer, which routes by subnet"
    if patch := next((name for name in PATCHES if name in env), ""):
        libraries = found.get("nccl_libraries") or {}
        stock = [path for path, names in libraries.items() if patch not in names]
        if stock:
            good, note = (
                False,
                f"{note}; {', '.join(stock)} does not know {patch}, the patch that fabric_nccl_patch names",
            )
            fix = fix or "use an engine whose library has that patch, or leave fabric_nccl_patch out"
        else:
            note += f"; {', '.join(libraries)} knows {patch}" if libraries else f"; whether it has {patch} is unknown"
    return line("NCCL", host, PASS if good else FAIL, version or "unknown", note=note, fix=fix)


def collective_not_run(hosts: Sequence[str], plan: Mapping[str, Any]) -> dict[str, Any] | None:
    """The line that stands for the all-reduce where it was not run; None if all ranks could."""
    away = [host for host in hosts if host not in plan["reached"]]
    if away:
        return line("all-reduce", "all ranks", FAIL, note=f"not run: {', '.join(away)} did not answer")
    bare = [host for host in hosts if host not in plan["with_engine"]]
    if bare:
        note = f"not run: no engine with torch on {', '.join(bare)}"
        return line("all-reduce", "all ranks", FAIL, note=note, fix="run site.yml")
    return None


def transport_line(host: str, measured: Mapping[str, Any], profile: str, planned: Mapping[str, Any]) -> dict[str, Any]:
    """NCCL's own word where it ran; for Gloo the NIC that the bytes left by."""
    if measured["backend"] == "nccl":
        log = measured["log"]
        wanted = "Socket" if profile == "tcp" else "IB"
        note = f"NET/{log['network']}" if log["network"] else "NCCL's log names no network"
        detail = ", ".join(log["ports"] or log["netdevs"])
        note += f" over {detail}" if detail else ""
        if log["network"] != wanted:
            fix = (
                "NCCL_IB_DISABLE=1 is set somewhere (playbooks/site.yml --tags nccl_conf)"
                if log["ib_disabled"]
                else "check /etc/sparkthor/fabric.env, NCCL_IB_HCA and ibv_devices on this host"
            )
            return line("transport", host, FAIL, log["network"], note=f"{note}, not {wanted}", fix=fix)
        planned_devices = {link["device"] for link in planned["links"] if link.get("device")}
        used = {port.partition(":")[0] for port in log["ports"]}
        if wanted == "IB" and planned_devices and not planned_devices <= used:
            lacking = ", ".join(sorted(planned_devices - used))
            fix = "half of the bandwidth is lost: check this device's cable, GID and NCCL_IB_HCA"
            return line("transport", host, FAIL, log["network"], note=f"{note}, without {lacking}", fix=fix)
        return line("transport", host, PASS, log["network"], note=note)
    sent = {name: count for name, count in measured.get("sent", {}).items() if count > 0}
    total = sum(sent.values())
    wanted = planned["control_netdev"]
    share = sent.get(wanted, 0) / total if total else 0.0
    most = max(sent, key=lambda name: sent[name], default="nothing")
    note = f"gloo, {100 * share:.0f} % of {size(total)} left by {wanted}"
    if share < 0.5:
        fix = "GLOO_SOCKET_IFNAME in /etc/sparkthor/fabric.env; the host's own name must not mean 127.0.0.1"
        return line("transport", host, FAIL, most, note=f"{note}, most by {most}", fix=fix)
    return line("transport", host, PASS, wanted, note=note)


def ray_lines(status: Mapping[str, Any], fabric: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    ray = status["ray"]
    if status["serving"].get("executor") == "mp":
        return [line("ray", "cluster", INFO, note="not used: vllm_serve_executor is mp")]
    if ray["state"] in ("absent", "down", "unknown"):
        fixes = {"absent": "run site.yml", "unknown": _ASK_HEAD}
        fix = fixes.get(ray["state"], "journalctl -u sparkthor-ray on the head")
        return [line("ray", "cluster", FAIL, ray["state"], note=ray["line"], fix=fix)]
    lines = []
    for host, planned in fabric.items():
        wanted = planned["control_address"]
        address = ray["alive"].get(host)
        if address == wanted:
            lines.append(line("ray", host, PASS, address, note=f"alive on {planned['control_netdev']}"))
            continue
        note = f"not alive on {wanted}" if address is None else f"alive on {address}, not on {wanted}"
        fix = next((item["fix"] for item in ray["problems"] if item.get("node") == host), "run site.yml --tags ray")
        lines.append(line("ray", host, FAIL, address, note=note, fix=fix))
    for stranger in ray["strangers"]:
        lines.append(line("ray", stranger.get("name", "?"), FAIL, stranger.get("address"), note="not expected here"))
    return lines


def serving_lines(
    measured: Mapping[str, Any] | None, bound: float | None, why: str, limits: Mapping[str, float]
) -> list[dict[str, Any]]:
    where = "API"
    if measured is None:
        return [line("completion", where, FAIL, note="not asked: the head did not answer", fix=_ASK_HEAD)]
    if "completion" not in measured:
        note = measured.get("error", "no answer")
        return [line("completion", where, FAIL, note=note, fix="playbooks/status.yml, then playbooks/doctor.yml")]
    done = measured["completion"]
    good = done["tokens"] > 0
    lines = [
        line("completion", where, PASS if good else FAIL, done["tokens"], "tokens", 1, f"in {done['seconds']:.2f} s")
    ]
    told = measured.get("answers")
    if told:
        least = limits["answers_right"] * told["asked"]
        note = f"wrong: {told['wrong']}" if told["wrong"] else ""
        lines.append(
            at_least("answers", "simple tasks", told["right"], f"of {told['asked']}", least, note, answers.fix())
        )
    runs = measured["streams"]
    if measured.get("error"):
        lines.append(line("throughput", where, FAIL, note=measured["error"], fix="journalctl -u sparkthor-vllm"))
    single = runs.get("1")
    if single:
        fix = "is another client busy? long queues and cold caches show here first"
        lines.append(at_most("TTFT", "1 stream", single["ttft_seconds"], "s", limits["ttft_seconds"], "median", fix))
        speed = single["decode_tokens_per_second"]
        if bound:
            fraction = limits["decode_fraction"]
            share = f"{100 * speed / bound:.2g} % of the bound {outlook.most(bound)} tokens/s"
            note = f"{share} (memory bandwidth / bytes per token)"
            fix = "see transport and bandwidth above; enforce-eager, a desktop or swap cost as much"
            lines.append(at_least("decode", "1 stream", speed, "tokens/s", round(fraction * bound, 3), note, fix))
        else:
            lines.append(line("decode", "1 stream", INFO, speed, "tokens/s", note=f"no bound: {why}"))
    eight = runs.get("8")
    if eight:
        lines.append(
            line("TTFT", "8 streams", INFO, eight["ttft_seconds"], "s", note=f"longest {eight['ttft_max_seconds']:g} s")
        )
        least = round(limits["batch_gain"] * single["tokens_per_second"], 3) if single else 0.0
        lines.append(
            at_least(
                "throughput",
                "8 streams",
                eight["tokens_per_second"],
                "tokens/s",
                least,
                f"{limits['batch_gain']:g} times one stream",
                "max-num-seqs too low, or the KV cache is too small for 8 sequences",
            )
        )
    return lines


def size(count: float) -> str:
    for unit, limit in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if count >= limit:
            return f"{count / limit:.3g} {unit}"
    return f"{count:.0f} B"


# -- history and table ----------------------------------------------------------------------------------------------


def with_history(lines: Sequence[dict[str, Any]], earlier: Sequence[Mapping[str, Any]]) -> None:
    """Put the value of the newest earlier run beside each line's."""
    known: dict[tuple[str, str], Any] = {}
    for run in earlier:
        for entry in run.get("lines", []):
            if entry.get("value") is not None:
                known[(entry["check"], entry["where"])] = entry["value"]
    for entry in lines:
        entry["before"] = known.get((entry["check"], entry["where"]))


def read_history(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Earlier results, oldest first; a file that is torn or of another kind is passed over."""
    runs = []
    for text in texts:
        try:
            run = json.loads(text)
        except ValueError:
            continue
        if isinstance(run, dict) and isinstance(run.get("lines"), list) and run.get("version") == VERSION:
            runs.append(run)
    return sorted(runs, key=lambda run: str(run.get("taken", "")))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def text(document: Mapping[str, Any]) -> str:
    rows = [["", "CHECK", "WHERE", "MEASURED", "NEEDED", "BEFORE", "NOTE"]]
    for entry in document["lines"]:
        unit = f" {entry['unit']}" if entry["unit"] else ""
        sign = "<= " if entry["check"] in ("latency", "TTFT") else ">= "
        rows.append(
            [
                {PASS: "ok", FAIL: "FAIL", INFO: "-"}.get(entry["verdict"], entry["verdict"]),
                entry["check"],
                entry["where"],
                _cell(entry["value"]) + (unit if entry["value"] is not None else ""),
                sign + _cell(entry["threshold"]) if entry["threshold"] is not None else "",
                _cell(entry.get("before")) if entry.get("before") is not None else "",
                entry["note"][:110],
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    out = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    failed = [entry for entry in document["lines"] if entry["verdict"] == FAIL]
    out.append("")
    if failed:
        out.append(f"{len(failed)} of {len(document['lines'])} lines are below what is needed:")
        out += [f"  {entry['check']}, {entry['where']}: {entry['fix'] or entry['note']}" for entry in failed]
        if document.get("suspects"):
            out.append("  common to the slow measurements: " + ", ".join(document["suspects"]))
    unproven = [entry for entry in document["lines"] if entry["verdict"] == UNPROVEN]
    if unproven:
        out.append(f"{len(unproven)} of {len(document['lines'])} lines are not proven: {unproven[0]['fix']}")
    if not failed and not unproven:
        out.append(f"all {len(document['lines'])} lines hold")
    return "\n".join(out)
