# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Chaos without a host: the schedule follows from the seed alone, and the judge finds what made-up runs did wrong."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sparklab import LabError

from tools.chaos import __main__ as command
from tools.chaos import clients, judge, lay, schedule
from tools.faults.faults import FAULTS
from tools.faults.observe import Endpoint, Request
from tools.faults.site import FaultError

HOSTS = ["spark-01", "spark-02", "spark-03"]
PINNED = schedule.Round(
    20,
    (
        schedule.Fault("shutdown", "spark-03", "", 2.4, 24.2, 0.0),
        schedule.Fault("gcs", "spark-01", "", 11.1, 0.0, 0.0),
        schedule.Fault("blocked", "spark-02", "", 35.6, 63.2, 0.0),
    ),
    schedule.Play(0, 0.0),
)


def rounds(seed: int, executor: str = "ray", count: int = 60) -> list[schedule.Round]:
    return [schedule.draw(seed, number, HOSTS, executor) for number in range(1, count + 1)]


# -- the schedule -----------------------------------------------------------------------------------------------------


def test_every_kind_can_be_laid_and_the_fault_table_is_among_them() -> None:
    assert set(lay.LAY) == set(schedule.KINDS)
    assert set(schedule.KINDS) >= lay.BLINDING
    # a power loss of head or worker is one kind here, on a drawn host; the rest needs more than a moment in a round
    alone = {"head", "worker", *(name for name in FAULTS if name.startswith("oom_"))}
    alone |= {"read_only", "half_loss", "renewal", "clock"}
    assert set(FAULTS) - alone <= set(schedule.KINDS)


def test_a_seed_gives_the_same_rounds_and_another_seed_others() -> None:
    assert rounds(7) == rounds(7)
    assert rounds(7) != rounds(8)
    # pinned: a plan that was reported by its seed must not become another one
    assert schedule.draw(7, PINNED.number, HOSTS, "ray") == PINNED


def test_rounds_hold_what_they_promise() -> None:
    drawn = rounds(1, count=400)
    assert {len(each.faults) for each in drawn} == {1, 2, 3}
    assert {fault.kind for each in drawn for fault in each.faults} == set(schedule.KINDS)
    plays = [each.play for each in drawn if each.play]
    assert {play.change for play in plays} == set(range(len(schedule.CHANGES)))
    assert {play.killed > 0 for play in plays} == {False, True}
    for each in drawn:
        assert [fault.at for fault in each.faults] == sorted(fault.at for fault in each.faults)
        for fault in each.faults:
            kind = schedule.KINDS[fault.kind]
            assert 0 <= fault.at <= schedule.SPREAD
            assert (kind.where == "all") == (fault.host == "")
            assert kind.where != "head" or fault.host == HOSTS[0]
            assert (fault.peer != "") == (kind.where == "pair")
            assert fault.peer != fault.host or not fault.peer
            assert fault.amount in (kind.amounts or (0.0,))
            low, high = kind.lasts or (0, 0)
            assert low <= fault.lasts <= high


def test_without_ray_nothing_of_ray_is_struck() -> None:
    drawn = {fault.kind for each in rounds(1, "mp", 400) for fault in each.faults}
    assert drawn == {name for name, kind in schedule.KINDS.items() if kind.executor != "ray"}


def test_a_plan_comes_back_from_its_file_as_it_was() -> None:
    plan = json.loads(json.dumps(schedule.to_plan("mp", 7, rounds(7))))
    assert schedule.from_plan(plan) == ("mp", 7, rounds(7))


# -- the judge --------------------------------------------------------------------------------------------------------


def pulses(*spells: tuple[float, float, str]) -> list[Request]:
    """One a second from the first moment to the second, all with this error."""
    return [
        Request(float(second), second + 0.5, ok=not error, error=error)
        for since, until, error in spells
        for second in range(int(since), int(until))
    ]


