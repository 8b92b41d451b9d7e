# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""This host's rank: the engine as a child process, and the page cache that it is started without."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import os
import re
import signal
import sys
import time
from typing import Any

from .._lib import files
from . import hang, life, patience, progress, serving
from .endpoint import TcpEndpoint, endpoint_of
from .engines import registry
from .engines.base import HEAD_FIRST
from .rank_link import LINE_LIMIT, RankError, RankLinkSettings

_PART = re.compile(r"-(\d{5})-of-\d{5}\.")


async def drop_caches(settings: RankLinkSettings) -> str:
    """Ask this host's own system to drop its page cache; empty when it did, or where nobody was to be asked."""
    if not settings.drop_request or not os.path.isdir(os.path.dirname(settings.drop_request)):
        return ""

    def stamp() -> int:
        try:
            return os.stat(settings.drop_done).st_mtime_ns
        except OSError:
            return 0

    before = stamp()
    try:
        # with a container this is root's, in a folder of the serving user's
        files.write_in_place(settings.drop_request, f"{time.time()}\n")
    except OSError as error:
        return f"{settings.drop_request}: {error.strerror}"
    end = time.monotonic() + settings.drop_patience
    while time.monotonic() < end:
        if stamp() != before:
            return ""
        await asyncio.sleep(0.1)
    return "sparkthor-drop-caches.service did not answer"


async def keep_hang(settings: RankLinkSettings) -> None:
    """Have this host's own system keep what the ranks do; back when it has, or when nobody waits any more."""
    before = {settings.hang.taken: hang.stamp(settings.hang.taken)}
    try:
        # with a container this is root's, in a folder of the serving user's
        files.write_in_place(settings.hang.request, f"{settings.head} restarts the engine\n")
    except OSError:
        return
    await asyncio.to_thread(hang.wait, before, hang.DEADLINE)


def served(settings: RankLinkSettings) -> str:
    """The model that the command names, or the configuration in it; empty where that cannot be told."""
    return serving.served_by(settings.command, registry.engine_of({"engine": settings.engine}))


def process_name_of(model: str) -> str:
    """The model's folder without its revision."""
    return model.rpartition("@")[0] or model


def file_in(path: str, ending: str) -> str:
    """The model's file in a folder of the store, or the path itself. Raises ValueError where there is not one of them.

    Of parts ``NAME-00001-of-00003`` the first one is given; a projector of images (``mmproj``) is no model.
    """
    if not os.path.isdir(path):
        return path
    names = [name for name in sorted(os.listdir(path)) if name.endswith(ending) and "mmproj" not in name]
    found = [name for name in names if (part := _PART.search(name)) is None or int(part[1]) == 1]
    if len(found) != 1:
        raise ValueError(f"{path} holds {len(found)} models ({', '.join(found) or 'no ' + ending}), and one is served")
    return os.path.join(path, found[0])


