# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, as a service:
# pylint: disable=ansible-bad-function

"""The program around the watchdog's state machine: observes, lets it decide, does what it says, and tells the world.

Runs on the head under systemd, without Ansible, with the system's Python, as a user without rights: what needs root is
asked of C(watchdog_hands). Everything here survives a full disk, a hanging engine and a dead Ray; what it knows lies in
C(/run/sparkthor/state.json), so that its own death and rebirth interrupt nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from .._lib import files
from . import (
    answers,
    former_head,
    front_socket,
    hang,
    life,
    loads,
    notify,
    observation,
    patience,
    places,
    progress,
    rank_state,
    ray_config,
    ray_ranks,
    serving,
    watchdog,
    watchdog_hands,
    watchdog_report,
)
from .engines import registry

OBSERVE_EVERY = 2.0
READ_LOG_EVERY = 4.0
SIGNS_EVERY = 6.0
SAY_AGAIN_AFTER = 30.0
#: seconds for all simple tasks together: a model that thinks slowly is given time, and serves meanwhile
ANSWERS_WITHIN = 300.0
#: causes of a restart that ranks which hang explain
HUNG = ("completion", "load_stalled")
#: how often a head that waits for its hosts asks whether another one was declared
SUCCESSOR_EVERY = 30.0


def group_ranks(config: Mapping[str, Any]) -> Mapping[str, str] | None:
    """The ranks of executor mp, as the head's program publishes them."""
    return rank_state.ranks(str(config["group_state"]))


def group_signs(config: Mapping[str, Any], _ranks: Mapping[str, str]) -> Mapping[str, patience.Signs]:
    """The same with executor mp, from each host's own program."""
    return rank_state.signs(str(config["group_state"]))


