# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the hosts without Ansible, as the main process of the serving unit:
# pylint: disable=ansible-bad-function

"""Ranks of the executor C(mp) as one group: started in order, ended together, without Ansible and without Ray.

The same program is the main process of C(sparkthor-vllm.service) on every host and has vLLM as its child.  The head's
listens on its control address; each worker's keeps one connection to it.  A start of the group is a *generation*:

1. gather: the head waits until every worker stands by, which means that no rank of an earlier generation runs there
2. prepare: the head counts the generation up; all hosts drop their page cache
3. run: the head starts its rank, then lets the workers start theirs

What ends a generation ends all of it: the head's program going away (stopped, crashed, restarted with another
configuration) makes the workers end their rank and stand by again; a rank that fails says why to the head, which ends.
A rank that comes back cannot join a generation that runs; the watchdog on the head sees it lost and restarts the unit.

A lower generation never wins: workers remember the highest they took part in, over reboots as well, and the head
starts above all that it hears of.  Both sides prove that they hold the cluster's token; the token itself is not sent.

Installed beside the other files in C(/usr/local/lib/sparkthor), hence the standard library alone.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import hashlib
import hmac
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

try:  # on a host the files lie side by side, without any Ansible
    import _serving
    import _vllm_progress
except ImportError:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
        progress as _vllm_progress,
    )
    from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
        serving as _serving,
    )

CONFIG = "/etc/sparkthor/group.json"
STATE = "/run/sparkthor/vllm/group.json"

GATHER, PREPARE, RUN = "gather", "prepare", "run"
STANDBY, PREPARED, RUNNING, FAILED = "standby", "prepared", "running", "failed"

#: exit status of a program that ended so that systemd starts it anew; nothing is wrong with this host
AGAIN = 75
LINE_LIMIT = 65536


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a host knows of the group; everything but times comes from the role."""

    host: str
    head: str
    head_address: str
    port: int
    #: control address -> host of every member, the head among them
    members: Mapping[str, str]
    command: list[str]
    #: files whose change means that a running rank is not what the play declared
    inputs: list[str] = dataclasses.field(default_factory=list)
    #: files that make the configuration; copies of what served are kept for a rollback
    kept: list[str] = dataclasses.field(default_factory=list)
    good_folder: str = ""
    state_path: str = STATE
    watchdog_state: str = _serving.STATE
    memory_path: str = ""
    drop_request: str = "/run/sparkthor/requests/drop-caches"
    drop_done: str = "/run/sparkthor/caches-dropped"
    heartbeat: float = 2.0
    #: silence after which a connection counts as lost
    silence: float = 8.0
    #: how long a rank outlives its connection to the head
    patience: float = 20.0
    retry: float = 1.0
    drop_patience: float = 20.0
    stop_patience: float = 20.0
    #: run after each end of the rank, where killing its processes is not enough
    cleanup: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Settings:
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})

    @property
    def is_head(self) -> bool:
        return self.host == self.head

    @property
    def workers(self) -> list[str]:
        return [name for name in self.members.values() if name != self.head]


class GroupError(Exception):
    """What keeps this host out of the group, and the mend."""


class WrongToken(GroupError):
    """Another token than the other side's; systemd gives a program the token of its start."""


def proof(token: str, role: str, *parts: str) -> str:
    """That its sender holds the token, good for this one connection."""
    return hmac.new(token.encode(), "\0".join((role, *parts)).encode(), hashlib.sha256).hexdigest()


def say(text: str) -> None:
    print(text, flush=True)


# -- small doors to the host ------------------------------------------------------------------------------------------


def remembered(path: str) -> int:
    """The highest generation that this host took part in."""
    value = _serving.read_json(path).get("generation") if path else 0
    return value if isinstance(value, int) and value >= 0 else 0


def remember(path: str, generation: int) -> None:
    if not path:
        return
    try:
        _serving.write_file(path, json.dumps({"generation": generation}) + "\n")
    except OSError as error:
        raise GroupError(f"{path} cannot be written: {error.strerror}; free the disk of this host") from error


async def drop_caches(settings: Settings) -> str:
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
        with open(settings.drop_request, "w", encoding="ascii") as stream:
            stream.write(f"{time.time()}\n")
    except OSError as error:
        return f"{settings.drop_request}: {error.strerror}"
    end = time.monotonic() + settings.drop_patience
    while time.monotonic() < end:
        if stamp() != before:
            return ""
        await asyncio.sleep(0.1)
    return "sparkthor-drop-caches.service did not answer"