class RankProcess:
    """The engine as a child: its log is passed on, the newest lines are kept for the reason of a failure."""

    def __init__(self, settings: RankLinkSettings) -> None:
        self.settings = settings
        self.engine = registry.engine_of({"engine": settings.engine})
        #: the group's revision of the model, where it is not that of the own configuration
        self.model = ""
        self.process: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Future[asyncio.subprocess.Process] | None = None
        self.lines: collections.deque[str] = collections.deque(maxlen=400)
        self.started_with: dict[str, str] = {}
        self.exited = asyncio.Event()
        #: newest signs of life, kept up by :meth:`look`
        self.signs: dict[str, Any] = {}
        self.said = 0
        self._sampler = life.Sampler(engine=self.engine)
        self._sampling: asyncio.Task[None] | None = None
        self._pump: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def load(self, model: str) -> None:
        """Load this model at the next start, whatever the configuration names."""
        self.model = model if model != served(self.settings) else ""

    def _command(self) -> list[str]:
        """Raises RankError where its configuration, or the model in it, cannot be read."""
        command = list(self.settings.command)
        try:
            if self.engine.spelled and "--config" in command[:-1]:
                path = command[command.index("--config") + 1]
                command = self.engine.spell(command, files.read_plain(path).decode("utf-8", "replace"))
            # a server on a worker is told of no model
            knows = self.settings.is_head or self.engine.launch == HEAD_FIRST
            model = self.model or (served(self.settings) if self.engine.names_model else "")
            command = self.engine.load(command, model) if model and knows else command
            if self.engine.ending and self.engine.model_option in command[:-1]:
                at = command.index(self.engine.model_option) + 1
                command[at] = file_in(command[at], self.engine.ending)
        except (OSError, ValueError) as error:
            raise RankError(f"{self.settings.host}: {error}; run site.yml again") from error
        return command

    async def start(self) -> None:
        """Raises RankError for a command that cannot be run."""
        command = self._command()
        self.started_with = serving.fingerprint(self.settings.inputs)
        hidden = ("NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY", "WATCHDOG_USEC", "WATCHDOG_PID")
        environment = {key: value for key, value in os.environ.items() if key not in hidden}
        self._starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                limit=LINE_LIMIT,
            )
        )
        try:
            # asyncio kills the child alone when its start is cancelled, and never the child's children
            self.process = await asyncio.shield(self._starting)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise RankError(
                f"{command[0]} cannot be started on {self.settings.host}: {why}; run site.yml on this host again"
            ) from error
        self._pump = asyncio.create_task(self._pass_on())
        self._watcher = asyncio.create_task(self._watch(self.process))

    async def _pass_on(self) -> None:
        """Progress bars end in carriage returns, so whole chunks are passed on, not lines."""
        if self.process is None or self.process.stdout is None:
            return
        rest = b""
        while chunk := await self.process.stdout.read(LINE_LIMIT):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            *whole, rest = (rest + chunk).split(b"\n")
            rest = rest[-LINE_LIMIT:]
            lines = [line.decode("utf-8", "replace") for line in whole]
            # an API server logs who asks for its metrics, the watchdog among them, whatever its ranks do
            form = self.engine.log
            self.said += sum(not form.dull.match(progress.plain(line, form)) for line in lines)
            self.lines.extend(lines)

    async def listening(self) -> None:
        """Back when this host's part listens where it has to, or has ended. Raises RankError where it never does."""
        place = endpoint_of(self.settings.listen)
        end = time.monotonic() + self.settings.listen_patience
        while isinstance(place, TcpEndpoint) and not self.exited.is_set() and not place.is_open():
            if time.monotonic() > end:
                raise RankError(
                    f"{self.settings.command[0]} on {self.settings.host} does not listen on {self.settings.listen} "
                    f"after {self.settings.listen_patience:.0f} s; its log says what it waits for"
                )
            await asyncio.sleep(0.05)

    def sample(self, asked: bool) -> None:
        """Take a sample in the background: a driver that hangs must not cost the connection to the head."""
        if not asked or self.process is None:
            self.signs = {}
            self._sampler.forget()
        elif self._sampling is None or self._sampling.done():
            self._sampling = asyncio.create_task(self._sample(self.process.pid))

    async def _sample(self, pid: int) -> None:
        def taken() -> patience.Signs:
            cleanup = self.settings.cleanup
            # the last word is the container's unit
            processes = life.of_container(cleanup[-1]) if cleanup else life.of_session(pid)
            return self._sampler.sample(processes, self.said)

        signs = await asyncio.to_thread(taken)
        self.signs = dataclasses.asdict(signs)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        await process.wait()
        self.exited.set()

    async def wait(self) -> int:
        """Its exit status, once its last words are read."""
        await self.exited.wait()
        await self._drained()
        return self.process.returncode or 0 if self.process is not None else 0

    async def _drained(self) -> None:
        if self._pump is not None:
            # grandchildren may hold the pipe open; what they still say is not waited for
            await asyncio.wait({self._pump}, timeout=1)

    def reason(self) -> str:
        found = progress.explain(self.lines, self.engine.log)
        return found.reason + (f" (fix: {found.fix})" if found.fix else "")

    def stale(self) -> list[str]:
        """Inputs that are not what the rank was started with."""
        return serving.differing(serving.fingerprint(self.settings.inputs), self.started_with)

    async def stop(self) -> None:
        """At once: on SIGTERM engines end requests with half an answer, or wait for them without a limit."""
        if self.process is None and self._starting is not None:
            with contextlib.suppress(OSError, ValueError):
                self.process = await self._starting
        if self.process is None:
            return
        # children of the engine share its session and must not outlive it
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.process.wait(), 10.0)
        if self.settings.cleanup:
            # a container is no child of ours: Docker's client that was killed leaves it running
            cleaner = await asyncio.create_subprocess_exec(*self.settings.cleanup, stdin=asyncio.subprocess.DEVNULL)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(cleaner.wait(), 15.0)
        await self._drained()
