# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How each fault of the table is laid on a serving lab, and how one run of it is measured."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tools.faults import host_faults
from tools.faults.observe import Clients, Endpoint, Watch
from tools.faults.site import CORE, FRONT, RAY, VLLM, WATCHDOG, FaultError, Site, differing, shuffled, sleep_until, wait
from tools.faults.table import BY_NAME, FACTOR, Row, Run
from tools.playbooks import run_playbook

#: how long a host stays without power, and a link without packets
AWAY = 60.0
CUT = 90.0
#: on a full disk, long enough for a failed start and a failed play
FULL = 75.0
#: what may change nothing is watched for so long
QUIET = 45.0
#: a neighbour that was looked up before it was there counts as unreachable for three seconds (three requests, one a
#: second: mcast_solicit in arp(7))
LOOKUP = 5.0
#: how long one half of a cable is down
HOUR = 3600.0
#: what a DHCP server gives next, in the lab's own network
NEXT_ADDRESS = 100
#: waiting goes on beyond the limit, so that a miss has a figure
PATIENCE = 3.0


@dataclass
class Scene:
    """What a fault has at hand, and what it leaves for the end of the run."""

    site: Site
    run: Run
    seed: int
    struck: float = 0.0
    stopped: list[tuple[str, int]] = field(default_factory=list)
    #: stopped until the end of the run
    asleep: list[tuple[str, int]] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)
    #: until when clients may expect their endpoint where it was
    until: float = 0.0

    def random(self) -> random.Random:
        return random.Random(self.seed)


#: lays the fault; returns the moment of it
Strike = Callable[[Scene], float]
#: undoes what has to be undone; returns the moment from which "serving again" is counted
Fix = Callable[[Scene], float]


def _struck(scene: Scene) -> float:
    return scene.struck


def kill_engine(scene: Scene) -> float:
    site = scene.site
    pid = site.process(site.head, VLLM, CORE)
    moment = time.monotonic()
    site.signal(site.head, pid, "KILL")
    return moment


def kill_raylet(scene: Scene) -> float:
    site = scene.site
    pid = site.process(site.worker, RAY, "raylet/raylet ")
    moment = time.monotonic()
    site.signal(site.worker, pid, "KILL")
    return moment


def stop_rank(scene: Scene) -> float:
    site = scene.site
    pids = site.ranks_on(site.worker)
    if not pids:
        raise FaultError(f"{site.worker}: no rank to stop")
    pid = pids[-1]
    scene.stopped.append((site.worker, pid))
    moment = time.monotonic()
    site.signal(site.worker, pid, "STOP")
    return moment


def kill_rank(scene: Scene) -> float:
    """An engine ends by itself once a rank is lost; one that cannot is what the watchdog is for."""
    site = scene.site
    core = site.process(site.head, VLLM, CORE)
    pids = site.ranks_on(site.worker)
    if not pids:
        raise FaultError(f"{site.worker}: no rank to kill")
    scene.stopped.append((site.head, core))
    site.signal(site.head, core, "STOP")
    moment = time.monotonic()
    site.signal(site.worker, pids[-1], "KILL")
    return moment


def cut_link(scene: Scene) -> float:
    site = scene.site
    host = site.lab.plan.host(site.worker)
    moment = time.monotonic()
    # a host without fabric ports has its peers on the management network
    site.lab.cut(site.worker, *(() if len(host.nics) > 1 else (host.management,)), silent=True)
    return moment


def kill_front(scene: Scene) -> float:
    site = scene.site
    pid = int(site.shown(site.head, FRONT, "MainPID"))
    moment = time.monotonic()
    site.signal(site.head, pid, "KILL")
    return moment


def fix_link(scene: Scene) -> float:
    sleep_until(scene.struck + CUT)
    scene.site.lab.fix(scene.site.worker)
    return time.monotonic()


def _power_loss(who: str) -> tuple[Strike, Fix]:
    def strike(scene: Scene) -> float:
        moment = time.monotonic()
        scene.site.lab.off(getattr(scene.site, who))
        return moment

    def fix(scene: Scene) -> float:
        host = getattr(scene.site, who)
        sleep_until(scene.struck + AWAY)
        scene.site.lab.boot(host)
        scene.site.lab.wait(host)
        return time.monotonic()

    return strike, fix