class Rank:
    """vLLM as a child: its log is passed on, the newest lines are kept for the reason of a failure."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.process: asyncio.subprocess.Process | None = None
        self.lines: collections.deque[str] = collections.deque(maxlen=400)
        self.started_with: dict[str, str] = {}
        self.exited = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        self.started_with = _serving.fingerprint(self.settings.inputs)
        hidden = ("NOTIFY_SOCKET", "CREDENTIALS_DIRECTORY", "WATCHDOG_USEC", "WATCHDOG_PID")
        environment = {key: value for key, value in os.environ.items() if key not in hidden}
        self.process = await asyncio.create_subprocess_exec(
            *self.settings.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            limit=LINE_LIMIT,
        )
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
            self.lines.extend(line.decode("utf-8", "replace") for line in whole)

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
        found = _vllm_progress.explain(self.lines)
        return found.reason + (f" (mend: {found.mend})" if found.mend else "")

    def stale(self) -> list[str]:
        """Inputs that are not what the rank was started with."""
        return _serving.differing(_serving.fingerprint(self.settings.inputs), self.started_with)

    async def stop(self) -> None:
        """Orderly, then not: a rank that waits for another one ignores SIGTERM."""
        if self.process is None:
            return
        for number, seconds in ((signal.SIGTERM, self.settings.stop_patience), (signal.SIGKILL, 10.0)):
            if self.process.returncode is not None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.process.wait(), seconds)
        # children of vLLM share its session and must not outlive it
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self.settings.cleanup:
            # a container is no child of ours: Docker's client that was killed leaves it running
            cleaner = await asyncio.create_subprocess_exec(*self.settings.cleanup, stdin=asyncio.subprocess.DEVNULL)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(cleaner.wait(), 15.0)
        await self._drained()


class Link:
    """One connection: JSON by the line, with a beat in both directions."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silence: float) -> None:
        self.reader = reader
        self.writer = writer
        self.silence = silence

    async def send(self, **message: Any) -> None:
        self.writer.write(json.dumps(message).encode() + b"\n")
        await asyncio.wait_for(self.writer.drain(), self.silence)

    async def receive(self) -> dict[str, Any]:
        line = await asyncio.wait_for(self.reader.readline(), self.silence)
        if not line:
            raise ConnectionError("the other side closed the connection")
        message = json.loads(line)
        if not isinstance(message, dict):
            raise ValueError("not a message of the group")
        return message

    def close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self.writer.close()


#: whatever a connection that breaks may raise
BROKEN = (OSError, ValueError, asyncio.TimeoutError, asyncio.LimitOverrunError, KeyError)


# -- the head ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Member:
    """A worker that is connected."""

    host: str
    address: str
    instance: str
    link: Link
    state: str = STANDBY
    generation: int = 0
    stale: list[str] = dataclasses.field(default_factory=list)


