# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model that takes turns with the pair's, on its head."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator

import openai
import pytest

from tests.integration.groups.conftest import PAIR, PAIR_HEAD, SINGLE, SINGLE_A, Doors

DEMAND = "tiny-demand"
UNIT = "sparkthor-vllm-demand.service"
#: seconds that an engine's start may take on a busy lab
START = 900.0


def within(seconds: float, done: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until
        time.sleep(2.0)


def refused(doors: Doors, model: str) -> tuple[int, str]:
    """The Retry-After and the line of a model that does not answer now; 0 if it does."""
    try:
        doors.ask(SINGLE_A, model)
    except openai.InternalServerError as error:
        return int(error.response.headers["Retry-After"]), str(error)
    return 0, ""


def answers(doors: Doors, model: str) -> bool:
    return refused(doors, model)[0] == 0


def active(doors: Doors, unit: str) -> bool:
    return doors.cluster.run(PAIR_HEAD, f"systemctl is-active {unit}", check=False).strip() == "active"


def own_is_back(doors: Doors) -> None:
    """Without a request, which would be a wish."""
    within(START, lambda: doors.health(SINGLE_A, "pair") == 200 and not active(doors, UNIT))


@pytest.fixture(scope="module")
def demand(doors: Doors) -> Iterator[None]:
    own = {"host": PAIR_HEAD, "vllm_serve_recipe": "tiny-qwen3", "vllm_serve_served_model_name": DEMAND}
    policy = {"idle_minutes": 1, "every_minutes": 1}
    given = {"serving_beside": {"demand": {**own, "vllm_serve_max_model_len": 256, "on_demand": policy}}}
    file = doors.cluster.lab.folder / "demand.yml"
    file.write_text(json.dumps({"all": {"children": {"cluster": {"vars": given}}}}), encoding="utf-8")
    doors.cluster.inventories.append(file)
    try:
        outcome = doors.play("site.yml")
        assert outcome.rc == 0, outcome.failures
        assert "on demand instead of pair: demand " in outcome.output
        yield
        file.write_text(json.dumps({"all": {}}), encoding="utf-8")
        assert doors.play("site.yml").rc == 0
        assert DEMAND not in doors.models(PAIR_HEAD)
    finally:
        doors.cluster.inventories.remove(file)


def woken(doors: Doors) -> None:
    """From the own group's idle time to an answer of the other."""
    within(START, lambda: answers(doors, DEMAND))
    assert active(doors, UNIT)


def test_a_model_that_sleeps_is_listed_and_changes_nothing(doors: Doors, demand: None) -> None:
    assert doors.models(SINGLE_A) == {PAIR, SINGLE, DEMAND}
    assert not active(doors, UNIT)
    again = doors.play("site.yml")
    assert (again.rc, set(again.changed.values())) == (0, {0}), (again.failures, again.changes)
    assert re.search(r"^demand: .* ASLEEP ", doors.play("playbooks/status.yml").output, re.MULTILINE)


def test_a_model_in_use_does_not_give_way(doors: Doors, demand: None) -> None:
    with doors.asking(SINGLE_A, PAIR) as counted:
        within(60, lambda: counted["answered"] > 3)
        wait, line = refused(doors, DEMAND)
        assert wait > 0
        assert "in use" in line or "a short time ago" in line, line
        time.sleep(90)
    assert set(counted) == {"answered"}, counted


def test_a_request_starts_it_and_its_end_brings_the_own_group_back(doors: Doors, demand: None) -> None:
    begun = time.monotonic()
    woken(doors)
    print(f"answered {time.monotonic() - begun:.0f} s after the first request", flush=True)
    assert not active(doors, "sparkthor-vllm.service")
    # in use, however long the two runs take
    with doors.asking(SINGLE_A, DEMAND):
        again = doors.play("site.yml")
        assert (again.rc, set(again.changed.values())) == (0, {0}), (again.failures, again.changes)
        assert re.search(r"^pair: .* ASLEEP ", doors.play("playbooks/status.yml").output, re.MULTILINE)
    # not before a minute has passed
    assert refused(doors, PAIR)[0] > 0
    own_is_back(doors)
    assert answers(doors, PAIR)


def test_a_service_that_is_killed_gives_the_host_back(doors: Doors, demand: None) -> None:
    woken(doors)
    doors.cluster.run(PAIR_HEAD, "systemctl kill -s KILL sparkthor-on-demand.service")
    own_is_back(doors)
    assert answers(doors, PAIR)


def test_a_playbook_that_starts_the_own_group_sends_the_other_away(doors: Doors, demand: None) -> None:
    woken(doors)
    started = doors.play("playbooks/start.yml")
    assert started.rc == 0, started.failures
    assert (active(doors, UNIT), answers(doors, PAIR)) == (False, True)


def test_a_reboot_brings_the_own_group_back(doors: Doors, demand: None) -> None:
    woken(doors)
    doors.cluster.lab.off(PAIR_HEAD)
    doors.cluster.lab.boot(PAIR_HEAD)
    own_is_back(doors)
    assert answers(doors, PAIR)