class Service:
    """One round after the other; every door to the outside can be replaced by a test."""

    #: where the hosts keep what the ranks of a hung engine do; None where nobody does
    keeps: hang.Paths | None = None
    #: the start of the engine that is loading
    load: loads.Watched | None = None

    def __init__(
        self,
        config: Mapping[str, Any],
        ranks: ray_ranks.RankReader | None = None,
        runner: serving.Runner = serving.run,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        say: Callable[[str], None] | None = None,
        state_path: str = serving.STATE,
        metrics_path: str = places.OWN.metrics,
        draining_path: str = serving.DRAINING,
        maintenance_paths: tuple[str, ...] = serving.MAINTENANCE,
        starts_path: str = serving.STARTS,
        degraded_path: str = serving.DEGRADED,
        successor: Callable[[bool], str] | None = None,
        signs: ray_ranks.SignReader | None = None,
        identity: Callable[[], former_head.Identity] = former_head.Identity,
        hands: watchdog_hands.Hands | None = None,
    ) -> None:
        self.config, self.engine = config, registry.engine_of(config)
        self.hands = hands or watchdog_hands.Hands()
        self.unit = str(config.get("unit", places.OWN.unit))
        self.socket = str(config.get("socket", places.OWN.socket))
        self.machine = watchdog.Watchdog(watchdog.Settings.from_dict(config.get("settings") or {}))
        self.ranks = ranks if self.machine.settings.expected else None
        self.signs = signs
        self.signs_at = float("-inf")
        self.signs_kept: Mapping[str, patience.Signs] = {}
        self.runner = runner
        self.clock = clock
        self.wall = wall
        self.say = say or (lambda line: print(line, flush=True))
        self.state_path = state_path
        self.metrics_path = metrics_path
        self.draining_path = draining_path
        self.maintenance_paths = maintenance_paths
        self.starts_path = starts_path
        self.degraded_path = degraded_path
        self.successor = successor
        self.read_identity = identity
        self.identity = former_head.Identity()
        self.successor_asked_at = float("-inf")
        self.state: dict[str, Any] | None = None
        self.observed_at = float("-inf")
        self.progress = progress.Progress()
        self.progress_of = ""
        self.log_read_at = float("-inf")
        self.since = wall()
        self.said = ""
        self.said_state = ""
        self.said_at = float("-inf")
        self.problem = ""
        self._take_up_left_out()
        self._lock = threading.Lock()
        #: the newest completion, and which start of the unit it asked
        self._probe: tuple[str, observation.Probe] | None = None
        self._probe_thread: threading.Thread | None = None
        #: what the simple tasks showed, and of which start of the unit
        self._answers: tuple[str, Mapping[str, Any]] | None = None
        self._ask_thread: threading.Thread | None = None

    def take_up(self) -> None:
        """Go on where an earlier process of the same boot stopped."""
        old = files.read_json(self.state_path)
        memory = old.get("memory")
        if old.get("version") == watchdog.VERSION and isinstance(memory, dict):
            self.machine.restore(memory, self.clock())
            if old.get("state") == self.said_state or isinstance(old.get("since"), (int, float)):
                self.since = float(old.get("since", self.since))
                self.said_state = str(old.get("state", ""))

    def _take_up_left_out(self) -> None:
        """Who was left out stays so, unless the play has declared another cluster since.

        A host that was taken out of the inventory never comes back, its address may be another's now, and without
        degraded mode nobody is left out at all.
        """
        settings = self.machine.settings
        former = serving.left_out(self.degraded_path)
        still = (address for address, name in former.items() if settings.expected.get(address) == name)
        self.machine.without = tuple(still) if settings.degraded_after > 0 else ()
        if len(self.machine.without) != len(former):
            self._leave_out(self.machine.without)

    def observe(self) -> observation.Observation | None:
        unit = serving.unit_state(serving.show(self.unit, self.runner))
        if unit is None:
            return None
        # before this round asks: an engine closes what was asked of it a moment after the answer
        own = sum(thread is not None and thread.is_alive() for thread in (self._probe_thread, self._ask_thread))
        count = serving.connections(self.socket) if unit.running else None
        is_listening = unit.running and serving.listening(self.socket)
        text = serving.metrics(self.socket, engine=self.engine) if is_listening else ""
        now = self.clock()
        self._read_log(unit, now)
        with self._lock:
            heard, self._probe = self._probe, None
            told, self._answers = self._answers, None
        probing = self._probe_thread is not None and self._probe_thread.is_alive()
        asking = self._ask_thread is not None and self._ask_thread.is_alive()
        ranks = self._read_ranks()
        return observation.Observation(
            now=now,
            unit=unit,
            ranks=ranks,
            in_flight=self._in_flight(text, count, own) if is_listening else None,
            signs=self._read_signs(ranks, now),
            listening=is_listening,
            probing=probing,
            # what was heard of the engine before says nothing about one that was started anew meanwhile
            probe=heard[1] if heard and heard[0] == unit.invocation else None,
            counters=watchdog_report.engine_counters(text, self.engine.metrics) if text else None,
            progress=self.progress.text,
            fraction=self.progress.fraction,
            mark=self.progress.mark,
            load=self._watch_load(unit, is_listening, now),
            maintenance=places.maintenance(self.maintenance_paths),
            asleep=serving.why_asleep(self.config, self.maintenance_paths),
            draining=os.path.exists(self.draining_path),
            superseded=self._read_successor(now),
            answerable=bool(self.served_config.get("answers")),
            asking=asking,
            answers=told[1] if told and told[0] == unit.invocation else None,
            in_the_kernel=self._read_hanging(),
        )

    def _read_hanging(self) -> Mapping[int, str]:
        """Processes that wait in the kernel; looked for while the engine does not serve or owes a token."""
        if self.machine.served and not self.machine.overdue:
            return {}
        return life.in_the_kernel((self.unit, watchdog_hands.RAY_UNIT))

    def _read_successor(self, now: float) -> str:
        """Why this host is no longer the head. The others are asked only while nothing is served here."""
        if self.successor is None:
            return ""
        ask = not self.machine.served and now - self.successor_asked_at >= SUCCESSOR_EVERY
        if ask:
            self.successor_asked_at = now
        try:
            return self.successor(ask)
        except Exception as error:  # like Ray's side above
            self._complain(f"the hosts cannot be asked for another head: {error}")
            return ""

    def _read_ranks(self) -> Mapping[str, str] | None:
        if self.ranks is None:
            return None
        try:
            return self.ranks(self.config)
        except Exception as error:  # whatever Ray's side throws must not end the supervision
            self._complain(f"Ray cannot be asked: {error}")
            return None

    def _in_flight(self, text: str, count: int | None, own: int) -> int | None:
        """Requests of others. Connections tell more than the engine's gauges, which stand still during a step."""
        if count is None:
            count = watchdog_report.requests_in_flight(text, self.engine.metrics)
        return None if count is None else max(0, count - own)

    def _read_signs(self, ranks: Mapping[str, str] | None, now: float) -> Mapping[str, patience.Signs] | None:
        """Signs of life of every host that serves, while a token is overdue; one that is not known is there too."""
        if not self.machine.overdue:
            self.signs_at = float("-inf")
            self.signs_kept = {}
            return None
        # a rank that has ended is confirmed by another answer
        if now - self.signs_at >= SIGNS_EVERY or any(one.ended for one in self.signs_kept.values()):
            self.signs_at = now
            signs: Mapping[str, patience.Signs] = {}
            try:
                signs = self.signs(self.config, ranks or {}) if self.signs is not None else {}
            except Exception as error:  # like Ray's side above
                self._complain(f"the ranks' signs of life cannot be read: {error}")
            expected = self.machine.settings.expected
            serve = [name for address, name in expected.items() if address not in self.machine.without]
            self.signs_kept = {name: signs.get(name, patience.Signs()) for name in serve}
        return self.signs_kept

    def _read_log(self, unit: observation.Unit, now: float) -> None:
        """The log matters while the engine loads or owes a token; otherwise it would cost for nothing."""
        if unit.invocation != self.progress_of:
            self.progress = progress.Progress()
            self.progress_of = unit.invocation
            self.log_read_at = float("-inf")
        loaded = self.machine.served and self.machine.invocation == unit.invocation
        if not unit.running or (loaded and not self.machine.overdue) or now - self.log_read_at < READ_LOG_EVERY:
            return
        self.log_read_at = now
        lines = serving.journal(self.unit, unit.invocation, 160, self.runner)
        if lines:
            self.progress = progress.progress(lines, self.progress, self.engine.log)

    def _watch_load(self, unit: observation.Unit, listening: bool, now: float) -> Mapping[str, Any] | None:
        """Where the load is. A start is followed from its beginning: one that already listens may serve for long."""
        if self.load is not None and self.load.invocation != unit.invocation:
            self.load = None
        of = self.served_config.get("load")
        served = self.machine.served and self.machine.invocation == unit.invocation
        if not of or not unit.running or served:
            return None
        if self.load is None and not listening:
            former = loads.loads(files.read_json(loads_path(self.config)))
            self.load = loads.Watched(loads.described(of), unit.invocation, unit.started or now, former)
        if self.load is None:
            return None
        self.load.note(self.progress.name, self.progress.share, now)
        return self.load.told(now)

    def _keep_load(self, now: float) -> None:
        """The load that has just ended, for whoever waits for the next one."""
        if self.load is None or self.load.invocation != self.machine.invocation:
            return
        ended = self.load.ended(now, self.wall())
        self.say(f"loaded in {loads.took(ended)}")
        path = loads_path(self.config)
        try:
            self.hands.write(path, json.dumps(loads.kept(files.read_json(path), ended)) + "\n")
        except OSError as error:
            self._complain(f"{path} cannot be written: {error.strerror}")

    @property
    def served_config(self) -> Mapping[str, Any]:
        smaller = self.config.get("degraded") or {}
        return smaller if self.machine.without and smaller.get("model") else self.config

    @property
    def served_model(self) -> str:
        return str(self.served_config.get("model", ""))

    def start_probe(self, deadline: float, invocation: str) -> None:
        def ask() -> None:
            result = serving.complete(self.socket, self.served_model, deadline, self.clock, self.engine)
            with self._lock:
                self._probe = (invocation, result)

        self._probe_thread = threading.Thread(target=ask, name="probe", daemon=True)
        self._probe_thread.start()

    def start_tasks(self, invocation: str) -> None:
        model = self.served_model

        def ask() -> None:
            found = answers.ask_engine(self.socket, model, ANSWERS_WITHIN, clock=self.clock)
            with self._lock:
                self._answers = (invocation, found)

        self._ask_thread = threading.Thread(target=ask, name="tasks", daemon=True)
        self._ask_thread.start()

    def round(self) -> watchdog.Decision | None:
        seen = self.observe()
        if seen is None:
            self._complain("systemd gives no answer; nothing is decided without it")
            return None
        had_served = self.machine.served
        decision = self.machine.decide(seen)
        if self.machine.served and not had_served:
            # starts that never served are made ever more slowly; this one did
            with contextlib.suppress(OSError):
                self.hands.remove(self.starts_path)
            self._keep_load(seen.now)
        wall = self.wall()
        if decision.state != self.said_state:
            self.since = wall
        self._tell(decision, seen.now)
        state = watchdog_report.status(self.machine, decision, seen, self.since, wall)
        # a former head that returns asks for it
        self.identity = self.read_identity()
        state["generation"] = self.identity.generation
        # The state is on record before the act: whoever reads sees why the group goes down.
        self._publish(state, wall)
        other_size = decision.restart in ("degraded", "restored")
        if other_size:
            self._leave_out(self.machine.without)
        if decision.restart and (other_size or not self._started_anew(seen.unit)):
            if decision.restart in HUNG:
                self._keep_hang(decision)
            error = serving.restart(self.unit, decision.kill, self.runner)
            if error:
                self._complain(f"the serving group cannot be restarted: {error}")
        if decision.probe_deadline is not None:
            self.start_probe(decision.probe_deadline, seen.unit.invocation)
        if decision.ask:
            self.start_tasks(seen.unit.invocation)
        return decision

    def _keep_hang(self, decision: watchdog.Decision) -> None:
        """Have all hosts keep what their ranks do, and wait for it, but not for long."""
        if self.keeps is None:
            return
        several = len(self.machine.settings.expected) - len(self.machine.without) > 1
        files_of = (self.keeps.taken, *((self.keeps.others,) if several else ()))
        before = {path: hang.stamp(path) for path in files_of}
        try:
            self.hands.write(self.keeps.wanted, f"{self.unit}: {decision.detail}\n")
        except OSError as error:
            self._complain(f"{self.keeps.wanted} cannot be written: {error.strerror}")
            return
        late = hang.wait(before, hang.DEADLINE)
        if late:
            what = "this host" if self.keeps.taken in late else "another host"
            self.say(f"{what} has not kept within {hang.DEADLINE:.0f} s what its ranks do; the restart does not wait")

    def _started_anew(self, unit: observation.Unit) -> bool:
        """Whether somebody has started the unit since it was looked at, which takes seconds when hosts are silent."""
        newest = serving.unit_state(serving.show(self.unit, self.runner))
        return newest is not None and newest.invocation != unit.invocation

    def _leave_out(self, addresses: tuple[str, ...]) -> None:
        """For the unit's own preparation: which configuration, and whom the gate need not wait for."""
        try:
            if addresses:
                names = {one: self.machine.settings.expected.get(one, one) for one in addresses}
                self.hands.write(self.degraded_path, json.dumps({"without": names}) + "\n")
            else:
                self.hands.remove(self.degraded_path)
        except OSError as error:
            self._complain(f"{self.degraded_path} cannot be written: {error.strerror}")

    def _tell(self, decision: watchdog.Decision, now: float) -> None:
        """One line of the journal for each decision; a load's progress now and then."""
        news = decision.restart is not None or decision.state != self.said_state
        if not news and (decision.line == self.said or now - self.said_at < SAY_AGAIN_AFTER):
            return
        self.said, self.said_state, self.said_at = decision.line, decision.state, now
        self.say(decision.line + (f" (restart, cause: {decision.restart})" if decision.restart else ""))

    def _complain(self, text: str) -> None:
        if text != self.problem:
            self.problem = text
            self.say(text)

    def _publish(self, state: dict[str, Any], wall: float) -> None:
        self.state, self.observed_at = state, self.clock()
        try:
            self.hands.write(self.state_path, json.dumps(state, indent=1) + "\n")
            self.hands.write(self.metrics_path, watchdog_report.metrics_text(state, wall))
        except OSError as error:
            self._complain(f"{self.state_path} cannot be written: {error.strerror}")


