# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of a fan-out as threads on loopback addresses, each with a folder of its own."""

from __future__ import annotations

import contextlib
import hashlib
import random
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._store.fanout import Node
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.fanout_parts import Parts

from tests.unit.ports import free_port

PART = 1000
FILES = [random.Random(size).randbytes(size) for size in (2500, 0, 1000, 999, 12345)]
KEY = "11" * 32


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def contents(files: list[bytes] | None = None) -> list[list[Any]]:
    return [
        [sha(data), len(data), [sha(data[start : start + PART]) for start in range(0, len(data), PART)]]
        for data in (FILES if files is None else files)
    ]


class Ring:
    """Any number of hosts on 127.0.1.N, begun in any order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.nodes: dict[int, Node] = {}
        self.threads: dict[int, threading.Thread] = {}

    def address(self, number: int) -> str:
        return f"127.0.1.{number}"

    def incoming(self, number: int) -> Path:
        path = self.folder / str(number)
        path.mkdir(exist_ok=True)
        return path

    def source(self, files: list[bytes] | None = None) -> dict[str, str]:
        folder = self.folder / "source"
        folder.mkdir(exist_ok=True)
        for data in FILES if files is None else files:
            (folder / sha(data)).write_bytes(data)
        return {path.name: str(path) for path in folder.iterdir()}

    def begin(
        self, number: int, ups: list[int], behind: list[int] | None = None, local: dict[str, str] | None = None,
        spare: list[str] | None = None, wanted: list[list[Any]] | None = None,
        before: Callable[[Parts], None] = lambda parts: None, **changes: Any,
    ) -> Node:  # fmt: skip
        parts = Parts(str(self.incoming(number)), PART, contents() if wanted is None else wanted)

        def prepare() -> None:
            before(parts)
            parts.adopt(local or {}, spare or [])

        job = {
            "run": "ab" * 8, "node": f"n{number}", "key": KEY, "port": self.port, "listen": [self.address(number)],
            "peers": [self.address(other) for other in range(1, 9)], "names": {}, "streams": 2, "patience": 20,
            "upstreams": [{"node": f"n{up}", "paths": [[self.address(number), self.address(up)]]} for up in ups],
            "hosts": [f"n{other}" for other in range(1, 9)], "behind": [f"n{other}" for other in behind or []],
            **changes,
        }  # fmt: skip
        node = Node(job, parts, str(self.folder / f"{number}.json"))
        self.nodes[number] = node
        self.threads[number] = threading.Thread(target=node.run, args=(prepare,), daemon=True)
        self.threads[number].start()
        return node

    def listening(self, number: int) -> None:
        end = time.monotonic() + 30
        while not self.nodes[number].listeners and time.monotonic() < end:
            time.sleep(0.01)

    def end(self, number: int, seconds: float = 60) -> dict[str, Any]:
        self.threads[number].join(seconds)
        assert not self.threads[number].is_alive(), f"n{number} did not end: {self.nodes[number].own_report()}"
        return self.nodes[number].own_report()

    def close(self) -> None:
        """On a host the process ends; here everything that waits for others is told to stop."""
        for node in self.nodes.values():
            node.error = node.error or "the test is over"
            node.finished.set()
        for thread in self.threads.values():
            thread.join()
        for node in self.nodes.values():
            for listener in node.listeners:
                # closing alone does not wake whoever waits in accept()
                listener.shutdown(socket.SHUT_RDWR)
                listener.close()

    def have(self, number: int) -> dict[str, bytes]:
        found = {}
        for path in self.incoming(number).iterdir():
            # a failed node's streams still rename files here; on a host its process has ended
            with contextlib.suppress(FileNotFoundError):
                found[path.name] = path.read_bytes()
        return found


WHOLE = {sha(data): data for data in FILES}
TOTAL = sum(len(data) for data in FILES)
