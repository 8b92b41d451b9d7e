# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    observation,
    patience,
    watchdog,
    watchdog_report,
)

from tests.unit.plugins.module_utils._onhost.watchdog_world import ALIVE, World


def restarts(decisions: list[watchdog.Decision]) -> list[str]:
    return [decision.restart for decision in decisions if decision.restart]


def test_load_then_serving() -> None:
    world = World()
    world.listening = False
    first = world.step()
    assert (first.state, first.healthy, first.probe_deadline) == (watchdog.LOADING, False, None)
    world.mark = "Loading weights"
    assert world.step().line == "loading: Loading weights"
    world.listening = True
    assert world.step().probe_deadline == 300  # the first completion may compile
    served = world.step()
    assert (served.line, served.healthy) == ("serving", True)
    assert world.machine.deadline == 20


def test_a_process_that_no_signal_reaches_is_named_and_no_longer_than_it_hangs() -> None:
    world = World()
    world.unit = observation.Unit("activating", "start-pre", "inv-1")
    world.in_the_kernel = {812: "python3", 4: "vllm"}
    assert world.step().line == "starting: preparing the nodes"
    world.in_the_kernel = {812: "python3"}
    assert world.run(18)[-1].line == (
        "starting: preparing the nodes; python3 (process 812) hangs in the kernel for 18 s: a disk or device is silent"
    )
    # one write after the other is no hanging
    for number in range(20):
        world.in_the_kernel = {} if number % 5 == 4 else {812: "python3"}
        assert world.step().line == "starting: preparing the nodes" or number < 4
    world.in_the_kernel = {813: "python3"}
    assert world.step().line == "starting: preparing the nodes"


def test_what_serves_is_told_of_no_process() -> None:
    world = World().serve()
    world.in_the_kernel = {812: "python3"}
    assert {decision.line for decision in world.run(60)} == {"serving"}


def test_first_load_with_progress_is_never_restarted() -> None:
    world = World(load_stall=100)
    world.listening = False
    for number in range(60):
        world.mark = f"shard {number}"
        assert not restarts(world.run(90))
    assert world.machine.restarts == {}


def test_load_that_stands_still_is_restarted() -> None:
    world = World(load_stall=100)
    world.listening = False
    world.mark = "Loading weights"
    decisions = world.run(110)
    assert restarts(decisions) == ["load_stalled"]
    assert decisions[[bool(d.restart) for d in decisions].index(True)].kill


def test_a_server_that_listens_before_it_has_loaded_is_waited_for() -> None:
    """It answers 503 to a completion: no failure before the first answer, and one afterwards."""
    world = World(load_stall=100)
    world.answer = "unready"
    for number in range(10):
        world.mark = f"line {number}"
        decisions = world.run(60)
        assert not restarts(decisions)
        assert {decision.state for decision in decisions} == {watchdog.LOADING}
    # and no longer than a load may be quiet
    assert restarts(world.run(110)) == ["load_stalled"]
    world.answer = "ok"
    world.serve()
    world.answer = "unready"
    assert restarts(world.run(60)) == ["completion"]


@pytest.mark.parametrize(
    ("signs", "minutes"),
    [
        (patience.Signs(cores=0.9), 50),
        (patience.Signs(compilers=2), 50),
        (patience.Signs(cores=0.0), 20),
        (patience.Signs(stopped=True), 20),
        (patience.Signs(), 20),
    ],
)
def test_a_load_that_logs_nothing_gets_more_time_while_a_host_works(signs: patience.Signs, minutes: int) -> None:
    world = World()
    world.listening = False
    world.mark = "Loading weights"
    world.signs = dict.fromkeys(("spark-01", "spark-02", "spark-03"), signs)
    assert not restarts(world.run(minutes * 60 - 10))
    assert restarts(world.run(20)) == ["load_stalled"]


def test_a_refused_first_probe_is_no_failure() -> None:
    world = World()
    world.answer = "refused"
    decisions = world.run(60)
    assert not restarts(decisions)
    assert {decision.state for decision in decisions} == {watchdog.LOADING}


def test_wedged_engine_is_noticed_within_45_s_and_restarted() -> None:
    world = World().serve()
    world.answer = "hang"
    broken = world.now
    while world.step().state == watchdog.SERVING:
        assert world.now - broken <= 45
    assert world.decisions[-1].state == watchdog.DEGRADED
    assert not world.decisions[-1].healthy
    assert world.decisions[-1].detail == "completion timed out after 20 s (1 of 2)"
    while not world.decisions[-1].restart:
        world.step()
        assert world.now - broken <= 45
    assert world.decisions[-1].line == "restarting: completion timed out after 6 s"
    assert world.decisions[-1].kill
    assert world.machine.restarts == {"completion": 1}


