# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests in flight and counters that stand still: slow, or dead."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import watchdog
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.patience import Signs

from tests.unit.plugins.module_utils._onhost.watchdog_world import EXPECTED, World

HOSTS = tuple(EXPECTED.values())
COMPUTES = Signs(cores=1.0, utilization=96, power=45)
WAITS = Signs(cores=1.0, utilization=96, power=20)
#: a watchdog of a Spark cluster whose longest step is planned at about a minute
LARGE = {"step_patience": 180.0, "wedge_bound": 120.0, "working_power": 30.0}


def busy(signs: Signs | dict[str, Signs], **settings: float) -> World:
    """A serving group that just got a request and answers nobody from now on."""
    world = World(**settings).serve()
    world.in_flight = 1
    world.step()
    world.answer = "hang"
    world.signs = signs if isinstance(signs, dict) else dict.fromkeys(HOSTS, signs)
    return world


def restarted_after(world: World, limit: float, look: float = 2.0) -> float:
    began = world.now
    while not world.step(look).restart:
        assert world.now - began <= limit, world.decisions[-1]
    return world.now - began


def test_a_hanging_process_is_named_while_a_token_is_overdue() -> None:
    world = busy({})
    world.in_the_kernel = {812: "VLLM::EngineCore"}
    lines = [decision.line for decision in world.run(60)]
    assert lines[0] == "serving"
    assert lines[-1].startswith("serving: slow: no token for")
    assert lines[-1].endswith(
        "; VLLM::EngineCore (process 812) hangs in the kernel for 58 s: a disk or device is silent"
    )


@pytest.mark.parametrize("step", [5, 30, 60, 170])
def test_steps_within_the_patience_are_never_shot(step: int) -> None:
    world = busy(Signs(cores=1.0), **LARGE)
    for number in range(5):
        for decision in world.run(step):
            assert (decision.state, decision.healthy, decision.restart) == (watchdog.SERVING, True, None)
        world.counters = (float(number + 1),)
    assert world.machine.restarts == {}


@pytest.mark.parametrize("signs", [COMPUTES, Signs(cores=0.2, compilers=3), Signs(spoke=True)])
def test_signs_of_life_are_given_several_times_the_patience_but_not_for_ever(signs: Signs) -> None:
    world = busy({HOSTS[0]: WAITS, HOSTS[1]: WAITS, HOSTS[2]: signs}, **LARGE)
    assert all(decision.healthy for decision in world.run(870))
    assert "slow: no token for" in world.decisions[-1].detail
    assert HOSTS[2] in world.decisions[-1].detail
    restarted_after(world, 60)


@pytest.mark.parametrize(
    ("signs", "least", "most"),
    [
        (WAITS, 110, 130),  # busy GPUs at the power of waiting
        (Signs(cores=0.001), 110, 130),  # nothing moves
        (Signs(cores=1.0), 170, 190),  # a CPU that spins is what a long step looks like, too
        (Signs(), 170, 190),  # nobody can tell: not dead for that
    ],
)
def test_a_wedged_engine_with_requests_is_noticed_within_the_bound(signs: Signs, least: float, most: float) -> None:
    world = busy(signs, **LARGE)
    assert least <= restarted_after(world, most)
    assert world.decisions[-1].kill
    assert "no token for" in world.decisions[-1].detail
    assert world.machine.restarts == {"completion": 1}


@pytest.mark.parametrize("look", [2.0, 4.0])
@pytest.mark.parametrize("signs", [Signs(), Signs(cores=3.0), WAITS, Signs(cores=0.0)])
def test_a_small_model_that_is_wedged_is_noticed_within_two_minutes_busy_or_not(signs: Signs, look: float) -> None:
    # the first look may come that long after the request
    restarted_after(busy(signs), 120 - look, look)


@pytest.mark.parametrize("look", [2.0, 4.0])
def test_a_probe_that_was_sent_between_a_request_and_the_look_that_met_it_is_excused(look: float) -> None:
    world = World(**LARGE).serve()
    while world.asked is None:
        world.step(look)
    # the request came after what this look read and before the probe that it sent
    world.answer, world.in_flight, world.signs = "hang", 1, dict.fromkeys(HOSTS, COMPUTES)
    assert all(decision.healthy for decision in world.run(300, look))


def test_a_stopped_rank_is_noticed_as_fast_as_without_requests() -> None:
    world = busy(Signs(cores=1.0), **LARGE)
    world.signs[HOSTS[1]] = Signs(cores=0.0, stopped=True)
    restarted_after(world, 45)


def test_a_stopped_rank_is_not_spared_for_what_the_others_log() -> None:
    world = busy({**dict.fromkeys(HOSTS, Signs(cores=0.001)), HOSTS[1]: Signs(stopped=True)}, **LARGE)
    for number in range(60):
        world.mark = f"another request waits: {number}"
        if world.step().restart:
            return
    raise AssertionError(world.decisions[-1])