def power_loss_of_all(scene: Scene) -> float:
    moment = time.monotonic()
    scene.site.lab.off(*scene.site.hosts)
    return moment


def power_in_random_order(scene: Scene) -> float:
    dice = scene.random()
    order = shuffled(scene.site.hosts, dice.shuffle)
    pauses = [round(dice.uniform(0, 20), 1) for _host in order]
    scene.run.note = f"seed {scene.seed}: " + ", ".join(
        f"{host} after {pause:g} s" for host, pause in zip(order, pauses, strict=True)
    )
    for host, pause in zip(order, pauses, strict=True):
        time.sleep(pause)
        scene.site.lab.boot(host)
    scene.site.lab.wait()
    return time.monotonic()


def fill_disk(scene: Scene) -> float:
    """A full disk alone stops nothing; the engine's end does, because all of it has to start on that disk."""
    site = scene.site
    scene.hashes = site.hashes(site.head)
    site.fill_disk(site.head)
    time.sleep(2)
    return kill_engine(scene)


def free_disk(scene: Scene) -> float:
    site = scene.site
    # whoever notices a full disk runs a play; it may fail, but it must not leave half a file
    outcome = run_playbook(
        "site.yml",
        site.inventories,
        extra_vars={"vllm_serve_front_retry_after": 17},
        arguments=["--tags", "vllm_serve"],
        name="full-disk",
        say=lambda line: None,
    )
    scene.run.note = f"a play on the full disk ended with {outcome.rc} after {outcome.seconds:.0f} s"
    torn = differing(scene.hashes, site.hashes(site.head))
    # either the old content or the whole new one
    allowed = {"/etc/sparkthor/front/nginx.conf", "/etc/sparkthor/front.good/nginx.conf"}
    scene.run.troubles += [f"{path} changed on the full disk" for path in torn if path not in allowed]
    for path in allowed.intersection(torn):
        text = site.on(site.head, f"cat {path}")
        if "Retry-After 17" not in text or not text.rstrip().endswith("}"):
            scene.run.troubles.append(f"{path} is torn")
    sleep_until(scene.struck + FULL)
    site.free_disk(site.head)
    return time.monotonic()


def _short_of(take: str, give: str) -> tuple[Strike, Fix]:
    """What the head lacks stops nothing that runs; the engine's end does, because its start needs it."""

    def strike(scene: Scene) -> float:
        getattr(scene.site, take)(scene.site.head)
        return kill_engine(scene)

    def fix(scene: Scene) -> float:
        sleep_until(scene.struck + FULL)
        getattr(scene.site, give)(scene.site.head)
        return time.monotonic()

    return strike, fix


def kill_raylet_unseen(scene: Scene) -> float:
    """Nobody is there who would say at once which host it was."""
    site = scene.site
    for pid in site.processes(site.head, RAY, r"dashboard/dashboard\.py|ray::Dashboard"):
        scene.asleep.append((site.head, pid))
        site.signal(site.head, pid, "STOP")
    if not scene.asleep:
        raise FaultError(f"{site.head}: no process of the dashboard")
    time.sleep(10)
    return kill_raylet(scene)


def watched(scene: Scene) -> float:
    """Of what is to change nothing."""
    sleep_until(scene.struck + QUIET)
    return time.monotonic()


def kill_watchdog(scene: Scene) -> float:
    site = scene.site
    pid = int(site.shown(site.head, WATCHDOG, "MainPID"))
    scene.stopped.append((site.head, pid))
    moment = time.monotonic()
    site.signal(site.head, pid, "KILL")
    return moment


