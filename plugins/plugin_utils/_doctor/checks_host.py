# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks of hosts: reachable, alike, memory, disks, clocks."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator, Sequence

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import boots
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.verdict import gib
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import limits, pcie_errors
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import (
    Case,
    Evidence,
    Serve,
    check,
    environments,
    hosts_read,
    memory_share,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.diagnosis import Hit
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import host_gpu, host_name
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import host_check

#: seconds that the clocks of two hosts may be apart
SKEW: t.Final = 5.0


def _engine_runs(evidence: Evidence) -> bool:
    return any(process["program"] in (*registry.ENGINES, "worker") for process in evidence.get("processes") or ())


@check
def host_unreachable(case: Case) -> Iterator[Hit]:
    for host, reason in case.unreachable.items():
        cause, fix = case.contact.get(host, ("", ""))
        yield Hit(host, [reason.strip().split("\n")[0][:300] or "no answer"], cause=cause, fix=fix)


@check
def host_unreadable(case: Case) -> Iterator[Hit]:
    for host, reason in case.unreadable.items():
        said = [line[:300] for line in reason.strip().splitlines()[-3:]] or ["the answer was empty"]
        cause, fix = case.contact.get(host, ("", ""))
        yield Hit(host, said, cause=cause, fix=fix)


@check
def no_cluster(case: Case) -> Iterator[Hit]:
    if not case.hosts and not case.logs_only:
        yield Hit("", ["the inventory has no host in group cluster"])


@check
def plan_impossible(case: Case) -> Iterator[Hit]:
    if case.hosts and case.plan_error:
        yield Hit("", [line.strip(" -") for line in case.plan_error.splitlines() if line.strip()][:6])


@check
def known_bad_kernel(case: Case) -> Iterator[Hit]:
    for host, _evidence in hosts_read(case):
        for problem in host_check.known_bad_problems(host, case.node(host), host_check.KNOWN_BAD):
            yield Hit(host, [problem.what], fix=problem.fix)


@check
def kernel_keeps_memory(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        node, memory = case.node(host), evidence.get("memory") or {}
        # an abridged output may lack one of them
        if {"CmaTotal", "CmaFree"} <= set(memory):
            node = {**node, "cma": {"total": memory["CmaTotal"], "free": memory["CmaFree"]}}
        for problem in host_check.handover_problems(host, node):
            yield Hit(host, [problem.what], fix=problem.fix)


@check
def ota_torn(case: Case) -> Iterator[Hit]:
    for host, _evidence in hosts_read(case):
        for problem in host_check.torn_problems(host, case.node(host)):
            yield Hit(host, [problem.what])


@check
def boot_cut(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        before = evidence.get("previous_boot") or {}
        if what := boots.told(before, float(evidence["ended"])):
            yield Hit(host, [what, *(f"last line: {line}" for line in before["last"][-1:])])


@check
def pcie_errors_counted(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        for what in pcie_errors.told(evidence.get("pcie_errors") or {}):
            yield Hit(host, [what])


@check
def memory_left(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        memory = evidence.get("memory") or {}
        total, available = memory.get("MemTotal", 0), memory.get("MemAvailable", 0)
        if "MemAvailable" in memory and limits.memory_low(total, available):
            yield Hit(host, [f"MemAvailable {gib(available)} of {gib(total)}"])


@check
def gpu_missing(case: Case) -> Iterator[Hit]:
    for host, _evidence in hosts_read(case):
        what, fix = host_gpu.missing(case.node(host))
        if what:
            yield Hit(host, [what], fix=fix)


@check
def gpu_slowed(case: Case) -> Iterator[Hit]:
    read = {host: evidence.get("gpus") or () for host, evidence in hosts_read(case)}
    held = host_gpu.held_back(read, {host: host_gpu.limit_mhz(case.node(host)) for host in read})
    for host in read:
        if host in held:
            yield Hit(host, held[host])


@check
def versions_differ(case: Case) -> Iterator[Hit]:
    """Kernel, driver, firmware and image of the hosts of one kind."""
    plan = {
        host: {"kind": case.node(host).get("kind", "generic"), "addressing": "managed", "links": []}
        for host, _evidence in hosts_read(case)
        if case.node(host)
    }
    nodes = {host: case.node(host) for host in plan}
    probes = {host: {"rdma": case.evidence[host].get("rdma") or {}} for host in plan}
    for problem in host_check.parity_problems(plan, nodes, probes):
        for host in problem.host.split(", "):
            yield Hit(host, [problem.what])


@check
def engine_differs(case: Case) -> Iterator[Hit]:
    # serving groups may have different engines
    for members in [hosts for _group, hosts, _plan in case.parts] or [case.hosts]:
        yield from _engines_of(case, members)


def _engines_of(case: Case, members: Sequence[str]) -> Iterator[Hit]:
    """What of the engine is not the same on hosts that serve together."""
    for name in ("python", "ray", *registry.PACKAGES, "torch"):
        by_value: dict[str, list[str]] = {}
        for host, evidence in hosts_read(case):
            engine = evidence.get("engine") or {}
            if not engine.get("present") or host not in members:
                continue
            # the same release built for another machine carries another local part
            by_value.setdefault(str(engine["versions"].get(name, "none")).partition("+")[0], []).append(host)
        if len(by_value) < 2:
            continue
        usual = max(by_value, key=lambda value: len(by_value[value]))
        for value, hosts in by_value.items():
            if value != usual and not (name == "ray" and value == "none"):
                for host in hosts:
                    yield Hit(host, [f"{name} is {value}, but {usual} on {', '.join(by_value[usual])}"])


@check
def host_renamed(case: Case) -> Iterator[Hit]:
    for host, _evidence in hosts_read(case):
        if text := host_name.told(case.node(host)):
            yield Hit(host, [text])


@check
def hostname_loopback(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        node = case.node(host)
        pinned = any("GLOO_SOCKET_IFNAME" in environment for _where, environment in environments(evidence))
        # Debian and Ubuntu write that line themselves: it hurts only where nothing pins Gloo to a NIC
        if node.get("hostname_on_loopback") and not pinned and len(case.hosts) > 1:
            name = node.get("hostname", host)
            lines = ((evidence.get("files") or {}).get("hosts") or "").splitlines()
            line = next((text.strip() for text in lines if text.startswith("127.") and name in text.split()), "")
            yield Hit(host, [f"/etc/hosts: {line or name}", "GLOO_SOCKET_IFNAME is set nowhere"])


@check
def desktop_running(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        units = evidence.get("units") or {}
        # graphical.target alone holds nothing: a host without a display manager is none the poorer for it
        manager = units.get("display-manager.service", {})
        active = [manager.get("Id") or "display-manager.service"] if manager.get("ActiveState") == "active" else []
        if active:
            target = (evidence.get("desktop") or {}).get("default_target") or "unknown"
            yield Hit(host, [f"{', '.join(active)} active, default target {target}"])


@check
def swap_in_use(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        memory = evidence.get("memory") or {}
        # an abridged output may lack what is free
        total = memory.get("SwapTotal", 0)
        used = total - memory.get("SwapFree", total)
        if used > limits.SWAPPED:
            yield Hit(host, [f"{gib(used)} of {gib(total)} swap used"])


def _asking(case: Case) -> list[Serve]:
    """Our configurations that ask for a share of memory, and not for a cache of a fixed size."""
    return [
        serve
        for serve in case.serves
        if serve.ours and 0 < memory_share(serve) <= 1 and not serve.get("kv-cache-memory-bytes")
    ]


def _wanted_share(case: Case, host: str) -> float:
    """The largest share that the host's own group asks for; 0 where it asks for none."""
    own = [serve for serve in _asking(case) if not serve.group and serve.host in case.together(host)]
    return max(map(memory_share, own), default=0.0)


@check
def memory_short(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        memory = evidence.get("memory") or {}
        total, available = memory.get("MemTotal", 0), memory.get("MemAvailable", 0)
        beside = [(serve.group, memory_share(serve)) for serve in _asking(case) if serve.group and serve.host == host]
        for group, share in [("", _wanted_share(case, host)), *beside]:
            if share and total and not _engine_runs(evidence) and available < share * total:
                told = f"MemAvailable {gib(available)}, gpu-memory-utilization {share:g} "
                told += f"of the group {group} " if group else ""
                told += f"asks for {gib(share * total)} of {gib(total)}, and no engine runs here"
                yield Hit(host, [told])


@check
def page_cache(case: Case) -> Iterator[Hit]:
    """Available memory suffices only by counting the page cache, and the engine fails to start."""
    for host, evidence in hosts_read(case):
        memory = evidence.get("memory") or {}
        total = memory.get("MemTotal", 0)
        unit = (evidence.get("units") or {}).get("sparkthor-vllm.service") or {}
        failing = unit.get("ActiveState") in ("failed", "activating") and int(unit.get("NRestarts") or 0) > 0
        head_fails = failing or any(
            ((other.get("units") or {}).get("sparkthor-vllm.service") or {}).get("ActiveState") == "failed"
            for name, other in hosts_read(case)
            if name in case.together(host)
        )
        wanted = _wanted_share(case, host) * total
        if head_fails and wanted and memory.get("MemFree", 0) < wanted <= memory.get("MemAvailable", 0):
            yield Hit(
                host,
                [
                    f"MemFree {gib(memory.get('MemFree', 0))}, page cache {gib(memory.get('Cached', 0))}, "
                    f"the engine asks for {gib(wanted)}"
                ],
            )


@check
def disk_full(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        for disk in evidence.get("disks") or ():
            if not disk["total"]:
                continue
            if limits.disk_low(disk["total"], disk["free"]):
                yield Hit(host, [f"{disk['path']}: {gib(disk['free'])} of {gib(disk['total'])} free"])
            elif disk["inodes"] and disk["inodes_free"] / disk["inodes"] < 0.01:
                yield Hit(host, [f"{disk['path']}: {disk['inodes_free']} of {disk['inodes']} inodes free"])


@check
def disk_read_only(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        disks = [disk["path"] for disk in evidence.get("disks") or () if disk.get("read_only")]
        if disks:
            yield Hit(host, [f"nothing can be written below {', '.join(disks)}"])


@check
def clock_skew(case: Case) -> Iterator[Hit]:
    """Clocks that are certainly apart, whatever part of the time between question and answer was the way."""
    clocks = {host: case.clocks[host] for host in case.hosts if host in case.clocks}
    apart: dict[str, list[str]] = {}
    for host, (low, high) in clocks.items():
        for other, (their_low, their_high) in clocks.items():
            gap = max(low - their_high, their_low - high)
            if other != host and gap > SKEW:
                apart.setdefault(host, []).append(other)
    while apart:
        odd = max(apart, key=lambda host: (len(apart[host]), host != case.hosts[0]))
        others = apart.pop(odd)
        low, high = clocks[odd]
        middle = sorted(sum(clocks[other]) / 2 for other in others)[len(others) // 2]
        ahead = (low + high) / 2 - middle
        yield Hit(
            odd,
            [f"its clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} {', '.join(others)}"],
        )
        for other in others:
            if other in apart:
                apart[other] = [name for name in apart[other] if name != odd]
                if not apart[other]:
                    del apart[other]