def history(**change: Any) -> judge.History:
    """A run in which all is well: an engine dies after 20 s, and 40 s later it is back."""
    made = judge.History(
        requests=[Request(0.0, 5.0, ok=True), Request(15.0, 21.0, error="the stream broke off")],
        pulses=pulses((0, 20, ""), (20, 60, "503: nothing is served"), (60, 100, "")),
        states=[
            (0.0, "serving", "serving"),
            (21.0, "restarting", "restarting: it ended"),
            (61.0, "serving", "serving"),
        ],
        rounds=[judge.Laid(1, ["engine spark-01 at 0 s"], began=20.0, whole=20.0, healed=61.0)],
        last_play=(0, {"spark-01": 0}),
        ended=100.0,
    )
    return dataclasses.replace(made, **change)


def test_a_run_in_which_all_is_well() -> None:
    assert judge.findings(history(), 100.0) == []


SERVING = [(0.0, "serving", "serving")]
LOADING = [(0.0, "serving", "serving"), (21.0, "loading", "loading: 41 %")]
BROKEN = judge.Laid(1, ["link spark-02 at 0 s"], began=20.0, whole=30.0, healed=61.0, troubles=["2 ranks on spark-02"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"states": SERVING}, "at 20 s: the state said 'serving' for 39 s while clients got 503"),
        ({"states": LOADING}, "at 60 s: the state said 'loading: 41 %' for 39 s while completions came through"),
        ({"stale": [(40.0, 12.0), (42.0, 14.0)]}, "at 42 s: the state file was 14 s old"),
        ({"requests": [Request(3.0, 5.0, error="wrong answer: 'a' instead of 'b'")]}, "at 3 s: wrong answer: 'a'"),
        ({"requests": [Request(3.0)], "ended": 400.0}, "a request of 3 s was open for 397 s, allowed 300 s"),
        ({"requests": [Request(3.0, 320.0, ok=True)]}, "a request of 3 s was open for 317 s"),
        ({"rounds": [BROKEN]}, "round 1: 2 ranks on spark-02"),
        ({"rounds": [dataclasses.replace(BROKEN, troubles=[], healed=None)]}, "round 1: did not serve again (link"),
        ({"rounds": [dataclasses.replace(BROKEN, troubles=[], healed=131.0)]}, "round 1: served again 101 s after"),
        ({"leaks": ["api_key in journal of spark-01"]}, "a secret shows: api_key in journal of spark-01"),
        ({"last_play": None}, "the plays at the end were not run"),
        ({"last_play": (2, {})}, "the second site.yml at the end ended with 2"),
        ({"last_play": (0, {"spark-01": 0, "spark-02": 3})}, "the second site.yml at the end changed 3 on spark-02"),
        ({"pulses": []}, "no completion came through: nothing was proved"),
    ],
)
def test_what_did_not_hold_is_found(change: dict[str, Any], said: str) -> None:
    [found] = judge.findings(history(**change), 100.0)
    assert found.startswith(said)


def test_nobody_asks_a_head_without_power_for_the_truth() -> None:
    away = history(states=SERVING, stale=[(42.0, 14.0)], blind=[(19.0, 70.0)])
    assert judge.findings(away, 100.0) == []


def test_a_client_that_cannot_reach_the_head_proves_nothing() -> None:
    cut = history(states=SERVING, pulses=pulses((0, 20, ""), (20, 60, "TimeoutError: timed out"), (60, 100, "")))
    assert judge.findings(cut, 100.0) == []
    # and refusals on both sides of a silence are two spells
    broken = pulses((0, 8, "503: no"), (8, 9, "TimeoutError: timed out"), (9, 17, "503: no"), (17, 100, ""))
    assert judge.findings(history(states=SERVING, pulses=broken), 100.0) == []


def test_a_slow_answer_proves_nothing_of_the_time_that_it_took() -> None:
    # a rank stood still from 20 s to 60 s, the state said so, and the completion that waited came through in the end
    waited = [*pulses((0, 20, "")), Request(20.0, 60.5, ok=True), *pulses((61, 100, ""))]
    states = [(0.0, "serving", "serving"), (22.0, "restarting", "restarting: no token"), (61.0, "serving", "serving")]
    assert judge.findings(history(states=states, pulses=waited), 100.0) == []


# -- answers ----------------------------------------------------------------------------------------------------------


