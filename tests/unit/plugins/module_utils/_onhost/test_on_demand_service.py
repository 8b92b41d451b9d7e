# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two groups on one host, with a systemd each; time is the test's."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import control, on_demand, places, serving
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import on_demand_service as service

from tests.unit.plugins.module_utils.serving_head import Systemd

POLICY = {"idle_minutes": 10, "every_minutes": 5, "not_between": "", "ready_timeout": 4500}


class Host:
    """What systemd and the watchdogs of both groups say."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 1000.0
        self.systemd = {"": Systemd(), "embed": Systemd()}
        self.systemd["embed"].unit.update(ActiveState="inactive", SubState="dead")
        for group, more in (("", {"on_demand_groups": {"embed": POLICY}}), ("embed", {"on_demand": True})):
            (folder / f"g{group}").mkdir()
            config = {"unit": f"vllm{group}.service", "socket": str(folder / "none.sock"), **more}
            (folder / f"g{group}/serving.json").write_text(json.dumps(config))
        self.turns = self.begin()

    def begin(self) -> service.Turns:
        config = json.loads((self.folder / "g/serving.json").read_text())
        return service.Turns(
            service.policies_of(config),
            self.control,
            str(self.folder / "lock"),
            str(self.folder / "controller.json"),
            lambda: self.now,
            lambda group: str(self.folder / f"g{group}/state.json"),
        )

    def control(self, group: str, check: bool) -> control.Control:
        own = str(self.folder / f"g{group}")
        lasting, marker = f"{own}/lasting", f"{own}/maintenance"
        return control.Control(
            check,
            *(f"{own}/serving.json", f"{own}/draining", lasting, (lasting, marker)),
            runner=self.systemd[group],
            connections=lambda path: 0,
            sleep=lambda seconds: None,
        )

    def says(self, group: str, state: str = "serving") -> None:
        unit = self.systemd[group].unit
        if state == "serving":
            unit.update(ActiveState="active", SubState="running")
        path = self.folder / f"g{group}/state.json"
        path.write_text(json.dumps({"state": state, "line": f"{state}: 40 %", "updated": time.time()}))

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.turns.round()

    @property
    def active(self) -> tuple[str, str]:
        return self.systemd[""].unit["ActiveState"], self.systemd["embed"].unit["ActiveState"]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    # no time passes in a drain
    monkeypatch.setattr(service.time, "sleep", lambda seconds: None)
    found = Host(tmp_path)
    found.says("")
    found.turns.round()
    return found


def woken(host: Host) -> None:
    host.after(600)
    assert host.turns.answer("embed", True) == (30.0, "The model was asleep and is being started.")
    host.after(1)
    assert host.active == ("inactive", "activating")


def test_a_group_sleeps_until_it_is_asked_for_and_again_when_nobody_does(host: Host) -> None:
    host.after(600)
    # a question is no wish
    host.turns.answer("embed", False)
    host.after(1)
    assert host.active == ("active", "inactive")
    woken(host)
    host.says("embed", "loading")
    host.after(20)
    seconds, line = host.turns.answer("embed", True)
    assert (seconds, line) == (10.0, "The model is not being served right now: loading.")
    host.says("embed")
    host.after(20)
    host.after(300)
    host.turns.take(b"<190>Nov 23 18:00:00 sparkthor_front: embed")
    host.after(599)
    assert host.active == ("inactive", "active")
    host.after(2)
    assert host.active == ("activating", "inactive")
    assert serving.asleep(host.control("", False).markers) is None


def test_the_own_group_is_not_disturbed_while_it_is_used(host: Host) -> None:
    host.after(599)
    host.turns.take(b"<190>Nov 23 18:00:00 sparkthor_front: -")
    host.turns.answer("embed", True)
    host.after(1)
    assert host.active == ("active", "inactive")
    seconds, line = host.turns.answer("embed", True)
    assert (round(seconds), line) == (599, "The model is asleep: the model that serves is in use.")


def test_the_own_group_comes_back_when_it_is_asked_for_and_not_sooner_than_said(host: Host) -> None:
    woken(host)
    host.says("embed")
    host.after(10)
    seconds, line = host.turns.answer("", True)
    assert (seconds, "a short time ago" in line) == (290.0, True)
    host.after(291)
    assert host.active == ("inactive", "active")
    host.turns.answer("", True)
    host.after(1)
    assert host.active == ("activating", "inactive")


def test_a_switch_that_was_broken_off_ends_with_the_own_group(host: Host) -> None:
    # killed when the own group had stopped and the other one was not started, or was
    for running in (False, True):
        host.control("", False).give_way("embed")
        if running:
            host.control("embed", False).wake()
        Path(host.control("", False).draining).touch()
        host.turns = host.begin()
        host.turns.recover()
        assert host.active == ("activating", "inactive")
        assert not Path(host.control("", False).draining).exists()
        assert places.maintenance(host.control("", False).markers) is None
        host.says("")


def test_requests_without_an_end_do_not_keep_two_groups_in_the_memory(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken(host)
    host.says("embed")
    host.systemd["embed"].unit["MainPID"] = "7"
    clock = iter(float(second) for second in range(10_000))
    made = host.turns.control

    def busy(group: str) -> control.Control:
        found = made(group)
        found.connections, found.clock = (lambda path: 1), lambda: next(clock)
        return found

    monkeypatch.setattr(host.turns, "control", busy)
    host.turns.recover()
    assert host.active == ("activating", "inactive")
    assert next(clock) > control.GIVE_WAY


@pytest.mark.parametrize(("said", "down"), [("stopping", True), ("running", False), ("degraded", False), ("", False)])
def test_a_host_that_goes_down_moves_no_group(said: str, down: bool) -> None:
    assert service.shutting_down(lambda argv, seconds: (1, f"{said}\n", "")) is down


def test_an_engine_that_does_not_start_gives_the_host_back(host: Host) -> None:
    woken(host)
    host.systemd["embed"].unit.update(ActiveState="failed")
    host.after(1)
    assert host.active == ("activating", "failed")
    host.says("")
    host.after(1)
    host.turns.answer("embed", True)
    assert host.turns.answer("embed", True)[0] > 100


def test_a_group_that_does_not_stop_keeps_no_other_from_it(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the own group stays away while there is no memory for it."""
    woken(host)
    config = json.loads((host.folder / "g/serving.json").read_text())
    config["on_demand_groups"] = {"clip": POLICY, "embed": POLICY}
    (host.folder / "g/serving.json").write_text(json.dumps(config))
    (host.folder / "gclip").mkdir()
    (host.folder / "gclip/serving.json").write_text(json.dumps({"unit": "vllmclip.service", "on_demand": True}))
    clip = Systemd()
    allowed: list[bool] = []

    def stubborn(argv: list[str], seconds: float) -> tuple[int, str, str]:
        return (1, "", "no") if "stop" in argv and not allowed else clip(argv, seconds)

    monkeypatch.setitem(host.systemd, "clip", stubborn)
    with pytest.raises(control.ControlError):
        host.begin().recover()
    assert (clip.unit["ActiveState"], *host.active) == ("active", "inactive", "inactive")
    allowed.append(True)
    host.begin().recover()
    assert (clip.unit["ActiveState"], *host.active) == ("inactive", "activating", "inactive")