def _no_memory(who: str, process: Callable[[Site, str], int]) -> Strike:
    def strike(scene: Scene) -> float:
        site = scene.site
        host = getattr(site, who)
        pid = process(site, host)
        if process is _watchdog:
            scene.stopped.append((host, pid))
        moment = time.monotonic()
        host_faults.out_of_memory(site.lab, host, pid)
        if process is _front:
            # sleeps until it is told something; its reload asks for memory
            site.signal(host, pid, "HUP")
        wait(lambda: not site.on(host, f"test -e /proc/{pid} && echo there", check=False).strip(), 60, "the OOM killer")
        host_faults.spare_memory(site.lab)
        return moment

    return strike


def _watchdog(site: Site, host: str) -> int:
    return int(site.shown(host, WATCHDOG, "MainPID"))


def _front(site: Site, host: str) -> int:
    return int(site.shown(host, FRONT, "MainPID"))


def fail_disk(scene: Scene) -> float:
    """As on a full disk, the engine's end makes all of it start there."""
    host_faults.fail_disk(scene.site.lab, scene.site.head)
    time.sleep(2)
    return kill_engine(scene)


def replace_disk(scene: Scene) -> float:
    site = scene.site
    sleep_until(scene.struck + FULL)
    line = scene.site.on(site.head, "cat /run/sparkthor/state.json", check=False)
    scene.run.note = f"before the power cycle: {json.loads(line).get('line')}"
    site.lab.off(site.head)
    host_faults.check_disk(site.lab, site.head)
    site.lab.boot(site.head)
    site.lab.wait(site.head)
    return time.monotonic()


def block_writes(scene: Scene) -> float:
    scene.site.lab.machine(scene.site.head).block_writes()
    time.sleep(2)
    return kill_engine(scene)


def unblock_writes(scene: Scene) -> float:
    site = scene.site
    try:
        sleep_until(scene.struck + FULL)
        line = json.loads(site.on(site.head, "cat /run/sparkthor/state.json", check=False))
        scene.run.note = f"while they hung: {line.get('line')}, restarts {line.get('restarts')}"
        if "hangs in the kernel" not in str(line.get("line")):
            scene.run.troubles.append("the state does not say that writes hang")
    finally:
        site.lab.machine(site.head).block_writes(False)
    return time.monotonic()


def lose_on_one_half(scene: Scene) -> float:
    site = scene.site
    control, _other = host_faults.halves(site.lab, site.worker)
    moment = time.monotonic()
    site.lab.loss(site.worker, 20, control)
    return moment


def give_address_twice(scene: Scene) -> float:
    site = scene.site
    moment = time.monotonic()
    host_faults.claim_address(site.lab, site.worker, site.hosts[1])
    return moment


def take_address_away(scene: Scene) -> float:
    sleep_until(scene.struck + CUT)
    host_faults.give_up_address(scene.site.lab, scene.site.hosts[1])
    return time.monotonic()


def step_clocks(scene: Scene) -> float:
    moment = time.monotonic()
    _step_clock(scene.site, 3600)
    return moment


def step_clocks_back(scene: Scene) -> float:
    sleep_until(scene.struck + QUIET)
    _step_clock(scene.site, -3600)
    sleep_until(scene.struck + 2 * QUIET)
    _step_clock(scene.site, 0)
    return time.monotonic()


def _step_clock(site: Site, seconds: int) -> None:
    host_faults.set_clock(site.lab, seconds)

    def seen() -> bool:
        state = json.loads(site.on(site.head, "cat /run/sparkthor/state.json"))
        return abs(float(state["updated"]) - time.time() - seconds) < 60

    wait(seen, 30, "a state that is told by the new clock")


def _renew(site: Site, host: str, forth: bool) -> None:
    planned = site.lab.plan.host(host)
    network = ipaddress.ip_network(site.lab.plan.subnet)
    usual = f"{planned.address}/{network.prefixlen}"
    other = f"{network[NEXT_ADDRESS + site.hosts.index(host)]}/{network.prefixlen}"
    host_faults.change_address(site.lab, host, planned.management, *((usual, other) if forth else (other, usual)))


def renew_worker(scene: Scene) -> float:
    moment = time.monotonic()
    _renew(scene.site, scene.site.worker, True)
    return moment