def test_an_answer_is_the_reference_or_its_beginning() -> None:
    assert clients.wrong("one two", "one two", True) == ""
    assert clients.wrong("one", "one two", False) == ""
    assert clients.wrong("one", "one two", True).startswith(judge.WRONG)
    assert clients.wrong("", "one two", False).startswith(judge.WRONG)
    assert clients.wrong("two", "one two", False).startswith(judge.WRONG)


def test_what_an_answer_says() -> None:
    whole = json.dumps({"choices": [{"message": {"content": "one two"}}]})
    assert clients.said(whole, stream=False) == "one two"
    events = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
    events += [{"choices": [{"delta": {"content": word}}]} for word in ("one", " two")]
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    assert clients.said(stream, stream=True) == "one two"


# -- the runner, over hosts that are not there ------------------------------------------------------------------------


class Ground:
    """A lab on which everything is always well, and what was done to it."""

    head = HOSTS[0]
    hosts = HOSTS
    endpoint = Endpoint("127.0.0.1", 1, "key", "model")

    def __init__(self, folder: Path) -> None:
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        self.lab = SimpleNamespace()
        self.inventories: list[Path] = []
        self.done: list[str] = []
        #: how often a host has no rank yet
        self.without_rank = 0
        self.asked = 0

    def ranks(self) -> dict[str, int]:
        self.asked += 1
        return {**dict.fromkeys(HOSTS, 1), HOSTS[0]: int(self.asked > self.without_rank)}

    def surplus(self) -> list[str]:
        return [] if all(self.ranks().values()) else [f"0 ranks on {HOSTS[0]}"]

    def everywhere(self, _command: str) -> dict[str, str]:
        return dict.fromkeys(HOSTS, "")


def strike(site: Any, fault: schedule.Fault) -> None:
    site.done.append(f"lay {fault.kind}")


def undo(site: Any, fault: schedule.Fault) -> None:
    site.done.append(f"undo {fault.kind}")


def refuse(_site: Any, _fault: schedule.Fault) -> None:
    raise FaultError("no such process")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> command.Run:
    monkeypatch.setattr(command, "LAY", {"power": (strike, undo), "link": (strike, undo), "gcs": (refuse, refuse)})
    monkeypatch.setattr(command, "make_whole", lambda site: site.done.append("whole"))
    # a stand-in for the lab
    made = command.Run(Ground(tmp_path), command.CLUSTERS["ray"], tmp_path, "one")  # type: ignore[arg-type]
    made.limit = 0.1
    return made


class Whole:
    """A lab and its site in one, which notes what it is told; its hosts take two tries to come up."""

    def __init__(self, tries: int) -> None:
        self.lab, self.hosts, self.told, self.tries = self, HOSTS, list[str](), tries
        self.plan = SimpleNamespace(host=lambda _name: SimpleNamespace(nics=["eno1"], management="eno1"))

    def wait(self) -> None:
        self.told.append("wait")
        self.tries -= 1
        if self.tries > 0:
            raise LabError("spark-02 is off")

    def __getattr__(self, name: str) -> Any:
        return lambda *_arguments: self.told.append(name)

    def machine(self, _name: str) -> Whole:
        return self


def test_cables_are_whole_before_hosts_are_waited_for() -> None:
    site = Whole(tries=2)
    lay.make_whole(site)  # type: ignore[arg-type]  # a stand-in for the lab
    assert site.told[:13] == ["block_writes", "fix", "rate"] * 3 + ["boot", "wait"] * 2
    assert {"memory", "on", "free_disk", "free_shm", "free_inodes"} <= set(site.told[13:])
    with pytest.raises(LabError, match="spark-02 is off"):
        lay.make_whole(Whole(tries=3))  # type: ignore[arg-type]  # a stand-in for the lab


def test_a_round_lays_undoes_and_waits_until_it_serves(run: command.Run) -> None:
    faults = (
        schedule.Fault("power", HOSTS[0], at=0.0, lasts=0.2),
        schedule.Fault("gcs", HOSTS[0], at=0.05),
        schedule.Fault("link", HOSTS[1], at=0.1, lasts=0.01),
    )
    clients_of = SimpleNamespace(first_success=lambda since: since)
    assert run.round(schedule.Round(1, faults), clients_of, SimpleNamespace(state="serving", newest={}))
    assert run.site.done == ["lay power", "lay link", "undo link", "undo power", "whole"]
    assert (dict(run.laid), dict(run.missed)) == ({"power": 1, "link": 1}, {"gcs": 1})
    # a head without power is the one of them after which nobody can ask for a true state
    [(since, until)] = run.history.blind
    assert until - since > command.SIGHT
    [laid] = run.history.rounds
    assert laid.healed is not None
    assert laid.healed >= laid.whole > laid.began
    assert laid.troubles == []