class Head:
    """The head's side: who is there, which generation runs, and its own rank."""

    def __init__(self, settings: Settings, token: str, talk: Callable[[str], None] = say) -> None:
        self.settings = settings
        self.token = token
        self.say = talk
        self.rank = Rank(settings)
        self.instance = secrets.token_hex(8)
        self.phase = GATHER
        self.generation = remembered(settings.memory_path)
        self.members: dict[str, Member] = {}
        self.admitted: dict[str, str] = {}
        self.news = asyncio.Event()
        self.failure = ""
        self.complaints: set[str] = set()
        self.beat: asyncio.Task[None] | None = None

    async def run(self) -> int:
        server = await asyncio.start_server(
            self._serve, self.settings.head_address, self.settings.port, limit=LINE_LIMIT
        )
        self.beat = asyncio.create_task(self._beat())
        try:
            await self._gather()
            await self._prepare()
            return await self._serve_generation()
        finally:
            if self.beat is not None:
                self.beat.cancel()
            # the workers hear it before the own rank takes its time to stop
            server.close()
            for member in list(self.members.values()):
                member.link.close()
            await self.rank.stop()

    # -- the three steps ------------------------------------------------------------------------------------------

    def _absent(self, state: str) -> list[str]:
        return [
            host
            for host in self.settings.workers
            if host not in self.members
            or self.members[host].state != state
            or (state == PREPARED and self.members[host].generation != self.generation)
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
            if state == PREPARED and any(host not in self.members for host in self.settings.workers):
                return

    async def _gather(self) -> None:
        await self._until(STANDBY, "waiting for")

    async def _prepare(self) -> None:
        while True:
            self.generation += 1
            remember(self.settings.memory_path, self.generation)
            self.phase = PREPARE
            self.say(f"generation {self.generation}: all {len(self.settings.members)} hosts are here")
            await self._tell_all()
            trouble = await drop_caches(self.settings)
            if trouble:
                self.say(f"page cache not dropped on {self.settings.host}: {trouble}")
            await self._until(PREPARED, "waiting for the page cache of")
            if not self._absent(PREPARED):
                return
            # a host went away meanwhile: the generation never ran, the next one gathers anew
            self.phase = GATHER
            await self._tell_all()
            await self._gather()

    async def _serve_generation(self) -> int:
        self.admitted = {host: self.members[host].instance for host in self.settings.workers}
        await self.rank.start()
        self.phase = RUN
        self.publish()
        await self._tell_all()
        _serving.notify(f"READY=1\nSTATUS=generation {self.generation}")
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

    # -- connections ----------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(reader, writer, self.settings.silence)
        member: Member | None = None
        try:
            member = await self._welcome(link)
            await link.send(**self._word(member))
            while True:
                message = await link.receive()
                if message["state"] != member.state or message.get("generation", 0) != member.generation:
                    self.news.set()
                member.state = str(message["state"])
                member.generation = int(message.get("generation") or 0)
                member.stale = [str(path) for path in message.get("stale") or []]
                if member.state == FAILED and self.admitted.get(member.host) == member.instance:
                    self.failure = f"rank on {member.host} failed: {message.get('reason') or 'no reason in its log'}"
                    self.news.set()
        except BROKEN:
            pass  # what a broken connection means is decided by who is absent
        finally:
            link.close()
            if member is not None and self.members.get(member.host) is member:
                del self.members[member.host]
            self.news.set()

    async def _welcome(self, link: Link) -> Member:
        nonce = secrets.token_hex(16)
        await link.send(nonce=nonce)
        hello = await link.receive()
        host, instance, theirs = str(hello["host"]), str(hello["instance"]), str(hello["nonce"])
        if not hmac.compare_digest(str(hello["proof"]), proof(self.token, "worker", nonce, theirs, host, instance)):
            self._complain(host, "has another token; run the playbook on all hosts")
            await link.send(refused="this host's token is not the head's; run the playbook on all hosts", token=True)
            raise ValueError("wrong token")
        if host not in self.settings.workers:
            self._complain(host, "is no member of this group")
            await link.send(refused=f"{host} is no member of the group of {self.settings.host}; see its inventory")
            raise ValueError("no member")
        address = next(where for where, name in self.settings.members.items() if name == host)
        member = Member(host, address, instance, link)
        seen = int(hello.get("generation") or 0)
        if seen > self.generation and self.phase == GATHER:
            self.generation = seen
        former = self.members.get(host)
        if former is not None:
            former.link.close()
        member.state = str(hello.get("state") or STANDBY)
        member.generation = int(hello.get("running") or 0)
        self.members[host] = member
        self.complaints.discard(host)
        await link.send(proof=proof(self.token, "head", theirs, nonce))
        self.news.set()
        return member

    def _complain(self, host: str, text: str) -> None:
        if host not in self.complaints:
            self.complaints.add(host)
            self.say(f"{host} {text}")

    def _word(self, member: Member) -> dict[str, Any]:
        """What a worker is told; a rank that was not there at the start is not let into a generation that runs."""
        mine = self.phase != RUN or self.admitted.get(member.host) == member.instance
        return {"phase": self.phase, "generation": self.generation, "admitted": mine, "served": self._served()}

    def _served(self) -> bool:
        """Whether the watchdog has seen a completion of this very start."""
        memory = _serving.read_json(self.settings.watchdog_state).get("memory") or {}
        invocation = os.environ.get("INVOCATION_ID", "")
        return self.phase == RUN and bool(memory.get("served")) and memory.get("invocation") == invocation

    async def _tell_all(self) -> None:
        for member in list(self.members.values()):
            with contextlib.suppress(*BROKEN):
                await member.link.send(**self._word(member))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.settings.heartbeat)
            await self._tell_all()

    # -- what others on the head read -----------------------------------------------------------------------------

    def publish(self) -> None:
        state = {
            "generation": self.generation,
            "phase": self.phase,
            "updated": round(time.time(), 3),
            "ranks": {
                self.settings.head_address: self.instance,
                **{member.address: member.instance for member in self.members.values()},
            },
            "stale": {member.host: member.stale for member in self.members.values() if member.stale},
        }
        with contextlib.suppress(OSError):
            _serving.write_file(self.settings.state_path, json.dumps(state, indent=1) + "\n")