def test_an_order_that_systemd_refuses_leaves_the_own_group(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = host.systemd["embed"]

    def refuses(argv: list[str], seconds: float) -> tuple[int, str, str]:
        return (1, "", "no") if "start" in argv else answered(argv, seconds)

    monkeypatch.setitem(host.systemd, "embed", refuses)
    host.after(600)
    host.turns.answer("embed", True)
    host.after(1)
    assert host.systemd[""].unit["ActiveState"] == "activating"
    assert "the last switch failed" in host.turns.answer("embed", True)[1]


@pytest.mark.parametrize("what", ["glasting", "gembed/lasting", "g/draining", "gembed/draining", "controller.json"])
def test_what_a_person_or_a_playbook_does_is_not_disturbed(host: Host, what: str) -> None:
    host.after(600)
    path = host.folder / what.replace("glasting", "g/lasting")
    path.write_text("cables\n")
    host.turns.answer("embed", True)
    host.after(1)
    assert host.active == ("active", "inactive")
    os.unlink(path)
    host.turns.answer("embed", True)
    host.after(1)
    assert host.active == ("inactive", "activating")


def test_nobody_moves_groups_at_once(host: Host) -> None:
    host.after(600)
    host.turns.answer("embed", True)
    with control.alone(str(host.folder / "lock")):
        host.after(1)
        assert host.active == ("active", "inactive")


@pytest.mark.parametrize(
    ("request_line", "asked"),
    [
        (b"POST /embed HTTP/1.1\r\n\r\n", [("embed", True)]),
        (b"GET / HTTP/1.0\r\nHost: x\r\n\r\n", [("", False)]),
        (b"POST /another HTTP/1.1\r\n\r\n", []),
        (b"POST /../etc HTTP/1.1\r\n\r\n", []),
        (b"POST /embed HTTP/1.1\n\n", []),
        (b"", []),
    ],
    ids=range(6),
)
def test_only_the_name_of_a_group_is_taken(request_line: bytes, asked: list[Any], tmp_path: Path) -> None:
    found: list[Any] = []

    class Told(service.Turns):
        def answer(self, group: str, asks: bool) -> tuple[float, str]:
            found.append((group, asks))
            return 0.2, 'a "line"'

    turns = Told({"embed": on_demand.Policy()})
    made = service.listen(str(tmp_path / "wake.sock"))
    assert os.stat(tmp_path / "wake.sock").st_mode & 0o777 == 0o660
    ended = threading.Event()
    thread = threading.Thread(target=service.serve, args=(turns, made, ended))
    thread.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(tmp_path / "wake.sock"))
        client.settimeout(30)
        client.sendall(request_line)
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as stream:
            answer = stream.read()
    ended.set()
    thread.join(30)
    made.close()
    assert found == asked
    assert (b"Retry-After: 1\r\n" in answer, b'a \\"line\\"' in answer) == (bool(asked), bool(asked))


def test_a_question_that_comes_slowly_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte would begin the limit anew, and the next question is answered after this one."""
    monkeypatch.setattr(service, "QUESTION", 0.3)
    made = service.listen(str(tmp_path / "wake.sock"))
    ended = threading.Event()
    turns: Any = SimpleNamespace(policies={}, answer=lambda group, wakes: (5.0, "asleep"))
    thread = threading.Thread(target=service.serve, args=(turns, made, ended))
    thread.start()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(tmp_path / "wake.sock"))
        client.settimeout(30)
        with contextlib.suppress(OSError):
            client.sendall(b"GET / HTTP/1.1\r\nX: ")
            for _number in range(20):
                client.sendall(b"x")
                threading.Event().wait(0.1)
            client.sendall(b"\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(4096) == b""
    ended.set()
    thread.join(30)
    made.close()


def test_nobody_moves_groups_without_knowing_which_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serving, "CONFIG", str(tmp_path / "serving.json"))
    assert service.main(["--run", str(tmp_path)]) == 1
    assert "serving.json is away or cannot be read; no group is started or stopped" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