class _Handler(front_socket.FrontHandler):
    server: HealthServer

    def do_GET(self) -> None:
        service = self.server.service
        path, _mark, query = self.path.partition("?")
        if path == "/metrics":
            state = service.state
            text = watchdog_report.metrics_text(state, service.wall()) if state else ""
            self._answer(200 if state else 503, text.encode(), "text/plain; version=0.0.4")
            return
        status, body = watchdog_report.health_body(service.state, service.clock() - service.observed_at)
        proofs = service.identity.proofs(query.removeprefix("nonce="))
        if proofs:
            body.update(generation=service.identity.generation, **proofs)
        self._answer(status, json.dumps(body).encode() + b"\n", "application/json")

    def do_HEAD(self) -> None:
        """Load balancers and uptime checkers ask with it."""
        self.do_GET()

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.reply(status, body, kind, {"Retry-After": "10"} if status == 503 else None)


class HealthServer(front_socket.FrontSocket):
    #: given before the first question is taken
    service: Service

    def __init__(self, path: str, group: str = "") -> None:
        super().__init__(path, group, _Handler)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sparkthor_host watchdog", description="Supervise the serving group.")
    parser.add_argument("config", nargs="?", default=serving.CONFIG)
    path = parser.parse_args(argv).config
    config = files.read_json(path)
    if not config.get("model"):
        print(f"{path} is missing or names no model; run the playbook again", file=sys.stderr, flush=True)
        return 78
    # root's: nobody else makes names in that folder
    place = str(config.get("health_socket") or places_of(config).health_socket)
    server = HealthServer(place, str(config.get("group", "")))
    hands = give_up_root(config)
    if hands is None:
        return 1
    supervise(config, server, hands)
    return 1