def renew_head(scene: Scene) -> float:
    """Clients ask the old address, so only the new one can show that the head still answers."""
    site = scene.site
    sleep_until(scene.struck + QUIET)
    scene.until = time.monotonic()
    _renew(site, site.head, True)
    try:
        network = ipaddress.ip_network(site.lab.plan.subnet)
        moved = dataclasses.replace(site.endpoint, address=str(network[NEXT_ADDRESS]))
        _asked(scene, moved, "at the head's new address")
        time.sleep(QUIET)
        _asked(scene, moved, "at the head's new address, later")
    finally:
        _renew(site, site.head, False)
    _renew(site, site.worker, False)
    time.sleep(LOOKUP)
    _asked(scene, site.endpoint, "at the head's former address")
    return time.monotonic()


def _asked(scene: Scene, endpoint: Endpoint, where: str) -> None:
    error = endpoint.complete(4, stream=False, timeout=60)
    if error:
        scene.run.troubles.append(f"{where}: {error}")


def cut_other_half(scene: Scene) -> float:
    site = scene.site
    _control, other = host_faults.halves(site.lab, site.worker)
    moment = time.monotonic()
    site.lab.cut(site.worker, other)
    return moment


def fix_other_half(scene: Scene) -> float:
    site = scene.site
    outcome = run_playbook("playbooks/status.yml", site.inventories, name="half", say=lambda line: None)
    said = re.search(r"\S+ has no carrier", outcome.output)
    scene.run.note = f"status: {said[0]}" if said else ""
    if not said:
        scene.run.troubles.append(f"status does not say that half a cable of {site.worker} is down")
    sleep_until(scene.struck + HOUR)
    site.lab.fix(site.worker)
    return time.monotonic()


_WORKER = _power_loss("worker")
_HEAD = _power_loss("head")
FAULTS: dict[str, tuple[Strike, Fix]] = {
    "engine": (kill_engine, _struck),
    "raylet": (kill_raylet, _struck),
    "wedge": (stop_rank, _struck),
    "rank": (kill_rank, _struck),
    "watchdog": (kill_watchdog, watched),
    "link": (cut_link, fix_link),
    "front": (kill_front, _struck),
    "worker": _WORKER,
    "head": _HEAD,
    "all": (power_loss_of_all, power_in_random_order),
    "disk": (fill_disk, free_disk),
    "shm": _short_of("fill_shm", "free_shm"),
    "inodes": _short_of("fill_inodes", "free_inodes"),
    "dashboard": (kill_raylet_unseen, _struck),
    "oom_engine": (_no_memory("head", lambda site, host: site.process(host, VLLM, CORE)), _struck),
    "oom_raylet": (_no_memory("worker", lambda site, host: site.process(host, RAY, "raylet/raylet ")), _struck),
    "oom_watchdog": (_no_memory("head", _watchdog), watched),
    "oom_front": (_no_memory("head", _front), _struck),
    "read_only": (fail_disk, replace_disk),
    "blocked": (block_writes, unblock_writes),
    "half_loss": (lose_on_one_half, fix_link),
    "duplicate": (give_address_twice, take_address_away),
    "clock": (step_clocks, step_clocks_back),
    "renewal": (renew_worker, renew_head),
    "half": (cut_other_half, fix_other_half),
}


def measure(site: Site, name: str, clean: float, seed: int, say: Callable[[str], None]) -> Run:
    """One fault, once, on a lab that serves."""
    row = BY_NAME[name]
    strike, fix = FAULTS[name]
    run = Run(clean_start=round(clean, 1))
    scene = Scene(site, run, seed)
    before = lives(site)
    asking = Clients(site.endpoint, long=0, pulse_pause=3.0) if row.calm else Clients(site.endpoint)
    with asking as clients, Watch(site.leader) as watch:
        begun = time.monotonic()
        wait(lambda: clients.first_success(begun) is not None, 180, "a first completion before the fault")
        wait(lambda: watch.state == "serving", 120, "state serving before the fault")
        # answered requests beside long ones that are half done
        if not row.calm:
            wait(lambda: len(clients.requests) >= 2 and len(clients.in_flight(time.monotonic())) >= 2, 60, "requests")
        time.sleep(3)
        run.load = round(os.getloadavg()[0], 1)
        scene.struck = strike(scene)
        if row.again is None:
            _unharmed(scene, row, clients, watch, before, fix)
        else:
            _recovered(scene, row, clients, watch, fix, say)
        run.story = watch.story(scene.struck)
        for host, pid in scene.asleep:
            site.on(host, f"kill -CONT {pid}", check=False)
    if row.again is not None:
        _settled(scene)
    return run