def test_engine_core_that_answers_with_errors_is_restarted_soon() -> None:
    world = World().serve()
    world.answer = "http"
    decisions = world.run(20)
    assert restarts(decisions) == ["completion"]


def test_one_failure_is_forgiven() -> None:
    world = World().serve()
    world.answer = "http"
    while world.step().state == watchdog.SERVING:
        pass
    world.answer = "ok"
    decisions = world.run(10)
    assert not restarts(decisions)
    assert decisions[-1].line == "serving"


def test_busy_server_with_prefills_longer_than_the_deadline_for_half_an_hour() -> None:
    world = World().serve()
    world.answer = "hang"
    count = 0.0
    for _unused in range(900):
        count += 1
        # one chunk of a long prefill ends every 14 s
        world.counters = (count // 7,)
        decision = world.step()
        assert decision.state == watchdog.SERVING, decision
        assert decision.healthy
    assert world.machine.restarts == {}
    assert "busy" in world.decisions[-1].detail


def test_a_host_that_stood_still_is_no_wedged_engine() -> None:
    world = World().serve()
    world.answer = "hang"
    world.run(12)
    assert world.asked is not None
    # the watchdog is not run either; when it is, its probe is long over
    world.step(50)
    assert (world.decisions[-1].state, world.decisions[-1].healthy) == (watchdog.SERVING, True)
    assert "the host stood still" in world.decisions[-1].detail
    # an engine that hangs all the same is found by the probes after it
    assert restarts(world.run(60)) == ["completion"]


def test_counters_that_stand_still_do_not_excuse() -> None:
    world = World().serve()
    world.answer = "hang"
    world.counters = (5.0,)
    world.step()
    assert restarts(world.run(60)) == ["completion"]


def test_unreadable_counters_do_not_excuse() -> None:
    world = World().serve()
    world.answer = "hang"
    world.counters = None
    assert restarts(world.run(70)) == ["completion"]


def test_a_rejected_question_never_restarts() -> None:
    world = World().serve()
    world.answer = "rejected"
    decisions = world.run(300)
    assert not restarts(decisions)
    assert decisions[-1].line == "degraded: said no"
    world.answer = "ok"
    assert world.run(20)[-1].line == "serving"


def test_lost_rank_restarts_and_waits_for_it() -> None:
    world = World().serve()
    world.on_restart = False
    del world.ranks["10.0.0.3"]
    first = world.step()
    assert (first.line, first.restart) == ("degraded: waiting for spark-03", None)
    second = world.step()
    assert (second.restart, second.kill) == ("lost_rank", True)
    assert world.machine.missing == ("spark-03",)
    world.unit = observation.Unit("deactivating", "stop-sigterm", "inv-1", 4711)
    assert world.step().line == "restarting: lost rank on spark-03"
    world.unit = observation.Unit("activating", "start-pre", "inv-2", 0)
    decisions = world.run(3000)
    assert {decision.line for decision in decisions} == {"degraded: waiting for spark-03"}
    world.ranks["10.0.0.3"] = "n9"
    assert world.step().state == watchdog.RESTARTING
    world.unit = observation.Unit("active", "running", "inv-2", 5000)
    decisions = world.run(20)
    assert decisions[-1].line == "serving"
    assert not restarts(decisions)
    assert world.machine.baseline["10.0.0.3"] == "n9"


def test_a_raylet_that_was_replaced_between_two_rounds_is_a_lost_rank() -> None:
    world = World().serve()
    world.ranks["10.0.0.2"] = "n22"
    decisions = world.run(4)
    assert decisions[0].line == "degraded: Ray was restarted on spark-02"
    assert restarts(decisions) == ["lost_rank"]


def test_rank_lost_during_a_load_restarts() -> None:
    world = World()
    world.listening = False
    world.step()
    del world.ranks["10.0.0.2"]
    assert restarts(world.run(6)) == ["lost_rank"]


def test_a_blink_of_the_list_is_no_loss() -> None:
    world = World().serve()
    saved = world.ranks
    for _unused in range(10):
        world.ranks = {"10.0.0.1": "n1", "10.0.0.2": "n2"}
        assert world.step().state == watchdog.DEGRADED
        world.ranks = saved
        assert world.step().state == watchdog.SERVING
    assert not restarts(world.decisions)


def test_unknown_ranks_are_not_lost_ranks() -> None:
    world = World().serve()
    world.ranks = None
    decisions = world.run(120)
    assert {decision.state for decision in decisions} == {watchdog.SERVING}


def test_maintenance_keeps_quiet_and_goes_on_measuring() -> None:
    world = World().serve()
    world.maintenance = "new cables"
    assert world.run(20)[-1].healthy
    world.answer = "hang"
    world.ranks = {}
    decisions = world.run(600)
    assert not restarts(decisions)
    assert decisions[-1].line == "maintenance: new cables"
    assert not decisions[-1].healthy
    world.maintenance = None
    world.ranks = dict(ALIVE)
    world.answer = "ok"
    assert not restarts(world.run(40))


def test_a_unit_that_was_stopped_stays_stopped() -> None:
    world = World().serve()
    world.unit = observation.Unit("inactive", "dead", "inv-1", 0)
    world.ranks = {}
    decisions = world.run(600)
    assert {decision.line for decision in decisions} == {"stopped: the serving unit was stopped"}


def test_failed_unit_is_restarted() -> None:
    world = World()
    world.on_restart = False
    world.unit = observation.Unit("failed", "failed", "inv-1", 0, "exit-code")
    assert world.step().restart == "unit_failed"
    assert world.step().restart is None


def test_auto_restart_is_counted_once() -> None:
    world = World().serve()
    world.unit = dataclasses.replace(world.unit, active="activating", sub="auto-restart", main_pid=0, result="signal")
    assert world.step().line == "restarting: the engine exited (signal)"
    world.started_anew(restarts=1)
    assert not restarts(world.run(20))
    assert world.machine.restarts == {"engine_exited": 1}


def test_restarts_that_do_not_help_come_ever_more_slowly() -> None:
    world = World(load_stall=10, backoff_first=15, backoff_max=120)
    world.listening = False
    moments = []
    for _unused in range(600):
        if world.step().restart:
            moments.append(world.now)
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert gaps[:4] == pytest.approx([16, 30, 60, 120], abs=4)
    assert all(gap == pytest.approx(120, abs=4) for gap in gaps[4:])
    assert any("next restart in" in decision.detail for decision in world.decisions)


def test_back_off_is_forgotten_after_a_while_of_serving() -> None:
    world = World(stable_after=60).serve()
    for _unused in range(3):
        world.answer = "http"
        while not world.step().restart:
            assert "next restart" not in world.decisions[-1].detail
        assert world.machine.attempts == 1
        world.answer = "ok"
        world.run(100)
        assert world.machine.attempts == 0


def test_a_rank_lost_again_and_again_is_never_waited_for_with_a_dead_engine() -> None:
    world = World().serve()
    for number in range(5):
        world.ranks["10.0.0.2"] = f"again-{number}"
        assert restarts(world.run(6)) == ["lost_rank"]
        world.run(6)
    assert world.machine.restarts == {"lost_rank": 5}
    assert world.machine.attempts == 0


def test_restart_that_systemd_forgot_is_asked_for_again() -> None:
    world = World(restart_patience=60, backoff_first=10).serve()
    world.on_restart = False
    world.answer = "http"
    while not world.step().restart:
        pass
    asked = world.now
    while not world.step().restart:
        assert world.decisions[-1].state == watchdog.RESTARTING
    assert world.now - asked == pytest.approx(60, abs=2)


def test_draining_is_not_healthy_and_not_restarted() -> None:
    world = World().serve()
    world.draining = True
    decision = world.step()
    assert (decision.state, decision.healthy, decision.restart) == (watchdog.DRAINING, False, None)


def test_deadline_grows_with_what_completions_take() -> None:
    world = World().serve()
    world.latency = 9.0
    world.run(400)
    assert world.machine.deadline == pytest.approx(36)


def test_death_of_the_watchdog_interrupts_nothing() -> None:
    world = World().serve()
    kept = json.loads(json.dumps(world.machine.dump()))
    world.machine = watchdog.Watchdog(world.machine.settings)
    world.machine.restore(kept, world.now)
    decision = world.step()
    assert decision.line == "serving"
    assert decision.healthy
    world.ranks["10.0.0.2"] = "other"
    assert restarts(world.run(6)) == ["lost_rank"]


@pytest.mark.parametrize(
    "data",
    [{"success_at": 9e9, "served": True}, {"served": "yes", "baseline": [1], "attempts": "x"}, {}],
    ids=["another boot", "rubbish", "nothing"],
)
def test_memory_that_cannot_be_ours_is_left_out(data: dict[str, Any]) -> None:
    machine = watchdog.Watchdog(watchdog.Settings())
    machine.restore(data, 100.0)
    assert machine.dump() == watchdog.Watchdog(watchdog.Settings()).dump()


# -- degraded mode -----------------------------------------------------------------------------------------------------

SMALLER = {"degraded_after": 60.0, "degraded_hosts": 2}


def waiting(world: World) -> None:
    """The unit is at its gate, as after a restart that waits for the nodes."""
    number = int(world.unit.invocation.split("-")[1]) + 1
    world.unit = observation.Unit("activating", "start-pre", f"inv-{number}", 0)
    world.listening = False
    world.asked = None


def test_degraded_mode_is_off_by_default() -> None:
    world = World().serve()
    world.on_restart = False
    del world.ranks["10.0.0.3"]
    world.run(6)
    waiting(world)
    assert not restarts(world.run(3600))
    assert world.decisions[-1].line == "degraded: waiting for spark-03"


def test_a_host_that_stays_away_is_done_without_until_it_is_back() -> None:
    world = World(**SMALLER).serve()
    world.on_restart = False
    del world.ranks["10.0.0.3"]
    assert restarts(world.run(6)) == ["lost_rank"]
    waiting(world)
    assert not restarts(world.run(50))
    assert restarts(world.run(12)) == ["degraded"]
    assert world.machine.without == ("10.0.0.3",)
    assert any("spark-03 stayed away for 60 s" in decision.line for decision in world.decisions[-8:])
    waiting(world)
    assert world.step().state != watchdog.DEGRADED or "waiting for" not in world.decisions[-1].line
    world.started_anew()
    world.listening = True
    world.run(10)
    served = world.decisions[-1]
    assert (served.state, served.healthy) == (watchdog.DEGRADED, True)
    assert served.detail == "serving the smaller recipe without spark-03"
    assert not restarts(world.run(300))
    # it blinks: not yet back
    world.ranks["10.0.0.3"] = "n9"
    assert not restarts(world.run(8))
    del world.ranks["10.0.0.3"]
    assert not restarts(world.run(30))
    world.ranks["10.0.0.3"] = "n9"
    assert restarts(world.run(20)) == ["restored"]
    assert world.machine.without == ()
    assert not world.decisions[-1].kill
    world.started_anew()
    assert world.serve().decisions[-1].line == "serving"
    assert world.machine.restarts == {"lost_rank": 1, "degraded": 1, "restored": 1}
    state = watchdog_report.status(world.machine, world.decisions[-1], world.seen, 0.0, 1.0)
    assert state["ranks"]["without"] == []


def test_a_host_that_is_lost_in_each_load_does_not_keep_the_smaller_recipe_from_serving() -> None:
    """A load takes 100 s and the host ends in its first 20 s, to be back after another 70."""
    world = World(**SMALLER).serve()
    world.on_restart = False
    del world.ranks["10.0.0.3"]
    world.run(70)
    healthy = 0
    for _round in range(12):
        assert world.machine.without == ("10.0.0.3",)
        waiting(world)
        # it is back, and the smaller recipe loads meanwhile
        world.ranks["10.0.0.3"] = "n9"
        before = world.machine.restarts.get("restored", 0)
        for second in range(100):
            world.run(1)
            if world.machine.restarts.get("restored", 0) > before:
                break
            if second == 60:
                world.started_anew()
                world.listening = True
        else:
            healthy += world.decisions[-1].healthy
            while world.machine.restarts.get("restored", 0) == before:
                world.run(10)
        waiting(world)
        world.run(20)
        del world.ranks["10.0.0.3"]
        world.run(75)
    assert healthy >= 8
    # one that survives is trusted again
    world.ranks["10.0.0.3"] = "n9"
    while world.machine.without:
        world.run(10)
    assert world.machine.relapses == 12
    world.started_anew()
    world.listening = True
    world.run(200)
    assert (world.decisions[-1].state, world.machine.relapses) == (watchdog.SERVING, 0)


def test_a_host_that_is_back_in_time_is_waited_for() -> None:
    world = World(**SMALLER).serve()
    world.on_restart = False
    del world.ranks["10.0.0.3"]
    world.run(6)
    waiting(world)
    world.run(40)
    world.ranks["10.0.0.3"] = "n9"
    assert not restarts(world.run(300))


def test_two_hosts_away_are_too_many_for_a_recipe_that_needs_two_of_three() -> None:
    world = World(**SMALLER).serve()
    world.on_restart = False
    del world.ranks["10.0.0.3"], world.ranks["10.0.0.2"]
    world.run(6)
    waiting(world)
    assert not restarts(world.run(600))
    world.ranks["10.0.0.2"] = "n8"
    assert restarts(world.run(10)) == ["degraded"]
    assert world.machine.without == ("10.0.0.3",)


def test_the_other_host_lost_in_degraded_mode_changes_places() -> None:
    world = World(**SMALLER).serve()
    world.on_restart = False
    del world.ranks["10.0.0.3"]
    world.run(6)
    waiting(world)
    world.run(60)
    assert world.machine.without == ("10.0.0.3",)
    world.started_anew()
    world.listening = True
    world.run(10)
    world.ranks = {"10.0.0.1": "n1", "10.0.0.3": "n9"}
    # the one that is back goes first, and the whole group waits for the other
    assert set(restarts(world.run(20))) == {"lost_rank", "restored"}
    waiting(world)
    assert restarts(world.run(70)) == ["degraded"]
    assert world.machine.without == ("10.0.0.2",)


def test_nobody_to_ask_is_no_host_away() -> None:
    world = World(**SMALLER).serve()
    world.on_restart = False
    waiting(world)
    world.ranks = None
    assert not restarts(world.run(600))


def test_a_former_head_does_nothing_and_says_why() -> None:
    world = World()
    waiting(world)
    seen = dataclasses.replace(observe(world), superseded="spark-02 was declared head of this cluster later")
    decision = world.machine.decide(seen)
    assert decision.line == "stopped: spark-02 was declared head of this cluster later"
    assert not decision.healthy
    assert decision.restart is None


def observe(world: World) -> observation.Observation:
    world.step()
    return world.seen


def test_a_raylet_without_a_name_is_another_one_until_it_has_its_name_again() -> None:
    """While Ray's dashboard is stopped, a worker's raylet dies and comes back between two rounds."""
    world = World().serve()
    world.ranks = {**ALIVE, "10.0.0.3": "?1"}
    world.step()
    assert world.step().restart == "lost_rank"
    world.serve()
    # the dashboard is back and tells its id
    world.ranks = {**ALIVE, "10.0.0.3": "n7"}
    assert [world.step().restart for _round in range(5)] == [None] * 5
    # and from then on that one counts
    world.ranks = {**ALIVE, "10.0.0.3": "n8"}
    world.step()
    assert world.step().restart == "lost_rank"


NONSENSE = {"asked": 4, "right": 0, "wrong": "'What is 17 + 25?': '!!!'"}


def test_simple_tasks_are_asked_once_after_each_start() -> None:
    world = World()
    world.answerable = True
    world.told = {"asked": 4, "right": 4, "wrong": ""}
    world.run(600)
    assert (world.times_asked, world.decisions[-1].line) == (1, "serving")
    world.started_anew()
    world.run(600)
    assert world.times_asked == 2


def test_nonsense_is_said_and_restarts_nothing() -> None:
    world = World()
    world.answerable = True
    world.told = NONSENSE
    world.run(3600)
    said = world.decisions[-1]
    assert said.line.startswith("serving: the model answers 0 of 4 simple tasks rightly ('What is 17")
    assert said.healthy
    assert restarts(world.decisions) == []
    state = watchdog_report.status(world.machine, said, world.seen, since=0.0, wall=0.0)
    assert state["answers"] == NONSENSE
    text = watchdog_report.metrics_text(state, 0.0)
    assert "sparkthor_serving_answers_asked 4\nsparkthor" not in text
    assert "sparkthor_serving_answers_asked 4\n" in text
    assert "sparkthor_serving_answers_right 0\n" in text
    # the next process of the watchdog knows it, the next start of the engine does not
    heir = World()
    heir.machine.restore(json.loads(json.dumps(world.machine.dump())), world.now)
    heir.now, heir.unit, heir.answerable = world.now, world.unit, True
    heir.run(600)
    assert heir.times_asked == 0
    assert "0 of 4" in heir.decisions[-1].line
    heir.started_anew()
    heir.told = {"asked": 4, "right": 3, "wrong": "x"}
    heir.run(30)
    assert heir.decisions[-1].line == "serving"


def test_tasks_without_an_answer_are_asked_again_later() -> None:
    world = World()
    world.answerable = True
    world.run(250)
    assert world.times_asked == 1
    world.run(100)
    assert world.times_asked == 2
    # and not again where nothing can be known
    world.told = {"asked": 0, "right": 0, "wrong": ""}
    world.run(3600)
    assert world.times_asked == 3
    state = watchdog_report.status(world.machine, world.decisions[-1], world.seen, since=0.0, wall=0.0)
    assert "answers_asked" not in watchdog_report.metrics_text(state, 0.0)


@pytest.mark.parametrize("why", ["maintenance", "draining", "answerable"])
def test_nobody_is_asked_then(why: str) -> None:
    world = World()
    world.answerable = why != "answerable"
    world.maintenance = "work" if why == "maintenance" else None
    world.draining = why == "draining"
    world.run(600)
    assert world.times_asked == 0