def test_an_answer_without_its_ranks_is_not_yet_serving_again(run: command.Run) -> None:
    run.site.without_rank, run.limit = 2, 60.0
    clients_of = SimpleNamespace(first_success=lambda since: since)
    assert run.round(schedule.Round(1, ()), clients_of, SimpleNamespace(state="serving", newest={}))
    assert run.site.asked == 5
    assert run.history.rounds[0].troubles == []


def test_a_run_that_is_cut_short_ends_its_play(run: command.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(_site: Any) -> None:
        raise FaultError("no answer")

    def left_to_its_end(_ground: Any, _moment: float, enough: threading.Event) -> str:
        return "ended" if enough.wait(600) else "went on"

    run.site.inventories = [Path("hosts.yml")]
    monkeypatch.setattr(command, "make_whole", torn)
    monkeypatch.setattr(command.Ground, "killed_play", left_to_its_end)
    seen = SimpleNamespace(requests=[], pulses=[], changes=[], stale=[])
    assert not run.round(schedule.Round(1, (), schedule.Play(0, 0.0)), seen, seen)
    assert run.history.rounds[0].troubles == ["the lab cannot be made whole: no answer"]
    run.close(seen, seen)
    assert run.output == "ended"


def test_the_state_counts_again_only_after_all_that_blinds_has_ended(run: command.Run) -> None:
    # the reboot is asked for while the power is off, and is not there to be undone earlier
    first, second = schedule.Fault("power", HOSTS[0], lasts=9.0), schedule.Fault("power", HOSTS[0], at=1.0, lasts=2.0)
    run._deed(first, 0)
    run._deed(second, 0)
    run._deed(second, 1)
    assert len(run.history.blind) == 1
    run._sees_again()
    assert [since for since, _until in run.history.blind] == sorted(
        (since for since, _until in run.history.blind), reverse=True
    )
    assert len(run.history.blind) == 2
    assert run.blinded == {}


def test_what_goes_wrong_outside_of_a_round_is_a_finding_as_well() -> None:
    assert "site.yml at the end failed" in judge.findings(history(troubles=["site.yml at the end failed"]), 100.0)


def test_a_round_that_does_not_serve_ends_the_run(run: command.Run) -> None:
    nobody = SimpleNamespace(first_success=lambda since: None)
    watch = SimpleNamespace(state="loading", newest={"line": "loading: 3 %"})
    assert not run.round(schedule.Round(1, (schedule.Fault("link", HOSTS[1]),)), nobody, watch)
    assert run.history.rounds[0].healed is None


def test_moments_are_told_since_the_run_began(run: command.Run) -> None:
    now = time.monotonic()
    run.zero = now - 10
    seen = SimpleNamespace(changes=[(now, "serving", "serving")], stale=[(now, 12.0)])
    run.close(SimpleNamespace(requests=[Request(now - 3, now - 1, ok=True)], pulses=[Request(now - 2)]), seen)
    assert [(one.begun, one.ended) for one in run.history.requests] == [(pytest.approx(7), pytest.approx(9))]
    assert [(one.begun, one.ended) for one in run.history.pulses] == [(pytest.approx(8), None)]
    assert run.history.states == [(pytest.approx(10), "serving", "serving")]
    assert run.history.stale == [(pytest.approx(10), 12.0)]


def test_a_plan_is_laid_as_it_is_and_a_seed_until_the_time_is_over(run: command.Run) -> None:
    plan = rounds(3, count=2)
    assert list(command.rounds_of(run, 7, 0.0, plan)) == plan
    drawn = command.rounds_of(run, 7, 1.0, None)
    assert next(drawn) == rounds(7)[0]
    run.zero -= 120
    assert list(drawn) == []
