# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TensorRT-LLM's stand-in by site.yml: deployed, run again, killed, stopped in a request, drained, stopped.

The tests build on each other.
"""

from __future__ import annotations

import threading

import openai
import pytest

from tests.integration.engines_trt.conftest import FIRST, ONE, PORT, SECOND, TWO, OneHostEngines
from tests.integration.sites import within

PROGRAM, UNIT = "trtllm-serve", "sparkthor-vllm.service"
START = 900.0


def test_both_groups_answer_at_any_door(engines: OneHostEngines) -> None:
    for door in (ONE, TWO):
        for model in (FIRST, SECOND):
            assert engines.answers(model, door)
            parts = engines.client(door).completions.create(model=model, prompt="hello", max_tokens=6, stream=True)
            assert len([part for part in parts if part.choices]) > 3
    with pytest.raises(openai.AuthenticationError):
        engines.ask(ONE, SECOND, "no-key-of-this-cluster")


def test_it_runs_in_its_container_by_the_role_s_file(engines: OneHostEngines) -> None:
    for host in (ONE, TWO):
        assert engines.cluster.run(host, "docker ps --format '{{.Names}}'").split() == ["sparkthor-vllm"]
        assert engines.cluster.run(host, f"stat -c %U /proc/$(pgrep -x {PROGRAM})").strip() == "sparkthor"
    text = engines.cluster.run(ONE, "cat /etc/sparkthor/trtllm.yaml")
    assert "max_batch_size: 8" in text
    assert "max_tokens: " in text


def test_its_port_is_open_to_those_who_need_it_alone(engines: OneHostEngines) -> None:
    probe = f"timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/{PORT}' 2>&1"
    assert "Connection refused" in engines.cluster.run(ONE, f"runuser -u nobody -- {probe}", check=False)
    assert engines.cluster.run(ONE, f"runuser -u sparkthor-watchdog -- {probe}; echo $?", check=False).strip() == "0"
    address = engines.cluster.addresses[ONE]
    away = f"timeout 5 bash -c 'exec 3<>/dev/tcp/{address}/{PORT}' 2>&1; echo $?"
    assert engines.cluster.run(TWO, away, check=False).split()[-1] != "0"


def test_a_second_run_changes_nothing(engines: OneHostEngines) -> None:
    before = [engines.starts(host) for host in (ONE, TWO)]
    outcome = engines.play("site.yml")
    assert outcome.rc == 0, outcome.failures
    assert set(outcome.changed.values()) == {0}, outcome.changes
    assert [engines.starts(host) for host in (ONE, TWO)] == before


def test_status_names_both(engines: OneHostEngines) -> None:
    outcome = engines.play("playbooks/status.yml")
    assert outcome.rc == 0, outcome.failures
    told = " ".join(outcome.output.split())
    assert FIRST in told
    assert SECOND in told


@pytest.mark.parametrize("which", ["program", "rank"])
def test_what_is_killed_comes_back_and_the_other_group_serves_on(engines: OneHostEngines, which: str) -> None:
    begun, other = engines.starts(ONE), engines.starts(TWO)
    engines.cluster.run(ONE, f"pkill -KILL -x {PROGRAM}" if which == "program" else f"kill -KILL {engines.rank(ONE)}")
    within(START, lambda: engines.starts(ONE) != begun and engines.answers(FIRST))
    assert engines.starts(TWO) == other
    assert engines.answers(SECOND, TWO)


def test_a_rank_that_is_stopped_in_a_request_ends_in_a_restart(engines: OneHostEngines) -> None:
    """All of its pages go on saying 200."""
    within(START, lambda: engines.state(ONE) == "serving")
    begun = engines.starts(ONE)

    def ask() -> None:
        try:
            engines.client(ONE).completions.create(model=FIRST, prompt="hello", max_tokens=1900)
        except openai.OpenAIError as error:
            print(f"the request ended with {type(error).__name__}", flush=True)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    page = f"curl -s http://127.0.0.1:{PORT}/prometheus/metrics | grep num_requests_running"
    within(60, lambda: engines.cluster.run(ONE, page, check=False).strip().endswith(" 1.0"))
    engines.cluster.run(ONE, f"kill -STOP {engines.rank(ONE)}")
    within(START, lambda: engines.starts(ONE) != begun and engines.answers(FIRST))
    asking.join(200)
    assert not asking.is_alive()


def test_a_host_that_loses_its_power_comes_back_without_a_person(engines: OneHostEngines) -> None:
    engines.cluster.lab.off(TWO)
    within(120, lambda: not engines.answers(SECOND))
    engines.cluster.lab.boot(TWO)
    engines.heals(SECOND)


@pytest.mark.parametrize("playbook", ["drain", "stop"])
def test_drained_or_stopped_and_started(engines: OneHostEngines, playbook: str) -> None:
    outcome = engines.play(f"playbooks/{playbook}.yml", "--extra-vars=serving_group=first")
    assert outcome.rc == 0, outcome.failures
    assert not engines.answers(FIRST)
    assert engines.answers(SECOND)
    assert engines.play("playbooks/start.yml", "--extra-vars=serving_group=first").rc == 0
    engines.heals(FIRST)


def test_an_option_that_is_on_no_list_is_refused_before_a_service_is_touched(engines: OneHostEngines) -> None:
    before = [engines.starts(host) for host in (ONE, TWO)]
    with engines.given(TWO, vllm_serve_args={"no_such_option": 1}):
        outcome = engines.play("site.yml")
    assert outcome.rc != 0
    assert "vllm_serve_acknowledged: [no-such-option]" in " ".join(outcome.output.split())
    assert [engines.starts(host) for host in (ONE, TWO)] == before
    assert engines.play("site.yml").rc == 0