def test_a_lost_rank_is_not_waited_for() -> None:
    world = busy(COMPUTES, **LARGE)
    world.run(30)
    assert world.ranks is not None
    del world.ranks["10.0.0.2"]
    assert restarted_after(world, 6)
    assert world.machine.restarts == {"lost_rank": 1}


def test_a_rank_that_ended_is_not_waited_for_even_if_the_engine_goes_on_and_writes_to_its_log() -> None:
    world = busy(COMPUTES, **LARGE)
    world.signs[HOSTS[1]] = Signs(ended=True)
    began = world.now
    while not world.step().restart:
        world.mark = f"line {world.now}"
        assert world.now - began <= 12, world.decisions[-1]
    assert world.decisions[-1].kill
    assert world.decisions[-1].detail.endswith("the rank on spark-02 has ended")
    assert world.machine.restarts == {"lost_rank": 1}


def test_one_look_at_a_rank_that_ended_is_not_enough() -> None:
    world = busy(COMPUTES, **LARGE)
    for number in range(20):
        world.signs[HOSTS[1]] = Signs(ended=True) if number % 2 else COMPUTES
        assert world.step().healthy


def test_ranks_that_end_again_and_again_are_started_ever_more_slowly() -> None:
    world = busy(Signs(ended=True), **LARGE)
    restarted_after(world, 12)
    assert world.machine.attempts == 1
    assert 10 < world.machine.wait_before_restart(world.now) <= 15


def test_ranks_of_the_engine_before_take_no_patience_from_a_load() -> None:
    world = World(load_stall=100.0)
    world.listening = False
    world.signs = {HOSTS[0]: Signs(cores=1.0), HOSTS[1]: Signs(ended=True)}
    assert all(decision.restart is None for decision in world.run(240))


def test_errors_are_not_excused_by_requests() -> None:
    world = busy(COMPUTES, **LARGE)
    world.answer = "http"
    restarted_after(world, 20)


def test_an_engine_that_is_wedged_while_idle_is_not_saved_by_a_request_that_comes_later() -> None:
    world = World(**LARGE).serve()
    world.answer = "hang"
    while world.asked is None:
        world.step()
    world.run(10)  # the probe is alone that long, and unanswered
    world.in_flight = 1
    world.signs = dict.fromkeys(HOSTS, COMPUTES)
    restarted_after(world, 30)


def test_a_client_that_gives_up_does_not_end_the_patience() -> None:
    world = busy(COMPUTES, **LARGE)
    world.run(20)
    world.in_flight = 0  # it went away, the step goes on
    assert all(decision.healthy for decision in world.run(100))


def test_after_a_slow_step_nothing_is_left_of_it() -> None:
    world = busy(COMPUTES, **LARGE)
    world.run(60)
    world.answer, world.in_flight, world.counters = "ok", 0, (9.0,)
    world.run(20)
    assert world.decisions[-1].line == "serving"
    assert not world.machine.overdue
    # and the next fault is noticed as fast as ever
    world.answer = "hang"
    restarted_after(world, 45)


def test_lines_of_the_log_are_life_from_the_second_on() -> None:
    world = busy(Signs(cores=0.001), **LARGE)
    world.run(10)
    world.mark = "read for the first time since the load"
    world.run(100)
    assert restarted_after(world, 20)

    world = busy(Signs(cores=0.001), **LARGE)
    for number in range(100):
        world.mark = f"Compiling {number}"
        assert not world.step().restart


def test_a_host_that_stood_still_gets_its_time_back() -> None:
    world = busy(Signs(cores=0.001), **LARGE)
    world.run(100)
    world.step(60)
    assert not [decision for decision in world.run(100) if decision.restart]
    restarted_after(world, 30)


@pytest.mark.parametrize("look", [13.0, 20.0])
@pytest.mark.parametrize("sign", [Signs(stopped=True), Signs(cores=0.0)])
def test_a_watchdog_that_looks_late_every_time_restarts_all_the_same(sign: Signs, look: float) -> None:
    """Its own commands take that long on a busy host, which is no standstill of the host each time."""
    world = busy({**dict.fromkeys(HOSTS, Signs(cores=0.001)), HOSTS[1]: sign}, **LARGE)
    assert restarted_after(world, 200, look) > 20
    world.answer, world.in_flight = "ok", 0
    assert world.run(60, look)[-1].line == "serving"


def test_an_idle_engine_that_hangs_is_noticed_by_one_that_looks_late_every_time() -> None:
    world = World(**LARGE).serve()
    world.answer = "hang"
    assert restarted_after(world, 200, 15.0) > 20