# -- a worker ---------------------------------------------------------------------------------------------------------


class Worker:
    """A worker's side: stand by, start the rank when told, end it when the generation ends."""

    def __init__(self, settings: Settings, token: str, talk: Callable[[str], None] = say) -> None:
        self.settings = settings
        self.token = token
        self.say = talk
        self.rank = Rank(settings)
        self.instance = secrets.token_hex(8)
        self.state = STANDBY
        self.generation = 0
        self.said = ""
        self.said_at = 0.0
        self.kept_good = False
        # systemd read the environment then; a rank must not start with one that was declared anew since
        self.born_with = _serving.fingerprint(settings.inputs)

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
                    return AGAIN
                if self.state == RUNNING:
                    now = time.monotonic()
                    lost_at = now if connected or lost_at is None else lost_at
                    if now - lost_at > self.settings.patience:
                        self.say(f"{self.settings.head} is away for {now - lost_at:.0f} s: a rank alone serves nobody")
                        return AGAIN
                await asyncio.sleep(self.settings.retry)
        finally:
            ended.cancel()
            if talking is not None:
                talking.cancel()
            await self.rank.stop()

    async def _talk(self) -> tuple[str, bool]:
        """One connection to the head until it ends: (why this program should end, whether it came to be)."""
        connected = False
        link: Link | None = None
        beat: asyncio.Task[None] | None = None
        try:
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection(self.settings.head_address, self.settings.port, limit=LINE_LIMIT),
                self.settings.silence,
            )
            link = Link(reader, writer, self.settings.silence)
            await self._introduce(link)
            connected = True
            self._tell(f"standing by for {self.settings.head}" if self.state == STANDBY else "")
            beat = asyncio.create_task(self._beat(link))
            while True:
                verdict = await self._obey(link, await link.receive())
                if verdict:
                    return verdict, connected
        except WrongToken as error:
            return str(error), connected
        except GroupError as error:
            self._tell(str(error))
        except BROKEN as error:
            if self.state == STANDBY:
                self._tell(f"waiting for {self.settings.head} ({str(error) or type(error).__name__})")
        finally:
            if beat is not None:
                beat.cancel()
            if link is not None:
                link.close()
        return "", connected

    async def _introduce(self, link: Link) -> None:
        theirs = str((await link.receive())["nonce"])
        nonce = secrets.token_hex(16)
        await link.send(
            host=self.settings.host,
            instance=self.instance,
            nonce=nonce,
            proof=proof(self.token, "worker", theirs, nonce, self.settings.host, self.instance),
            generation=remembered(self.settings.memory_path),
            state=self.state,
            running=self.generation,
        )
        answer = await link.receive()
        if "refused" in answer:
            error = WrongToken if answer.get("token") else GroupError
            raise error(f"{self.settings.head} refuses: {answer['refused']}")
        if not hmac.compare_digest(str(answer["proof"]), proof(self.token, "head", nonce, theirs)):
            raise WrongToken(f"{self.settings.head} does not hold this cluster's token; run the playbook on all hosts")

    async def _obey(self, link: Link, word: Mapping[str, Any]) -> str:
        """Why this program should end, or nothing."""
        phase, generation = word.get("phase"), int(word.get("generation") or 0)
        if not phase or self.state == FAILED:
            return ""
        if self.state != RUNNING and _serving.differing(_serving.fingerprint(self.settings.inputs), self.born_with):
            return "the configuration has changed: starting anew to read it"
        if self.state == RUNNING:
            if phase != RUN or generation != self.generation or not word.get("admitted"):
                return f"generation {self.generation} has ended, {self.settings.head} is at {generation} ({phase})"
            if word.get("served"):
                self._keep_good()
            return ""
        if phase == PREPARE and (self.state != PREPARED or self.generation != generation):
            highest = remembered(self.settings.memory_path)
            if generation <= highest:
                raise GroupError(
                    f"{self.settings.head} announces generation {generation}, and this host took part in {highest}: "
                    "an older head does not win"
                )
            remember(self.settings.memory_path, generation)
            trouble = await drop_caches(self.settings)
            if trouble:
                self.say(f"page cache not dropped on {self.settings.host}: {trouble}")
            self.state, self.generation = PREPARED, generation
            await self._report(link)
        elif phase == RUN and self.state == PREPARED and generation == self.generation and word.get("admitted"):
            self.say(f"generation {generation}: starting the rank")
            await self.rank.start()
            self.state = RUNNING
            _serving.notify(f"READY=1\nSTATUS=generation {generation}")
            await self._report(link)
        elif phase == GATHER and self.state == PREPARED:
            self.state = STANDBY
            await self._report(link)
        elif phase == RUN:
            self._tell(f"generation {generation} runs without this rank: waiting for the next")
        return ""

    def _keep_good(self) -> None:
        if self.kept_good or not self.settings.good_folder or self.rank.stale():
            return
        self.kept_good = True
        try:
            _serving.keep_good(self.settings.kept, self.settings.good_folder)
        except (OSError, UnicodeDecodeError) as error:
            self.say(f"{self.settings.good_folder} cannot be written: {error}")

    async def _report(self, link: Link, **more: Any) -> None:
        stale = self.rank.stale() if self.state == RUNNING else []
        await link.send(state=self.state, generation=self.generation, stale=stale, **more)

    async def _report_failure(self, link: Link) -> None:
        code = await self.rank.wait()
        self.say(f"the rank ended with {code}")
        self.state = FAILED
        await self._report(link, reason=self.rank.reason() or f"it ended with {code}")
        link.close()

    async def _beat(self, link: Link) -> None:
        with contextlib.suppress(*BROKEN):
            while True:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.rank.exited.wait(), self.settings.heartbeat)
                if self.rank.exited.is_set():
                    await self._report_failure(link)
                    return
                await self._report(link)

    def _tell(self, text: str) -> None:
        now = time.monotonic()
        if text and (text != self.said or now - self.said_at >= 60):
            self.said, self.said_at = text, now
            self.say(text)


