# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""A worker's side of a group of ranks without Ray."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from .._lib import foreign
from . import rank_link, series, serving
from .notify import READY, notify
from .rank_process import RankProcess, drop_caches, keep_hang, served


class Worker:
    """A worker's side: stand by, start the rank when told, end it when the generation ends."""

    def __init__(
        self, settings: rank_link.RankLinkSettings, token: str, talk: Callable[[str], None] = rank_link.say
    ) -> None:
        self.settings = settings
        self.token = token
        self.say = talk
        self.rank = RankProcess(settings)
        self.instance = secrets.token_hex(8)
        self.state = rank_link.STANDBY
        self.generation = 0
        self.said = ""
        self.said_at = 0.0
        self.asked = False
        #: which of the watchdog's wishes this host has answered, and the answer under way
        self.kept = 0
        self._keeping: asyncio.Task[None] | None = None
        #: before this program ends, so that the next one does not come at once
        self.pause = 0.0
        # the settings were read then; a rank must not start with a configuration that was declared anew since
        self.born_with = serving.fingerprint(settings.inputs)

    async def run(self) -> int:
        lost_at: float | None = None
        talking: asyncio.Task[tuple[str, bool]] | None = None
        ended = asyncio.create_task(self.rank.exited.wait())
        try:
            while True:
                talking = asyncio.create_task(self._talk())
                await asyncio.wait({talking, ended}, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    # the connection, where there is one, tells the head why
                    await asyncio.wait({talking}, timeout=3)
                    return 1
                verdict, connected = talking.result()
                if verdict:
                    self.say(verdict)
                    break
                if self.state == rank_link.RUNNING:
                    now = time.monotonic()
                    lost_at = now if connected or lost_at is None else lost_at
                    if now - lost_at > self.settings.patience:
                        self.say(f"{self.settings.head} is away for {now - lost_at:.0f} s: a rank alone serves nobody")
                        return rank_link.AGAIN
                await asyncio.sleep(self.settings.retry)
        finally:
            ended.cancel()
            if talking is not None:
                talking.cancel()
            await self.rank.stop()
        await asyncio.sleep(self.pause)
        return rank_link.AGAIN

    async def _talk(self) -> tuple[str, bool]:
        """One connection to the head until it ends: (why this program should end, whether it came to be)."""
        connected = False
        link: rank_link.RankLink | None = None
        beat: asyncio.Task[None] | None = None
        try:
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection(self.settings.head_address, self.settings.port, limit=rank_link.LINE_LIMIT),
                self.settings.silence,
            )
            link = rank_link.RankLink(reader, writer, self.settings.silence)
            await self._introduce(link)
            connected = True
            self._tell(f"standing by for {self.settings.head}" if self.state == rank_link.STANDBY else "")
            beat = asyncio.create_task(self._beat(link))
            while True:
                verdict = await self._obey(link, await link.receive())
                if verdict:
                    return verdict, connected
        except rank_link.WrongToken as error:
            # only a new start reads another token, and nobody may bring one for days
            if self.settings.memory_path:
                self.pause = series.note_series_start(os.path.dirname(self.settings.memory_path), time.time())
            return str(error), connected
        except rank_link.GroupError as error:
            self._tell(str(error))
        except rank_link.BROKEN as error:
            if self.state == rank_link.STANDBY:
                self._tell(f"waiting for {self.settings.head} ({str(error) or type(error).__name__})")
        finally:
            if beat is not None:
                beat.cancel()
            if link is not None:
                link.close()
        return "", connected

    async def _introduce(self, link: rank_link.RankLink) -> None:
        theirs = str((await link.receive())["nonce"])
        nonce = secrets.token_hex(16)
        await link.send(
            host=self.settings.host,
            instance=self.instance,
            nonce=nonce,
            proof=rank_link.proof(self.token, "worker", theirs, nonce, self.settings.host, self.instance),
            generation=rank_link.remembered(self.settings.memory_path),
            state=self.state,
            running=self.generation,
            model=served(self.settings),
        )
        answer = await link.receive()
        if "refused" in answer:
            error = rank_link.WrongToken if answer.get("token") else rank_link.GroupError
            raise error(f"{self.settings.head} refuses: {answer['refused']}")
        if not hmac.compare_digest(str(answer["proof"]), rank_link.proof(self.token, "head", nonce, theirs)):
            raise rank_link.WrongToken(
                f"{self.settings.head} does not hold this cluster's token; run the playbook on all hosts"
            )

    async def _obey(self, link: rank_link.RankLink, word: Mapping[str, Any]) -> str:
        """Why this program should end, or nothing."""
        self.asked = bool(word.get("overdue"))
        self._keep(link, foreign.whole(word.get("hang") or 0))
        phase, generation = word.get("phase"), foreign.whole(word.get("generation") or 0)
        if not phase or self.state == rank_link.FAILED:
            return ""
        if self.state != rank_link.RUNNING and serving.differing(
            serving.fingerprint(self.settings.inputs), self.born_with
        ):
            return "the configuration has changed: starting anew to read it"
        if self.state == rank_link.RUNNING:
            if phase != rank_link.RUN or generation != self.generation or not word.get("admitted"):
                return f"generation {self.generation} has ended, {self.settings.head} is at {generation} ({phase})"
            return ""
        if phase == rank_link.PREPARE and (self.state != rank_link.PREPARED or self.generation != generation):
            highest = rank_link.remembered(self.settings.memory_path)
            if generation <= highest:
                raise rank_link.GroupError(
                    f"{self.settings.head} announces generation {generation}, and this host took part in {highest}: "
                    "an older head does not win"
                )
            rank_link.remember(self.settings.memory_path, generation)
            # power lost while the hosts were told of a new revision may have left this one another than the head
            self.rank.load(str(word.get("model") or ""))
            problem = await drop_caches(self.settings)
            if problem:
                self.say(f"page cache not dropped on {self.settings.host}: {problem}")
            self.state, self.generation = rank_link.PREPARED, generation
            await self._report(link)
        elif (
            phase == rank_link.RUN
            and self.state == rank_link.PREPARED
            and generation == self.generation
            and word.get("admitted")
        ):
            self.say(f"generation {generation}: starting the rank")
            try:
                await self.rank.start()
                if self.settings.listen:
                    await self.rank.listening()
            except rank_link.RankError as error:
                # the head ends the generation with this reason: nobody must wait for a rank that cannot come
                self.state = rank_link.FAILED
                await self._report(link, reason=str(error))
                return str(error)
            if self.rank.exited.is_set():
                return ""  # the beat tells the head why
            self.state = rank_link.RUNNING
            notify(f"{READY}\nSTATUS=generation {generation}")
            await self._report(link)
        elif phase == rank_link.GATHER and self.state == rank_link.PREPARED:
            self.state = rank_link.STANDBY
            await self._report(link)
        elif phase == rank_link.RUN:
            self._tell(f"generation {generation} runs without this rank: waiting for the next")
        return ""

    def _keep(self, link: rank_link.RankLink, wish: int) -> None:
        """Answer a wish of the watchdog's once, beside all else: the restart waits for it."""
        if self.state != rank_link.RUNNING or wish <= self.kept or (self._keeping and not self._keeping.done()):
            return

        async def keep() -> None:
            await keep_hang(self.settings)
            self.kept = wish
            with contextlib.suppress(*rank_link.BROKEN):
                await self._report(link)

        self._keeping = asyncio.create_task(keep())

    async def _report(self, link: rank_link.RankLink, **more: Any) -> None:
        stale = self.rank.stale() if self.state == rank_link.RUNNING else []
        signs = {"signs": self.rank.signs} if self.rank.signs else {}
        await link.send(state=self.state, generation=self.generation, stale=stale, hang=self.kept, **signs, **more)

    async def _report_failure(self, link: rank_link.RankLink) -> None:
        code = await self.rank.wait()
        self.say(f"the rank ended with {code}")
        self.state = rank_link.FAILED
        await self._report(link, reason=self.rank.reason() or f"it ended with {code}")
        link.close()

    async def _beat(self, link: rank_link.RankLink) -> None:
        with contextlib.suppress(*rank_link.BROKEN):
            while True:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.rank.exited.wait(), self.settings.heartbeat)
                if self.rank.exited.is_set():
                    await self._report_failure(link)
                    return
                self.rank.sample(self.asked)
                await self._report(link)

    def _tell(self, text: str) -> None:
        now = time.monotonic()
        if text and (text != self.said or now - self.said_at >= 60):
            self.said, self.said_at = text, now
            self.say(text)
