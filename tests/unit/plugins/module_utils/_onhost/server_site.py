# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A group of llama.cpp on three addresses of loopback, with its watchdog: the stand-in's programs or the real ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import peer
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import rank_link, serving, watchdog_service
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.llama_cpp import LLAMA_CPP

from tests.unit.plugins.module_utils._onhost.rank_site import HOSTS, Site, alive, until
from tests.unit.plugins.module_utils.serving_head import Systemd, make_service

STAND_IN = Path(__file__).parents[5] / "lab" / "engine" / "llama_stand_in.py"
WORKERS = {"two": "127.0.0.2", "three": "127.0.0.3"}


class Engines:
    """The programs of one group: the same port on each worker's address. ``programs``: the folder of the real ones."""

    def __init__(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, programs: Path | None = None, model: Path | None = None
    ) -> None:
        self.site, self.folder = site, site.folder
        self.socket = self.folder / "s.sock"
        self.programs = programs
        for name in () if programs else ("llama-server", "ggml-rpc-server"):
            (self.folder / name).symlink_to(STAND_IN)
        self.model = model or self.folder / "m.gguf"
        if model is None:
            self.model.write_bytes(b"GGUF" + bytes(64))
        with socket.socket() as free:
            free.bind((WORKERS["two"], 0))
            self.port = free.getsockname()[1]
        monkeypatch.setenv("LLAMA_STAND_IN_LOAD", "0.05")

    def start(self, host: str, **more: Any) -> Any:
        if host == "one":
            # as the unit's folder goes with its end: the program takes no socket that is there
            self.socket.unlink(missing_ok=True)
        return self.site.start(host, **{"engine": "llama_cpp", **self.part(host), **more})

    def program(self, name: str) -> list[str]:
        return [str(self.programs / name)] if self.programs else [sys.executable, str(self.folder / name)]

    @property
    def workers(self) -> str:
        return ",".join(f"{address}:{self.port}" for address in WORKERS.values())

    def part(self, host: str) -> dict[str, Any]:
        if host == "one":
            words = ["--model", str(self.model), "--host", str(self.socket), "--rpc", self.workers]
            words += ["--metrics", "-np", "1"]
            words += ["-c", "2048", "-t", "1", "-ngl", "99", "--cache-ram", "0", "-lv", "4"] if self.programs else []
            return {"command": [*self.program("llama-server"), *words]}
        place = WORKERS[host]
        words = ["-H", place, "-p", str(self.port)]
        return {"command": [*self.program("ggml-rpc-server"), *words], "listen": f"{place}:{self.port}"}

    def start_by_files(self, store: Path) -> None:
        """As the plan's files have it: a file of options for each host, and the model's folder in the store."""
        store.mkdir()
        (store / "m.gguf").symlink_to(self.model)
        told: dict[str, dict[str, Any]] = {
            host: {"host": address, "port": self.port} for host, address in WORKERS.items()
        }
        options = {"rpc": self.workers, "metrics": True, "cache-ram": 0, "ctx-size": 256, "parallel": 1, "fit": "off"}
        told["one"] = {"model": str(store), "host": str(self.socket), "alias": "m,other", **options}
        for host in HOSTS.values():
            path = self.folder / f"{host}.yaml"
            path.write_text("".join(f"{name}: {json.dumps(value)}\n" for name, value in told[host].items()))
            name = "llama-server" if host == "one" else "ggml-rpc-server"
            self.start(host, command=[*self.program(name), "--config", str(path)])

    async def serves(self) -> None:
        for _time in range(2400):
            if (await asyncio.to_thread(serving.complete, str(self.socket), "m", 30.0, engine=LLAMA_CPP)).ok:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("it does not serve")

    def pid(self, host: str) -> int:
        process = self.site.sides[host].rank.process
        return int(process.pid) if process is not None else 0


def watched(engines: Engines, **settings: Any) -> tuple[watchdog_service.Service, Systemd]:
    """The watchdog of the group, by a clock ten times as fast as its own."""
    folder, systemd = engines.folder, Systemd()
    config = {
        "engine": "llama_cpp",
        "socket": str(engines.socket),
        "model": "m",
        "group_state": str(folder / "state.json"),
        "settings": {"expected": HOSTS, **settings},
    }
    (folder / "serving.json").write_text(json.dumps(config))
    own, _said = make_service(
        folder,
        str(folder / "serving.json"),
        systemd,
        ranks=watchdog_service.group_ranks,
        signs=watchdog_service.group_signs,
        clock=lambda: 10 * time.monotonic(),
    )
    return own, systemd


async def rounds(own: watchdog_service.Service, until_said: str, most: int = 600) -> list[str]:
    """What it says, one round after the other, until these words are among it."""
    lines: list[str] = []
    for _time in range(most):
        decision = await asyncio.to_thread(own.round)
        lines.append(decision.line if decision else "")
        if until_said in lines[-1]:
            return lines
        await asyncio.sleep(0.2)
    raise AssertionError(lines[-5:])


async def a_worker_is_killed(engines: Engines) -> None:
    """The group serves, and ends with the reason."""
    await engines.serves()
    os.kill(engines.pid("three"), signal.SIGKILL)
    assert await engines.site.tasks["one"] == 1
    assert "rank on three failed" in engines.site.sides["one"].failure


async def a_worker_stops_in_a_request(engines: Engines) -> list[str]:
    """What the watchdog says from then on until it has the group started anew, which then serves."""
    site = engines.site
    for name in HOSTS.values():
        engines.start(name, watchdog_state=str(engines.folder / "run" / "state.json"))
    own, systemd = watched(engines)
    await rounds(own, "serving")
    body = json.dumps({"model": "m", "prompt": "x", "max_tokens": 1900, "ignore_eos": True})
    with contextlib.closing(peer.opened(peer.unix(str(engines.socket)), 300)) as client:
        client.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        await until(lambda: "requests_processing 1" in serving.metrics(str(engines.socket)))
        os.kill(engines.pid("two"), signal.SIGSTOP)
        lines = await rounds(own, "restarting")
    assert ["--no-block", "restart", "sparkthor-vllm.service"] in systemd.calls
    pids = [engines.pid(name) for name in HOSTS.values()]
    await site.end("one")
    assert [await site.tasks[name] for name in WORKERS] == [rank_link.AGAIN] * 2
    assert [alive(pid) for pid in pids] == [False] * 3
    for name in HOSTS.values():
        engines.start(name)
    await engines.serves()
    return lines