def give_up_root(config: Mapping[str, Any]) -> watchdog_hands.Hands | None:
    """What does for the watchdog what only root may; None in root's own process, once the watchdog is gone."""
    hands = watchdog_hands.Hands()
    if not config.get("user") or os.geteuid() != 0:
        return hands
    guard = watchdog_hands.Guard(hands, str(config.get("unit", places.OWN.unit)), written(config))
    return watchdog_hands.split(guard, str(config["user"]), [str(config["group"])], watchdog_hands.Remote)


def written(config: Mapping[str, Any]) -> list[str]:
    """The files that the watchdog writes and removes."""
    paths = places_of(config)
    # which host is the head is the matter of the host's own group
    marker = [] if paths.name else [former_head.MARKER]
    return [
        state_path(config),
        metrics_path(config),
        paths.starts,
        paths.degraded,
        loads_path(config),
        hang.WANTED,
        *marker,
    ]


def places_of(config: Mapping[str, Any]) -> places.Places:
    return places.Places(str(config.get("beside") or ""))


def state_path(config: Mapping[str, Any]) -> str:
    return str(config.get("state") or places_of(config).state)


def loads_path(config: Mapping[str, Any]) -> str:
    return str(config.get("loads") or places_of(config).loads)


def metrics_path(config: Mapping[str, Any]) -> str:
    return str(config.get("metrics") or places_of(config).metrics)