# -- what the watchdog and vllm_service read --------------------------------------------------------------------------


def published(path: str = STATE, wall: Callable[[], float] = time.time) -> dict[str, Any]:
    """The head's view, empty where it is absent or no longer kept up."""
    state = _serving.read_json(path)
    updated = state.get("updated")
    return state if isinstance(updated, (int, float)) and abs(wall() - updated) < 30 else {}


def ranks(path: str = STATE) -> dict[str, str] | None:
    """Address of each host that is here -> what changes when its rank is another one; None = nobody knows."""
    found = published(path).get("ranks")
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else None


# -- the process ------------------------------------------------------------------------------------------------------


def read_token(environment: Mapping[str, str]) -> str:
    path = os.path.join(environment.get("CREDENTIALS_DIRECTORY", ""), "ray_token")
    try:
        with open(path, encoding="utf-8") as stream:
            token = stream.read().strip()
    except OSError as error:
        raise GroupError(f"{path}: {error.strerror}; start this through sparkthor-vllm.service") from error
    if not token:
        raise GroupError(f"{path} is empty; run the playbook again")
    return token


async def supervise(settings: Settings, token: str, talk: Callable[[str], None] = say) -> int:
    """Run this host's side until it ends or a signal asks for it."""
    side: Head | Worker = (Head if settings.is_head else Worker)(settings, token, talk)
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(side.run())
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if stopped:
            return 0
        raise
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    path = arguments[0] if arguments else CONFIG
    try:
        settings = Settings.from_dict(_serving.read_json(path))
    except TypeError:
        print(f"{path} is missing or incomplete; run the playbook again", file=sys.stderr, flush=True)
        return 78
    try:
        return asyncio.run(supervise(settings, read_token(os.environ)))
    except (GroupError, OSError) as error:
        print(f"RuntimeError: {error}", file=sys.stderr, flush=True)
        return 1
