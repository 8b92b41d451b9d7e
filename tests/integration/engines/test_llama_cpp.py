# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama.cpp on one host and with layers over two: what they answer, what a lost rank costs, an upgrade and back.

The tests build on each other.
"""

from __future__ import annotations

import threading

import openai
import pytest

from tests.integration.conftest import TOP
from tests.integration.engines.conftest import (
    ALONE,
    HEAD,
    LAYERS,
    RPC_PORT,
    SINGLE,
    START,
    UNIT,
    WORKER,
    Engines,
)
from tests.integration.sites import within

SERVER, RPC = "llama-server", "ggml-rpc-server"


def test_both_groups_answer_at_any_door(engines: Engines) -> None:
    for door in (HEAD, SINGLE):
        assert engines.models(door) == {LAYERS, ALONE}
        for model in (LAYERS, ALONE):
            said = [{"role": "user", "content": "Which city is the capital of France? Answer with one word."}]
            reply = engines.client(door).chat.completions.create(
                model=model, messages=said, max_tokens=24, temperature=0
            )
            assert "Paris" in (reply.choices[0].message.content or "")
            parts = engines.client(door).completions.create(model=model, prompt="hello", max_tokens=6, stream=True)
            assert len([part for part in parts if part.choices]) > 3
    with pytest.raises(openai.AuthenticationError):
        engines.ask(HEAD, ALONE, "no-key-of-this-cluster")


def test_the_worker_has_the_server_and_no_model(engines: Engines) -> None:
    on = engines.cluster.run
    assert [engines.process(host, SERVER) != "" for host in (HEAD, WORKER, SINGLE)] == [True, False, True]
    assert [engines.process(host, RPC) != "" for host in (HEAD, WORKER, SINGLE)] == [False, True, False]
    place = on(WORKER, "sed -n 's/^host: //p' /etc/sparkthor/llama.yaml").strip().strip('"')
    assert f'rpc: "{place}:{RPC_PORT}"' in on(HEAD, "cat /etc/sparkthor/llama.yaml")
    model = on(HEAD, "sed -n 's/^model: //p' /etc/sparkthor/llama.yaml").strip().strip('"')
    listed = [on(host, f"ls {model}", check=False).split() for host in (HEAD, WORKER)]
    weights = [[name for name in names if name.endswith(".gguf")] for names in listed]
    assert weights == [["SmolLM2-135M-Instruct.Q4_1.gguf"], []]


def test_the_workers_server_is_open_to_the_head_s_engine_alone(engines: Engines) -> None:
    place = engines.cluster.run(WORKER, "sed -n 's/^host: //p' /etc/sparkthor/llama.yaml").strip().strip('"')
    probe = f"timeout 5 bash -c 'exec 3<>/dev/tcp/{place}/{RPC_PORT}' 2>&1"
    # another host, and another user of the head; the head's engine is connected meanwhile
    assert "Connection refused" in engines.cluster.run(SINGLE, probe, check=False)
    assert "Connection refused" in engines.cluster.run(HEAD, f"runuser -u nobody -- {probe}", check=False)
    assert engines.answers(LAYERS)


def test_a_second_run_changes_nothing(engines: Engines) -> None:
    outcome = engines.play("site.yml")
    assert outcome.rc == 0, outcome.failures
    assert set(outcome.changed.values()) == {0}, outcome.changes


def test_status_names_both(engines: Engines) -> None:
    outcome = engines.play("playbooks/status.yml")
    assert outcome.rc == 0, outcome.failures
    told = " ".join(outcome.output.split())
    assert LAYERS in told
    assert ALONE in told


def test_a_killed_engine_comes_back_and_the_other_group_serves_on(engines: Engines) -> None:
    layers = engines.starts(HEAD)
    with engines.asking(HEAD, LAYERS, 1) as counted:
        engines.cluster.run(SINGLE, f"pkill -KILL -x {SERVER}")
        engines.heals(ALONE)
    assert set(counted) == {"answered"}, counted
    assert engines.starts(HEAD) == layers


def test_a_worker_killed_while_nothing_is_asked_is_started_with_its_head(engines: Engines) -> None:
    """Its head says 200 to everything but a completion, and would abort with the first."""
    head = engines.starts(HEAD)
    engines.cluster.run(WORKER, f"pkill -KILL -x {RPC}")
    within(START, lambda: engines.starts(HEAD) != head and engines.answers(LAYERS))
    assert engines.process(WORKER, RPC)


def in_a_request(engines: Engines) -> threading.Thread:
    """A long request of the group with layers, which the watchdog has seen serve."""
    within(START, lambda: engines.state(HEAD) == "serving")

    def ask() -> None:
        client = engines.client(HEAD)
        try:
            client.completions.create(model=LAYERS, prompt="hello", max_tokens=1900, extra_body={"ignore_eos": True})
        except openai.OpenAIError as error:
            print(f"the request ended with {type(error).__name__}", flush=True)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    command = "curl -s --unix-socket /run/sparkthor/vllm/vllm.sock http://x/metrics | grep requests_processing"
    within(60, lambda: engines.cluster.run(HEAD, command, check=False).strip().endswith(" 1"))
    return thread


@pytest.mark.parametrize("signal", ["KILL", "STOP"])
def test_a_worker_that_ends_or_stops_in_a_request_costs_that_request(engines: Engines, signal: str) -> None:
    """With one that is stopped nothing ends, and health, metrics and slots say 200 for ever: its tokens show it."""
    head = engines.starts(HEAD)
    asking = in_a_request(engines)
    engines.cluster.run(WORKER, f"pkill -{signal} -x {RPC}")
    within(START, lambda: engines.starts(HEAD) != head and engines.answers(LAYERS))
    asking.join(200)
    assert not asking.is_alive()


def test_a_worker_that_loses_its_power_comes_back_without_a_person(engines: Engines) -> None:
    engines.cluster.lab.off(WORKER)
    within(START, lambda: not engines.answers(LAYERS))
    assert engines.answers(ALONE)
    engines.cluster.lab.boot(WORKER)
    engines.heals(LAYERS)


def test_a_single_host_that_loses_its_power_comes_back_without_a_person(engines: Engines) -> None:
    engines.cluster.lab.off(SINGLE)
    within(120, lambda: not engines.answers(ALONE))
    engines.cluster.lab.boot(SINGLE)
    engines.heals(ALONE)


def test_drained_and_started(engines: Engines) -> None:
    outcome = engines.play("playbooks/drain.yml", "--extra-vars=serving_group=layers")
    assert outcome.rc == 0, outcome.failures
    assert not engines.answers(LAYERS)
    assert engines.answers(ALONE)
    assert engines.play("playbooks/start.yml", "--extra-vars=serving_group=layers").rc == 0
    engines.heals(LAYERS)


def test_stopped_and_started(engines: Engines) -> None:
    assert engines.play("playbooks/stop.yml", "--extra-vars=serving_group=layers").rc == 0
    assert not engines.answers(LAYERS)
    assert engines.process(HEAD, SERVER) == ""
    # a worker ends its own when it has heard nothing of its head for some time
    within(60, lambda: engines.process(WORKER, RPC) == "")
    assert engines.answers(ALONE)
    assert engines.play("playbooks/start.yml", "--extra-vars=serving_group=layers").rc == 0
    engines.heals(LAYERS)


def test_an_upgrade_to_another_build_and_back(engines: Engines) -> None:
    def builds() -> set[str]:
        command = "sha256sum /opt/sparkthor/venv/bin/llama-server /opt/sparkthor/venv/bin/ggml-rpc-server"
        return {engines.cluster.run(host, command) for host in engines.cluster.hosts}

    [first] = builds()
    with engines.given(*engines.cluster.hosts, engine_programs=str(TOP / ".lab" / "engine" / "llama-other")):
        # the real one computes on CPUs that others use too: the same build made 63 tokens/s, and then 10.6
        outcome = engines.play("playbooks/upgrade.yml", "--extra-vars=upgrade_speed=0")
        assert outcome.rc == 0, outcome.failures
    [second] = builds()
    assert first != second
    assert [engines.answers(model) for model in (LAYERS, ALONE)] == [True, True]
    back = engines.play("playbooks/rollback.yml", "--extra-vars=roll_back_to=previous")
    assert back.rc == 0, back.failures
    assert builds() == {first}
    assert [engines.answers(model) for model in (LAYERS, ALONE)] == [True, True]


def test_an_option_that_the_build_has_not_is_refused_before_a_service_is_touched(engines: Engines) -> None:
    before = [engines.starts(host) for host in engines.cluster.hosts]
    with engines.given(SINGLE, vllm_serve_args={"no-such-option": 1}):
        outcome = engines.play("site.yml")
    assert outcome.rc != 0
    assert "no-such-option" in outcome.output
    assert [engines.starts(host) for host in engines.cluster.hosts] == before
    assert engines.play("site.yml").rc == 0


def test_the_doctor_names_a_worker_that_does_not_listen(engines: Engines) -> None:
    program = f"/opt/sparkthor/venv/bin/{RPC}"
    engines.cluster.run(WORKER, f"mv {program} {program}.away && systemctl restart --no-block {UNIT}")

    def named() -> bool:
        told = " ".join(engines.play("playbooks/doctor.yml").output.split())
        return f"{UNIT} is " in told and "layers" in told

    try:
        within(START, lambda: not engines.answers(LAYERS))
        within(START, named)
    finally:
        engines.cluster.run(WORKER, f"mv {program}.away {program}")
    engines.heals(LAYERS)
