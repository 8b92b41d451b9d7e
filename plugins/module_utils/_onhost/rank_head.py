# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""The head's side of a group of ranks without Ray."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from .._lib import files, foreign
from . import generation, hang, rank_link, serving
from .engines.base import WORKERS_FIRST
from .notify import READY, notify
from .rank_process import RankProcess, drop_caches, process_name_of, served

#: characters of a worker's reason that are told on
REASON = 2000
#: seconds at most before the next generation, after several in which a host went away before any rank began
LONGEST_PAUSE = 60.0


@dataclasses.dataclass
class Member:
    """A worker that is connected."""

    host: str
    address: str
    instance: str
    link: rank_link.RankLink
    state: str = rank_link.STANDBY
    generation: int = 0
    #: the highest generation that it says it took part in
    remembered: int = 0
    stale: list[str] = dataclasses.field(default_factory=list)
    signs: dict[str, Any] = dataclasses.field(default_factory=dict)
    #: the newest of the watchdog's wishes that it has answered
    kept: int = 0


class Head:
    """The head's side: who is there, which generation runs, and its own rank."""

    def __init__(
        self, settings: rank_link.RankLinkSettings, token: str, talk: Callable[[str], None] = rank_link.say
    ) -> None:
        self.settings = settings
        self.token = token
        self.say = talk
        self.rank = RankProcess(settings)
        self.instance = secrets.token_hex(8)
        self.phase = rank_link.GATHER
        self.model = ""
        self.generation = rank_link.remembered(settings.memory_path)
        self.members: dict[str, Member] = {}
        self.admitted: dict[str, str] = {}
        self.news = asyncio.Event()
        self.failure = ""
        self.complaints: set[str] = set()
        self.beat: asyncio.Task[None] | None = None
        self.relay: asyncio.Task[None] | None = None
        #: when (µs) the watchdog wanted to know what the ranks do; 0 where nobody waits for it
        self.wish = 0

    async def run(self) -> int:
        server = await asyncio.start_server(
            self._serve, self.settings.head_address, self.settings.port, limit=rank_link.LINE_LIMIT
        )
        self.beat = asyncio.create_task(self._beat())
        self.relay = asyncio.create_task(self._relay())
        try:
            await self._gather()
            await self._prepare()
            return await self._serve_generation()
        finally:
            for task in (self.beat, self.relay):
                if task is not None:
                    task.cancel()
            # the workers hear it before the own rank takes its time to stop
            server.close()
            for member in list(self.members.values()):
                member.link.close()
            await self.rank.stop()

    def _absent(self, state: str) -> list[str]:
        return [
            host
            for host in self.settings.workers
            if host not in self.members
            or self.members[host].state != state
            or (state == rank_link.PREPARED and self.members[host].generation != self.generation)
        ]

    async def _until(self, state: str, what: str) -> None:
        said: list[str] = []
        said_at = 0.0
        while absent := self._absent(state):
            now = time.monotonic()
            if absent != said or now - said_at >= 60:
                self.say(f"{what} {', '.join(absent)}")
                said, said_at = absent, now
            self.news.clear()
            self.publish()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.news.wait(), 10)
            if state == rank_link.PREPARED and any(host not in self.members for host in self.settings.workers):
                return

    async def _gather(self) -> None:
        while True:
            await self._until(rank_link.STANDBY, "waiting for")
            alone = [member for member in self.members.values() if self._not_believed(member)]
            if not alone:
                return
            for member in alone:
                # it hears why when it comes again: then all others are here
                member.link.close()
                del self.members[member.host]

    async def _prepare(self) -> None:
        pause = self.settings.retry
        while True:
            # all ranks of a generation load this one, the head's own as well, whatever is declared meanwhile
            self.model = served(self.settings)
            self.generation = self._believed() + 1
            rank_link.remember(self.settings.memory_path, self.generation)
            self.phase = rank_link.PREPARE
            self.say(f"generation {self.generation}: all {len(self.settings.members)} hosts are here")
            await self._tell_all()
            problem = await drop_caches(self.settings)
            if problem:
                self.say(f"page cache not dropped on {self.settings.host}: {problem}")
            await self._until(rank_link.PREPARED, "waiting for the page cache of")
            if not self._absent(rank_link.PREPARED):
                return
            # a host went away meanwhile: the generation never ran, the next one gathers anew
            self.phase = rank_link.GATHER
            await self._tell_all()
            # one that cannot take part, as its disk is full, comes back at once
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            await self._gather()

    def _believed(self) -> int:
        """The newest generation that there was, as far as no host is alone with it by more than others can have missed.

        Whoever is beyond cannot take part: to him the head is an older one.
        """
        workers = (self.members[host].remembered for host in self.settings.workers if host in self.members)
        return max(self.generation, generation.believed([self.generation, *workers]))

    def _not_believed(self, member: Member) -> str:
        """Why a worker is not let in once all others are here; empty where it may, or where that is not known yet."""
        members = {**self.members, member.host: member}
        if self.phase != rank_link.GATHER or any(host not in members for host in self.settings.workers):
            return ""
        found = generation.believed([self.generation, *(one.remembered for one in members.values())])
        if member.remembered <= max(self.generation, found):
            return ""
        return (
            f"says that it took part in generation {member.remembered}, and no other host knows one above "
            f"{max(self.generation, found)}. If {self.settings.host} was installed anew, remove "
            f"{self.settings.memory_path} on {member.host}"
        )

    async def _serve_generation(self) -> int:
        self.admitted = {host: self.members[host].instance for host in self.settings.workers}
        self.rank.load(self.model)
        workers_first = self.rank.engine.launch == WORKERS_FIRST
        if not workers_first:
            await self.rank.start()
        self.phase = rank_link.RUN
        self.publish()
        await self._tell_all()
        if workers_first:
            if problem := await self._servers():
                self.say(f"RuntimeError: {problem}")
                return 1
            await self.rank.start()
        notify(f"{READY}\nSTATUS=generation {self.generation}")
        ended = asyncio.create_task(self.rank.wait())
        while not ended.done():
            self.news.clear()
            news = asyncio.create_task(self.news.wait())
            await asyncio.wait({ended, news}, return_when=asyncio.FIRST_COMPLETED, timeout=self.settings.heartbeat)
            news.cancel()
            self.publish()
            if self.failure:
                self.say(f"RuntimeError: {self.failure}")
                ended.cancel()
                return 1
        code = ended.result()
        self.say(f"generation {self.generation}: the head's rank ended with {code}")
        return code if 0 < code < 255 else 1

    async def _servers(self) -> str:
        """Wait until the servers of all workers listen; why they never will, or nothing."""
        while waiting := [host for host in self.settings.workers if not self._runs(host)]:
            if self.failure:
                return self.failure
            if gone := [host for host in waiting if self._instance(host) != self.admitted[host]]:
                return f"lost {', '.join(gone)} before its server listened"
            self.news.clear()
            self.publish()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.news.wait(), self.settings.heartbeat)
        return ""

    def _instance(self, host: str) -> str:
        return self.members[host].instance if host in self.members else ""

    def _runs(self, host: str) -> bool:
        """Whether this worker's part of the generation runs."""
        member = self.members.get(host)
        if member is None or member.instance != self.admitted[host]:
            return False
        return member.state == rank_link.RUNNING and member.generation == self.generation

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = rank_link.RankLink(reader, writer, self.settings.silence)
        member: Member | None = None
        try:
            member = await self._welcome(link)
            await link.send(**self._word(member))
            while True:
                message = await link.receive()
                if self._hear(member, message):
                    self.news.set()
                if member.state == rank_link.FAILED and self.admitted.get(member.host) == member.instance:
                    reason = " ".join(str(message.get("reason") or "no reason in its log").split())
                    self.failure = f"rank on {member.host} failed: {reason[:REASON]}"
                    self.news.set()
        except rank_link.BROKEN:
            pass  # what a broken connection means is decided by who is absent
        finally:
            link.close()
            if member is not None and self.members.get(member.host) is member:
                del self.members[member.host]
            self.news.set()

    @staticmethod
    def _hear(member: Member, message: Mapping[str, Any]) -> bool:
        """Take a worker's word on itself; whether it is news. Raises ValueError for what no worker says."""
        state, number = foreign.text_of(message["state"], 40), foreign.whole(message.get("generation") or 0)
        signs, stale = message.get("signs") or {}, message.get("stale") or []
        if not isinstance(signs, dict) or not isinstance(stale, list):
            raise ValueError("not a message of the group")
        news = (state, number) != (member.state, member.generation)
        member.state, member.generation, member.signs = state, number, signs
        member.kept = foreign.whole(message.get("hang") or 0)
        member.stale = [foreign.text_of(path, 4096) for path in stale]
        return news

    async def _welcome(self, link: rank_link.RankLink) -> Member:
        nonce = secrets.token_hex(16)
        await link.send(nonce=nonce)
        hello = await link.receive()
        host, instance, theirs = str(hello["host"]), str(hello["instance"]), str(hello["nonce"])
        if not hmac.compare_digest(
            str(hello["proof"]), rank_link.proof(self.token, "worker", nonce, theirs, host, instance)
        ):
            self._complain(host, "has another token; run the playbook on all hosts")
            await link.send(refused="this host's token is not the head's; run the playbook on all hosts", token=True)
            raise ValueError("wrong token")
        theirs_model, model = str(hello.get("model") or ""), served(self.settings)
        if theirs_model and model and process_name_of(theirs_model) != process_name_of(model):
            self._complain(host, f"is set up for {theirs_model}, and this host for {model}; run site.yml again")
            await link.send(refused=f"it is set up for {model}, and this host for {theirs_model}; run site.yml again")
            raise ValueError("another model")
        if host not in self.settings.workers:
            self._complain(host, "is not a member of this group")
            await link.send(refused=f"{host} is not a member of the group of {self.settings.host}; see its inventory")
            raise ValueError("no member")
        address = next(where for where, name in self.settings.members.items() if name == host)
        member = Member(host, address, instance, link)
        member.remembered = foreign.whole(hello.get("generation") or 0)
        if why := self._not_believed(member):
            self._complain(host, why)
            await link.send(refused=f"{host} {why}")
            raise ValueError("not believed")
        former = self.members.get(host)
        if former is not None:
            former.link.close()
        member.state = str(hello.get("state") or rank_link.STANDBY)
        member.generation = foreign.whole(hello.get("running") or 0)
        self.members[host] = member
        self.complaints.discard(host)
        await link.send(proof=rank_link.proof(self.token, "head", theirs, nonce))
        self.news.set()
        return member

    def _complain(self, host: str, text: str) -> None:
        if host not in self.complaints:
            self.complaints.add(host)
            self.say(f"{host} {text}")

    def _word(self, member: Member) -> dict[str, Any]:
        """What a worker is told; a rank that was not there at the start is not let into a generation that runs."""
        mine = self.phase != rank_link.RUN or self.admitted.get(member.host) == member.instance
        state = files.read_json(self.settings.watchdog_state)
        return {
            "phase": self.phase,
            "generation": self.generation,
            "admitted": mine,
            "model": self.model,
            "overdue": self._overdue(state),
            "hang": self.wish,
        }

    def _overdue(self, state: Mapping[str, Any]) -> bool:
        """Whether the watchdog waits for a token and wants to know what the ranks do."""
        return self.phase == rank_link.RUN and bool((state.get("stall") or {}).get("overdue"))

    async def _tell_all(self) -> None:
        for member in list(self.members.values()):
            with contextlib.suppress(*rank_link.BROKEN):
                await member.link.send(**self._word(member))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.settings.heartbeat)
            self.rank.sample(self._overdue(files.read_json(self.settings.watchdog_state)))
            await self._tell_all()

    async def _relay(self) -> None:
        """Pass on that the watchdog wants to know what the ranks do, and tell it when all others have answered."""
        paths = self.settings.hang
        known = hang.stamp(paths.wanted)
        while True:
            await asyncio.sleep(min(0.2, self.settings.heartbeat))
            newest = hang.stamp(paths.wanted)
            if newest != known and self.phase == rank_link.RUN:
                known, self.wish = newest, newest // 1000
                await self._tell_all()
            if self.wish and all(member.kept >= self.wish for member in self.members.values()):
                self.wish = 0
                with contextlib.suppress(OSError):
                    files.write_in_place(paths.others, f"{time.time()}\n")

    def publish(self) -> None:
        state = {
            "generation": self.generation,
            "phase": self.phase,
            "updated": round(time.time(), 3),
            "ranks": {
                self.settings.head_address: self.instance,
                **{member.address: member.instance for member in self.members.values()},
            },
            "signs": {
                host: signs
                for host, signs in (
                    (self.settings.host, self.rank.signs),
                    *((member.host, member.signs) for member in self.members.values()),
                )
                if signs
            },
            "stale": {member.host: member.stale for member in self.members.values() if member.stale},
        }
        with contextlib.suppress(OSError):
            serving.write_file(self.settings.state_path, json.dumps(state, indent=1) + "\n")
