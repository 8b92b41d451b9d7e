# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power is switched once.  The socket is a stand-in: a program that notes what it is asked."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import power_guard

from tests.unit.ports import free_port


class World:
    """A guard over hosts b and c, a clock that the test moves, and a stand-in socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0.0
        self.here = {"10.0.0.2": True, "10.0.0.3": True}
        self.said: list[str] = []
        self.plug = folder / "plug"
        self.plug.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n')
        self.plug.chmod(0o755)
        self.guard = self.start()

    def start(self) -> power_guard.PowerService:
        hosts = {
            host: {
                "addresses": [f"10.0.0.{number}"],
                "commands": [[str(self.plug), "off", host], [str(self.plug), "on", host]],
            }
            for number, host in ((2, "b"), (3, "c"))
        }
        return power_guard.PowerService(
            {"after": 900, "pause": 60, "hosts": hosts},
            str(self.folder / "switched.json"),
            reaches=lambda address: self.here[address],
            clock=lambda: self.now,
            sleep=lambda _seconds: None,
            say=self.said.append,
            maintenance_paths=(str(self.folder / "maintenance"),),
            lock=str(self.folder / "lock"),
        )

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 100
            self.guard.round()

    @property
    def asked(self) -> list[str]:
        path = self.folder / "asked"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_power_of_a_lost_host_is_switched_once_and_not_twice(world: World) -> None:
    world.here["10.0.0.2"] = False
    world.pass_time(900)
    assert world.asked == []
    world.pass_time(200)
    assert world.asked == ["off b", "on b"]
    world.pass_time(100000)
    assert world.asked == ["off b", "on b"]
    assert any("b is still away after its power was switched once" in line for line in world.said)
    # neither does a guard that was started anew
    world.guard = world.start()
    world.pass_time(5000)
    assert world.asked == ["off b", "on b"]


def test_a_host_that_came_back_for_a_while_may_be_switched_again(world: World) -> None:
    world.here["10.0.0.2"] = False
    world.pass_time(1100)
    world.here["10.0.0.2"] = True
    world.pass_time(300)
    world.here["10.0.0.2"] = False
    world.pass_time(3000)
    assert world.asked == ["off b", "on b"]
    world.here["10.0.0.2"] = True
    world.pass_time(1000)
    world.here["10.0.0.2"] = False
    world.pass_time(1100)
    assert world.asked == ["off b", "on b"] * 2


def test_a_network_that_is_away_is_no_host(world: World) -> None:
    world.here.update(dict.fromkeys(world.here, False))
    world.pass_time(5000)
    assert world.asked == []
    assert any("a network or a fuse" in line for line in world.said)


def test_neither_is_one_that_takes_the_hosts_away_one_after_the_other(world: World) -> None:
    first, *others = world.here
    world.here[first] = False
    world.pass_time(60)
    world.here.update(dict.fromkeys(others, False))
    world.pass_time(5000)
    assert world.asked == []
    assert any("a network or a fuse" in line for line in world.said)


def test_nobody_is_switched_off_while_somebody_works_on_the_cluster(world: World, tmp_path: Path) -> None:
    world.here["10.0.0.2"] = False
    (tmp_path / "maintenance").write_text("update\n")
    world.pass_time(5000)
    (tmp_path / "maintenance").unlink()
    (tmp_path / "lock").touch()
    world.pass_time(5000)
    assert world.asked == []
    (tmp_path / "lock").unlink()
    # the time before does not count
    world.pass_time(800)
    assert world.asked == []
    world.pass_time(300)
    assert world.asked == ["off b", "on b"]


def test_after_an_off_that_failed_the_power_is_given_back_all_the_same(world: World) -> None:
    world.plug.write_text(f'#!/bin/sh\necho "$@" >> {world.folder}/asked\n[ $1 != off ]\n')
    world.here["10.0.0.2"] = False
    world.pass_time(1100)
    assert world.asked == ["off b", "on b"]
    assert any("command 1 for b" in line and "ended with 1" in line for line in world.said)


def test_an_on_that_fails_is_tried_again(world: World) -> None:
    world.plug.write_text(f'#!/bin/sh\necho "$@" >> {world.folder}/asked\n[ $1 = off ]\n')
    world.here["10.0.0.2"] = False
    world.pass_time(1100)
    assert world.asked == ["off b", *["on b"] * power_guard.TRIES]


def test_what_cannot_be_kept_is_not_done(world: World, tmp_path: Path) -> None:
    world.guard.memory_path = str(tmp_path / "plug" / "switched.json")
    world.here["10.0.0.2"] = False
    world.pass_time(1100)
    assert world.asked == []
    assert sum("cannot be written" in line for line in world.said) == 1
    # there is room again
    world.guard.memory_path = str(tmp_path / "switched.json")
    world.pass_time(100)
    assert world.asked == ["off b", "on b"]


def test_a_kernel_that_refuses_is_there() -> None:
    assert power_guard.answers("127.0.0.1", free_port())
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert power_guard.answers("127.0.0.1", server.getsockname()[1])
    # no machine has this address
    assert not power_guard.answers("255.255.255.255", 22, 0.2)


def test_without_a_host_it_does_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "power.json").write_text(json.dumps({"hosts": {}}))
    assert power_guard.main([str(tmp_path / "power.json")]) == 78
    assert "names no host" in capsys.readouterr().err


def test_a_torn_memory_is_none(tmp_path: Path) -> None:
    (tmp_path / "switched.json").write_text('{"switched": {"b": ')
    assert World(tmp_path).guard.guard.dump() == {"switched": {}}


def test_an_old_lock_holds_nobody_up(world: World, tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    os.utime(tmp_path / "lock", (time.time() - 3600,) * 2)
    assert not world.guard.quiet()