def lives(site: Site) -> dict[str, str]:
    """The present life of each unit that a fault elsewhere must not end."""
    units = {site.head: (VLLM, RAY, FRONT), site.worker: (RAY,)}
    return {f"{unit} on {host}": site.shown(host, unit, "InvocationID") for host in units for unit in units[host]}


def _unharmed(scene: Scene, row: Row, clients: Clients, watch: Watch, before: Mapping[str, str], fix: Fix) -> None:
    """Only what was struck notices it: the watchdog dies and comes back, a clock jumps, half a cable is away."""
    site, run = scene.site, scene.run
    for _host, pid in scene.stopped:

        def back(pid: int = pid) -> bool:
            main = int(site.shown(site.head, WATCHDOG, "MainPID") or 0)
            return main not in (0, pid) and time.time() - float(watch.newest.get("updated", 0)) < 3

        wait(back, 120, "the watchdog's next life")
        run.noticed = round(time.monotonic() - scene.struck, 1)
    zero = fix(scene)
    sleep_until(zero + (QUIET if row.noticed is None else 0))
    run.failed = len(clients.failures(scene.struck, scene.until or time.monotonic()))
    if watch.left(scene.struck) is not None:
        run.troubles.append("the state left serving")
    after = lives(site)
    run.troubles += [f"{unit} was started anew" for unit in before if after[unit] != before[unit]]
    if clients.first_success(zero if row.noticed is None else scene.struck) is None:
        run.troubles.append("no completion came through meanwhile")


def _recovered(scene: Scene, row: Row, clients: Clients, watch: Watch, fix: Fix, say: Callable[[str], None]) -> None:
    run = scene.run
    limit = row.noticed or 60.0
    if row.clients:
        try:
            wait(lambda: watch.left(scene.struck) is not None, PATIENCE * limit, "the state to change", 0.1)
        except FaultError:
            say(f"  not noticed within {PATIENCE * limit:.0f} s")
    noticed = watch.left(scene.struck)
    zero = fix(scene)
    since = max(zero, scene.struck + (noticed or 0.0))
    allowed = FACTOR * run.clean_start + (row.again or 0.0)
    try:
        wait(
            lambda: clients.first_success(since) is not None and watch.state == "serving",
            PATIENCE * allowed,
            "a completion after the fault",
        )
    except FaultError as error:
        run.troubles.append(str(error))
    served = clients.first_success(since)
    run.again = None if served is None else round(served - zero, 1)
    run.noticed = None if noticed is None else round(noticed, 1)
    caught = clients.caught(scene.struck, scene.struck + (noticed or 0.0))
    run.clients = sorted(round(one.ended - scene.struck, 1) for one in caught if one.ended is not None)
    run.hanging = sum(one.ended is None for one in caught)
    run.failed = len(clients.failures(scene.struck, time.monotonic()))


def _settled(scene: Scene) -> None:
    """Nothing is left of the group that died: one rank a host, none of them stopped, files as they were."""
    site, run = scene.site, scene.run
    for host, pid in scene.stopped:
        if site.on(host, f"test -e /proc/{pid} && echo there", check=False).strip():
            run.troubles.append(f"the stopped process {pid} is still on {host}")
    run.troubles += site.surplus()
    if scene.hashes:
        outcome = run_playbook("site.yml", site.inventories, name="after-full-disk", say=lambda line: None)
        if outcome.rc != 0:
            run.troubles.append(f"the play after the full disk failed: {outcome.failures}")
        run.troubles += [f"{path} is not as before" for path in differing(scene.hashes, site.hashes(site.head))]
