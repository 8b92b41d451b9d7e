# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root's part of the page; what a wish comes to is in tests/integration/page as well."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    console_hands,
    control,
    on_demand,
    on_demand_service,
    watchdog_hands,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front

CONFIG = {"groups": [{"name": "a", "beside": "", "here": True}, {"name": "b", "beside": "", "here": False}]}
WISH: dict[str, Any] = {"do": "stop", "group": "", "reason": "cables", "id": "0" * 8, "who": "anna", "address": "::1"}


class Moved:
    """In the place of ``control.Control``."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem
        #: whether requests do not end in the time that they have
        self.overdue = False
        self.asked: list[tuple[str, str, float]] = []

    def apply(self, state: str, reason: str, seconds: float) -> control.Outcome:
        self.asked.append((state, reason, seconds))
        if self.problem:
            raise self.problem
        if self.overdue and seconds:
            raise control.StillRunning("2 requests are still running")
        return control.Outcome(True, ["stop it"])


@pytest.fixture(name="made")
def _made(tmp_path: Path) -> tuple[console_hands.ConsoleHands, Moved]:
    moved = Moved()
    audit, controller = str(tmp_path / "audit"), str(tmp_path / "controller")
    made = console_hands.ConsoleHands(CONFIG, lambda _group, _check: moved, lambda *_: (1, "", ""), audit, controller)  # type: ignore[arg-type,return-value]
    return made, moved


def test_a_wish_says_who_and_why(made: tuple[console_hands.ConsoleHands, Moved]) -> None:
    hands, moved = made
    job = hands.act(WISH)
    while job["state"] == "running":
        pass
    assert moved.asked == [("stopped", "stopped by anna: cables", 600.0)]
    assert (job["state"], job["text"]) == ("done", "stop it")
    # the same wish is not done again
    assert hands.act(WISH) is job
    assert len(moved.asked) == 1


def test_a_wish_that_fails_says_so(made: tuple[console_hands.ConsoleHands, Moved]) -> None:
    hands, moved = made
    moved.problem = control.ControlError("2 requests are still running")
    job = hands.act(WISH)
    while job["state"] == "running":
        pass
    assert (job["state"], job["text"]) == ("failed", "2 requests are still running")


@pytest.mark.parametrize("verb", ["restart", "stop", "drain"])
def test_requests_have_a_time_to_end_and_no_more(made: tuple[console_hands.ConsoleHands, Moved], verb: str) -> None:
    """As the dialog says it: after that time a restart and a stop happen, and a drain stays."""
    hands, moved = made
    moved.overdue = True
    job = hands.act({**WISH, "do": verb})
    while job["state"] == "running":
        time.sleep(0.01)
    seconds = [asked[2] for asked in moved.asked]
    if verb == "drain":
        assert (job["state"], seconds) == ("failed", [600.0])
    else:
        assert (job["state"], job["text"]) == ("done", "stop it; break off what still ran")
        assert seconds == [console_hands.PATIENCE[verb], 0.0]


def test_a_wish_that_ends_by_a_fault_keeps_no_other(made: tuple[console_hands.ConsoleHands, Moved]) -> None:
    hands, moved = made
    moved.problem = KeyError("units")
    job = hands.act(WISH)
    end = time.monotonic() + 5
    while job["state"] == "running" and time.monotonic() < end:
        time.sleep(0.01)
    assert (job["state"], job["text"]) == ("failed", "KeyError('units')")
    moved.problem = None
    hands.act({**WISH, "id": "1" * 8})


@pytest.mark.parametrize("torn", ['{"blocked": ["max"', '{"blocked": "max"}'])
def test_a_torn_list_of_blocked_keys_is_not_written_anew(tmp_path: Path, torn: str) -> None:
    """It names keys that stay out, and a list of the new one alone would let them in."""
    (tmp_path / "front.good").mkdir()
    (tmp_path / "front.good" / "keys.conf").write_text(front.key_map([front.NamedKey("web", "a" * 20)]))
    audit, blocked = str(tmp_path / "audit"), tmp_path / "blocked"
    blocked.write_text(torn)
    given: dict[str, Any] = {"audit": audit, "front": str(tmp_path), "blocked": str(blocked)}
    hands = console_hands.ConsoleHands(CONFIG, runner=lambda *_: (0, "", ""), **given)
    job = hands.act({**WISH, "do": "block", "key": "web"})
    while job["state"] == "running":
        time.sleep(0.01)
    assert job["state"] == "failed"
    assert f"{blocked} " in job["text"]
    assert blocked.read_text() == torn


@pytest.mark.parametrize(
    "more",
    [
        {"do": "reboot"},
        {"group": "b"},
        {"group": ["b"]},
        {"reason": ""},
        {"reason": "x" * 201},
        {"id": "/"},
        {"who": "An na"},
        {"who": None},
        {"address": "x y"},
        {"since": True},
        # no float holds it, and what cannot be reckoned with would end root's part
        {"since": 10**400},
        {"do": "block", "key": "web"},
        {"do": "block", "key": "anna"},
        {"do": "block", "key": "default"},
    ],
)
def test_a_wish_that_is_none_is_refused_and_written_down(
    made: tuple[console_hands.ConsoleHands, Moved], more: dict[str, Any]
) -> None:
    hands, moved = made
    with pytest.raises(console_hands.ConsoleRefused):
        hands.act({**WISH, **more})
    assert moved.asked == []
    assert [line["state"] for line in hands.audit()] == ["refused"]


def test_the_audit_is_bounded(made: tuple[console_hands.ConsoleHands, Moved]) -> None:
    hands, _moved = made
    for number in range(console_hands.AUDIT_LINES + 5):
        with pytest.raises(console_hands.ConsoleRefused):
            hands.act({"do": str(number)})
    assert len(hands.audit()) == console_hands.AUDIT_LINES


def test_the_journal_of_other_units_is_not_read(made: tuple[console_hands.ConsoleHands, Moved]) -> None:
    hands, _moved = made
    for group, of, lines in (("b", "engine", 5), ("", "sshd", 5), ("", "engine", 5000), ("", "engine", 0)):
        with pytest.raises(console_hands.ConsoleRefused):
            hands.journal(group, of, lines)


def test_the_guard_does_nothing_else(made: tuple[console_hands.ConsoleHands, Moved]) -> None:
    guard = console_hands.ConsoleGuard(made[0], watchdog_hands.Hands())
    for what in ("run", "write", "remove", "token", "shell", None):
        with pytest.raises(OSError, match="does not do that"):
            guard.answer({"do": what, "argv": ["id"], "path": "/etc/shadow", "text": "x"})
    assert guard.answer({"do": "act", "wish": "x"})["status"] == 400


def test_the_journal_is_masked_and_short() -> None:
    lines = [
        {"MESSAGE": "api_key=sk-abcdefghijklmnopqrstuvwx", "__REALTIME_TIMESTAMP": "1700000000000000"},
        {"MESSAGE": [1, 2], "__REALTIME_TIMESTAMP": "1"},
        {"MESSAGE": "x" * 5000, "__REALTIME_TIMESTAMP": "2000000"},
        {"MESSAGE": "no time"},
    ]
    found = console_hands.parsed("\n".join([*map(json.dumps, lines), "{", ""]))
    assert [at for at, _text in found] == [1.7e9, 2.0]
    assert "abcdefghijklmnop" not in found[0][1]
    assert len(found[1][1]) == 1000


def test_keys_are_those_of_the_front_proxy_and_a_block_stays_only_if_it_is_taken(tmp_path: Path) -> None:
    (tmp_path / "front.good").mkdir()
    names = {"a" * 20: "default", "b.c" * 9: "web", "d" * 20: "anna", "e" * 20: "previous"}
    keys = tmp_path / "front.good" / "keys.conf"
    keys.write_text(front.key_map([front.NamedKey(name, key) for key, name in names.items()]))
    ran: list[list[str]] = []
    status = [0]

    def runner(argv: list[str], _seconds: float) -> tuple[int, str, str]:
        ran.append(argv)
        return status[0], "", "nginx refuses it"

    file = tmp_path / "blocked"
    hands = console_hands.ConsoleHands(
        CONFIG, runner=runner, audit=str(tmp_path / "audit"), front=str(tmp_path), blocked=str(file)
    )
    assert hands.keys() == ["anna", "default", "previous", "web"]
    with pytest.raises(console_hands.ConsoleRefused, match="sparkthor_drop_old=true"):
        hands.act({**WISH, "do": "block", "key": "previous"})

    def ends(do: str, number: int) -> tuple[str, list[str]]:
        job = hands.act({**WISH, "do": do, "key": "web", "id": f"{number:08}"})
        while job["state"] == "running":
            pass
        return job["state"], hands.blocked()

    assert ends("block", 1) == ("done", ["web"])
    assert file.stat().st_mode & 0o777 == 0o600
    assert ends("block", 2) == ("done", ["web"])
    status[0] = 1
    assert ends("unblock", 3) == ("failed", ["web"])
    status[0] = 0
    # also of a key that is gone: one that is made anew under its name would be blocked as well
    keys.write_text("")
    assert ends("unblock", 4) == ("done", [])
    with pytest.raises(console_hands.ConsoleRefused, match="knows no such key"):
        hands.act({**WISH, "do": "unblock", "key": "web"})
    assert ran == [["systemctl", "reload", "sparkthor-front.service"]] * 3


def test_a_block_that_is_not_taken_undoes_no_other(tmp_path: Path) -> None:
    (tmp_path / "front.good").mkdir()
    text = front.key_map([front.NamedKey("web", "a" * 20), front.NamedKey("max", "b" * 20)])
    (tmp_path / "front.good" / "keys.conf").write_text(text)
    began, goes_on, answers = threading.Event(), threading.Event(), iter((1, 0))

    def runner(_argv: list[str], _seconds: float) -> tuple[int, str, str]:
        status = next(answers)
        if status:
            began.set()
            goes_on.wait(10)
        return status, "", "nginx refuses it"

    audit, blocked = str(tmp_path / "audit"), str(tmp_path / "blocked")
    hands = console_hands.ConsoleHands(CONFIG, runner=runner, audit=audit, front=str(tmp_path), blocked=blocked)
    first = hands.act({**WISH, "do": "block", "key": "web", "id": "1" * 8})
    assert began.wait(10)
    second = hands.act({**WISH, "do": "block", "key": "max", "id": "2" * 8})
    # time for it to end, if nothing held it
    time.sleep(0.2)
    goes_on.set()
    while "running" in (first["state"], second["state"]):
        time.sleep(0.01)
    assert (first["state"], second["state"], hands.blocked()) == ("failed", "done", ["max"])


def test_the_page_may_ask_for_what_playbooks_found(made: tuple[console_hands.ConsoleHands, Moved]) -> None:
    hands, _moved = made
    hands.checks = lambda: {"doctor": None, "drift": None}
    guard = console_hands.ConsoleGuard(hands, watchdog_hands.Hands())
    assert guard.answer({"do": "checks"}) == {"doctor": None, "drift": None}


def test_a_service_that_wakes_nobody_is_said(tmp_path: Path) -> None:
    with pytest.raises(control.ControlError, match="sparkthor-on-demand"):
        console_hands.wake("embed", str(tmp_path / "wake.sock"))


def test_a_group_is_woken_as_a_request_does_it(tmp_path: Path) -> None:
    turns = on_demand_service.Turns({"embed": on_demand.Policy()}, clock=lambda: 10000.0)
    turns.seen = on_demand.DemandSeen(now=10000.0, minute=0.0)
    path, ended = str(tmp_path / "wake.sock"), threading.Event()
    with on_demand_service.listen(path) as made:
        thread = threading.Thread(target=on_demand_service.serve, args=(turns, made, ended))
        thread.start()
        try:
            assert console_hands.wake("embed", path) == "The model was asleep and is being started."
            with pytest.raises(control.ControlError):
                console_hands.wake("other", path)
        finally:
            ended.set()
            thread.join(10)
    assert turns._wishes == {"embed": 10000.0}