def given_token(hands: watchdog_hands.Hands, cluster: ray_config.Config) -> str:
    """Ray's token, from who may read it."""
    return hands.token() if cluster.auth else ""


def _of_the_head(hands: watchdog_hands.Hands) -> dict[str, Any]:
    """What the watchdog of the host's own group alone does: a host is head of that one."""
    return {
        "successor": former_head.former_head(lambda argv: hands.run(argv, 30), token=hands.token, write=hands.write),
        "identity": lambda: former_head.Identity.read(token=hands.token),
    }


def supervise(config: Mapping[str, Any], server: HealthServer, hands: watchdog_hands.Hands) -> None:
    ranks: ray_ranks.RankReader | None = None
    signs: ray_ranks.SignReader | None = None
    if config.get("ray"):
        token = partial(given_token, hands)
        ranks, signs = ray_ranks.ranks(token=token), ray_ranks.signs(token=token)
    elif config.get("group_state"):
        # without Ray the head's own program knows who is there
        ranks, signs = group_ranks, group_signs
    paths = places_of(config)
    service = Service(
        config,
        ranks,
        signs=signs,
        runner=hands.run,
        state_path=state_path(config),
        metrics_path=metrics_path(config),
        draining_path=paths.draining,
        maintenance_paths=paths.maintenance,
        starts_path=paths.starts,
        degraded_path=paths.degraded,
        **({} if paths.name else _of_the_head(hands)),
        hands=hands,
    )
    service.keeps = hang.Paths() if os.path.exists(hang.UNIT) else None
    service.take_up()
    server.service = service
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    hands.notify(notify.READY)
    while True:
        started = time.monotonic()
        service.round()
        hands.notify(notify.ALIVE)
        time.sleep(max(0.2, OBSERVE_EVERY - (time.monotonic() - started)))
