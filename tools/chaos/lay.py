# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How each kind of fault is laid on a serving lab and undone, and how all of them are undone at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparklab import LabError
from sparklab.identity import AVAILABLE_MB

from tools.chaos.schedule import Fault
from tools.faults import host_faults
from tools.faults.site import FRONT, RAY, VLLM, WATCHDOG, FaultError, Site

Deed = Callable[[Site, Fault], None]

#: every stopped process of a host goes on; one that the watchdog killed meanwhile is no failure
_WAKE = "ps -eo pid=,stat= | awk '$2 ~ /^T/ {print $1}' | xargs -r kill -CONT 2>/dev/null; true"
_DASHBOARD = r"dashboard/dashboard\.py|ray::Dashboard"


def nothing(_site: Site, _fault: Fault) -> None:
    """What was killed is started by the hosts themselves."""


def process(unit: str, pattern: str, signal: str = "KILL") -> Deed:
    def deed(site: Site, fault: Fault) -> None:
        pids = site.processes(fault.host, unit, pattern)
        if not pids:
            raise FaultError(f"{fault.host}: no process of {unit} matches {pattern}")
        for pid in pids:
            site.signal(fault.host, pid, signal)

    return deed


def main_process(*units: str, signal: str = "KILL") -> Deed:
    """Of the first of these units that runs on the host."""

    def deed(site: Site, fault: Fault) -> None:
        for unit in units:
            pid = int(site.shown(fault.host, unit, "MainPID") or 0)
            if pid:
                site.signal(fault.host, pid, signal)
                return
        raise FaultError(f"{fault.host}: none of {', '.join(units)} runs")

    return deed


def rank(signal: str) -> Deed:
    def deed(site: Site, fault: Fault) -> None:
        pids = site.ranks_on(fault.host)
        if not pids:
            raise FaultError(f"{fault.host}: no rank")
        site.signal(fault.host, pids[-1], signal)

    return deed


def wake(site: Site, fault: Fault) -> None:
    site.on(fault.host, _WAKE)


def power_on(site: Site, fault: Fault) -> None:
    names = [fault.host] if fault.host else []
    site.lab.boot(*names)
    site.lab.wait(*names)


def nics(site: Site, host: str) -> tuple[str, ...]:
    """The only NIC of a host that has no others; nothing = all data NICs."""
    there = site.lab.plan.host(host)
    return () if len(there.nics) > 1 else (there.management,)


def uncut(site: Site, fault: Fault) -> None:
    # what else was laid on this host's cables ends with it
    site.lab.fix(fault.host)


def management(site: Site, fault: Fault) -> None:
    site.lab.cut(fault.host, site.lab.plan.host(fault.host).management, silent=True)


def other_half(site: Site, fault: Fault) -> None:
    site.lab.cut(fault.host, host_faults.halves(site.lab, fault.host)[1])


LAY: Mapping[str, tuple[Deed, Deed]] = {
    "engine": (process(VLLM, "VLLM::EngineCore"), nothing),
    "service": (main_process(VLLM, RAY), nothing),
    "rank": (rank("KILL"), nothing),
    "wedge": (rank("STOP"), wake),
    "raylet": (process(RAY, "raylet/raylet "), nothing),
    "gcs": (process(RAY, "gcs_server"), nothing),
    "dashboard": (process(RAY, _DASHBOARD, "STOP"), wake),
    "watchdog": (main_process(WATCHDOG), nothing),
    "watchdog stopped": (main_process(WATCHDOG, signal="STOP"), wake),
    "front": (main_process(FRONT), nothing),
    "link": (lambda site, fault: site.lab.cut(fault.host, *nics(site, fault.host), silent=True), uncut),
    "carrier": (lambda site, fault: site.lab.cut(fault.host, *nics(site, fault.host)), uncut),
    "management": (management, uncut),
    "loss": (
        lambda site, fault: site.lab.loss(fault.host, fault.amount, *nics(site, fault.host)),
        lambda site, fault: site.lab.loss(fault.host, 0, *nics(site, fault.host)),
    ),
    "oneway": (
        lambda site, fault: site.lab.oneway(fault.host, fault.peer),
        lambda site, fault: site.lab.oneway(fault.host, fault.peer, on=False),
    ),
    "blackhole": (
        lambda site, fault: site.lab.blackhole(fault.host),
        lambda site, fault: site.lab.blackhole(fault.host, on=False),
    ),
    "rate": (
        lambda site, fault: site.lab.rate(fault.host, nics(site, fault.host), fault.amount),
        lambda site, fault: site.lab.rate(fault.host, nics(site, fault.host), None),
    ),
    "power": (lambda site, fault: site.lab.off(fault.host), power_on),
    "shutdown": (lambda site, fault: site.lab.shutdown(fault.host), power_on),
    "reboot": (lambda site, fault: site.lab.reboot(fault.host), nothing),
    "all": (lambda site, _fault: site.lab.off(), power_on),
    "disk": (lambda site, fault: site.fill_disk(fault.host), lambda site, fault: site.free_disk(fault.host)),
    "shm": (lambda site, fault: site.fill_shm(fault.host), lambda site, fault: site.free_shm(fault.host)),
    "inodes": (lambda site, fault: site.fill_inodes(fault.host), lambda site, fault: site.free_inodes(fault.host)),
    "blocked": (
        lambda site, fault: site.lab.machine(fault.host).block_writes(),
        lambda site, fault: site.lab.machine(fault.host).block_writes(False),
    ),
    "half": (other_half, uncut),
    "duplicate": (
        lambda site, fault: host_faults.claim_address(site.lab, fault.peer, fault.host),
        lambda site, fault: host_faults.give_up_address(site.lab, fault.host),
    ),
    "memory": (
        lambda site, fault: site.lab.memory(fault.host, int(fault.amount)),
        lambda site, fault: site.lab.memory(fault.host, AVAILABLE_MB),
    ),
}
#: on the head, these leave nobody who could keep the state true
BLINDING = frozenset({"watchdog", "watchdog stopped", "power", "shutdown", "reboot", "all"})


def make_whole(site: Site) -> None:
    """Every host has power, every cable passes, every disk has room, every process may run."""
    for host in site.hosts:
        site.lab.machine(host).block_writes(False)
        site.lab.fix(host)
        site.lab.rate(host, nics(site, host), None)
    try:
        site.lab.boot()
        site.lab.wait()
    except LabError:
        # an orderly shutdown was still under way
        site.lab.boot()
        site.lab.wait()
    for host in site.hosts:
        site.lab.memory(host, AVAILABLE_MB)
        site.on(host, _WAKE)
        site.free_disk(host)
        site.free_shm(host)
        site.free_inodes(host)
        if not nics(site, host):
            host_faults.give_up_address(site.lab, host)
