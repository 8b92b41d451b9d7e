# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""What the hosts of a group know of it, and the connection between the head and a worker."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from .._lib import files, foreign
from . import generation, hang, serving
from .engines import registry
from .rank_state import STATE

CONFIG = "/etc/sparkthor/group.json"
GATHER, PREPARE, RUN = "gather", "prepare", "run"
STANDBY, PREPARED, RUNNING, FAILED = "standby", "prepared", "running", "failed"
#: exit status of a program that ended so that systemd starts it anew; nothing is wrong with this host
AGAIN = 75
LINE_LIMIT = 65536
#: whatever a connection that breaks may raise
BROKEN = (OSError, ValueError, asyncio.TimeoutError, asyncio.LimitOverrunError, KeyError)


@dataclasses.dataclass(frozen=True)
class RankLinkSettings:
    """What a host knows of the group; everything but times comes from the role."""

    host: str
    head: str
    head_address: str
    port: int
    #: control address -> host of every member, the head among them
    members: Mapping[str, str]
    command: list[str]
    #: the name of the engine's file in engines/
    engine: str = registry.DEFAULT.name
    #: ``ADDRESS:PORT`` on which this host's part has to listen before the head's begins; empty where it need not
    listen: str = ""
    #: seconds until it must
    listen_patience: float = 60.0
    #: files whose change means that a running rank is not what the play declared
    inputs: list[str] = dataclasses.field(default_factory=list)
    state_path: str = STATE
    watchdog_state: str = serving.STATE
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
    #: where the watchdog asks for what the ranks do, and where this host says what it did
    hang: hang.Paths = dataclasses.field(default_factory=hang.Paths)
    #: run after each end of the rank, where killing its processes is not enough
    cleanup: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RankLinkSettings:
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})

    @property
    def is_head(self) -> bool:
        return self.host == self.head

    @property
    def workers(self) -> list[str]:
        return [name for name in self.members.values() if name != self.head]


class GroupError(Exception):
    """What keeps this host out of the group, and the fix."""


class RankError(GroupError):
    """Why this host's rank cannot be started."""


class WrongToken(GroupError):
    """Another token than the other side's; systemd gives a program the token of its start."""


def proof(token: str, role: str, *parts: str) -> str:
    """That its sender holds the token, good for this one connection."""
    return hmac.new(token.encode(), "\0".join((role, *parts)).encode(), hashlib.sha256).hexdigest()


def say(text: str) -> None:
    print(text, flush=True)


def remembered(path: str) -> int:
    """The highest generation that this host took part in."""
    return generation.known(files.read_json(path).get("generation")) if path else 0


def remember(path: str, number: int) -> None:
    if not path:
        return
    try:
        serving.write_file(path, json.dumps({"generation": number}) + "\n")
    except OSError as error:
        raise GroupError(f"{path} cannot be written: {error.strerror}; free the disk of this host") from error


class RankLink:
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
        return foreign.parse_object(line, LINE_LIMIT)

    def close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self.writer.close()
