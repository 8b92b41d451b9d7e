# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several groups serve side by side, behind doors that any head has, and one's trouble is not another's.

The tests build on each other: the last one ends with a host that is off.
"""

from __future__ import annotations

import json
import re
import shlex
import time

import openai
import pytest

from tests.integration.groups.conftest import (
    HEADS,
    NARROW,
    PAIR,
    PAIR_HEAD,
    PAIR_WORKER,
    SINGLE,
    SINGLE_A,
    SINGLE_B,
    Doors,
)
from tests.integration.sites import within

LIMITED = "limited-key-of-the-lab"


def test_every_head_is_a_door_to_all_models(doors: Doors) -> None:
    for head in HEADS:
        assert doors.models(head) == {PAIR, SINGLE}
        assert [doors.ask(head, model) for model in (PAIR, SINGLE)] == [PAIR, SINGLE]


def test_a_stream_arrives_in_parts_through_another_groups_head(doors: Doors) -> None:
    stream = doors.client(SINGLE_A).completions.create(
        model=PAIR, prompt="hello", max_tokens=12, temperature=0.0, stream=True
    )
    assert len([part for part in stream if part.choices]) > 3


def test_each_group_runs_as_a_cluster_of_its_own(doors: Doors) -> None:
    on = doors.cluster.run
    assert "pipeline-parallel-size: 2" in on(PAIR_HEAD, "cat /etc/sparkthor/vllm.yaml")
    assert set(json.loads(on(PAIR_HEAD, "cat /etc/sparkthor/cluster.json"))["peers"]) == {PAIR_HEAD, PAIR_WORKER}
    for head in (SINGLE_A, SINGLE_B):
        assert set(json.loads(on(head, "cat /etc/sparkthor/cluster.json"))["peers"]) == {head}
        assert on(head, "systemctl is-active sparkthor-ray.service", check=False).strip() != "active"


def test_a_key_is_for_its_models_alone_at_every_door(doors: Doors) -> None:
    for head in HEADS:
        assert doors.models(head, NARROW) == {SINGLE}
        assert doors.ask(head, SINGLE, NARROW) == SINGLE
        with pytest.raises(openai.PermissionDeniedError):
            doors.ask(head, PAIR, NARROW)


def test_the_keys_are_listed_without_a_change(doors: Doors) -> None:
    outcome = doors.play("playbooks/keys.yml")
    assert outcome.rc == 0, outcome.failures
    assert set(outcome.changed.values()) == {0}, outcome.changed
    assert f"narrow: {SINGLE}, 600 requests a minute" in outcome.output
    assert NARROW not in outcome.output


def test_a_limit_of_tokens_is_hit_and_shown(doors: Doors) -> None:
    """At the door that counted, for a plain answer or a stream; and the list says what was used."""
    client = doors.client(PAIR_HEAD, LIMITED)

    def ask_much() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            # one that does not ask for its tokens
            assert list(client.completions.create(model=SINGLE, prompt="hello", max_tokens=8, stream=True))
            time.sleep(0.5)

    with pytest.raises(openai.RateLimitError) as refused:
        ask_much()
    assert 1 <= int(refused.value.response.headers["Retry-After"]) <= 60
    assert "tokens of 12 in a minute; it may go on at " in refused.value.message
    # each door counts by itself, and another key goes on at this one
    assert doors.ask(SINGLE_A, SINGLE, LIMITED) == SINGLE
    assert doors.ask(PAIR_HEAD, SINGLE, NARROW) == SINGLE
    outcome = doors.play("playbooks/keys.yml")
    assert outcome.rc == 0, outcome.failures
    shown = r"limited: all models, no limit of requests, \d+ of 12 tokens a minute, [1-9]\d* of 1000000 tokens a month"
    # long lines are folded
    assert re.search(shown, " ".join(outcome.output.split()))
    assert LIMITED not in outcome.output
    # the month's count is on the disk, and the counter goes on from it
    command = "systemctl restart sparkthor-tokens && sleep 3 && cat /run/sparkthor-tokens/usage.json"
    used = json.loads(doors.cluster.run(PAIR_HEAD, command))["limited"]
    assert used["month"] > 0
    assert used["limits"] == {"minute": 12, "month": 1000000}


def test_what_names_no_model_of_ours_is_told_so(doors: Doors) -> None:
    with pytest.raises(openai.NotFoundError, match="GET /v1/models"):
        doors.ask(PAIR_HEAD, "tiny-singel")
    with pytest.raises(openai.AuthenticationError):
        doors.ask(PAIR_HEAD, SINGLE, "no-key-of-this-cluster")


def test_every_door_says_how_any_group_is(doors: Doors) -> None:
    for head in HEADS:
        assert [doors.health(head, group) for group in ("pair", "single_a", "single_b")] == [200, 200, 200]


def test_the_heads_own_port_is_for_heads(doors: Doors) -> None:
    def status(host: str, address: str) -> str:
        words = ["curl", "-s", "-m", "5", "-o", "/dev/null", "-w", "%{http_code}"]
        words += ["-H", f"Authorization: Bearer {NARROW}", f"http://{address}:8001/v1/models"]
        return doors.cluster.run(host, shlex.join(words), check=False)

    control = json.loads(doors.cluster.run(SINGLE_A, "cat /etc/sparkthor/cluster.json"))["head_address"]
    assert status(PAIR_HEAD, control) == "200"
    # a worker is not a head
    assert status(PAIR_WORKER, control) == "403"
    # and on the LAN the firewall has it closed
    assert status(PAIR_WORKER, doors.cluster.addresses[SINGLE_A]) == "000"


def test_without_a_change_nothing_changes(doors: Doors) -> None:
    outcome = doors.play("site.yml")
    assert outcome.rc == 0, outcome.failures
    assert set(outcome.changed.values()) == {0}, outcome.changed


def test_a_drained_replica_loses_no_request(doors: Doors) -> None:
    with doors.asking(PAIR_HEAD, SINGLE) as counted:
        within(60, lambda: counted["answered"] > 5)
        assert doors.play("playbooks/drain.yml", f"--limit={SINGLE_A}").rc == 0
        before = counted["answered"]
        within(60, lambda: counted["answered"] > before + 5)
    assert set(counted) == {"answered"}, counted
    assert doors.play("playbooks/start.yml", f"--limit={SINGLE_A}").rc == 0


def test_a_new_argument_of_one_group_restarts_that_group_alone(doors: Doors) -> None:
    before = {head: doors.starts(head) for head in HEADS}
    override = {"vllm_serve_args": {"max-num-seqs": 3}}
    file = doors.cluster.lab.folder / "pair.yml"
    file.write_text(json.dumps({"all": {"children": {"pair": {"vars": override}}}}), encoding="utf-8")
    doors.cluster.inventories.append(file)
    try:
        with doors.asking(SINGLE_B, SINGLE) as counted:
            outcome = doors.play("site.yml")
    finally:
        doors.cluster.inventories.remove(file)
    assert outcome.rc == 0, outcome.failures
    assert {host for host, number in outcome.changed.items() if number} <= {PAIR_HEAD, PAIR_WORKER}, outcome.changed
    assert [head for head in HEADS if doors.starts(head) != before[head]] == [PAIR_HEAD]
    assert set(counted) == {"answered"}, counted


def test_a_killed_engine_leaves_the_others_alone(doors: Doors) -> None:
    before = doors.starts(SINGLE_B)
    with doors.asking(SINGLE_B, SINGLE) as counted:
        doors.cluster.run(PAIR_HEAD, "systemctl kill -s KILL sparkthor-vllm.service")
        with pytest.raises(openai.InternalServerError) as refused:
            doors.ask(SINGLE_B, PAIR)
        assert refused.value.status_code == 503
        assert int(refused.value.response.headers["Retry-After"]) > 0
        assert doors.models(SINGLE_B) == {SINGLE}
        before_more = counted["answered"]
        within(60, lambda: counted["answered"] > before_more + 5)
    assert set(counted) == {"answered"}, counted
    assert doors.starts(SINGLE_B) == before
    # systemd and the watchdog bring it back
    within(600, lambda: PAIR in doors.models(SINGLE_B))


def test_a_replica_that_loses_power_is_left_out_at_once(doors: Doors) -> None:
    doors.ask(PAIR_HEAD, SINGLE)
    doors.cluster.lab.off(SINGLE_A)
    try:
        with doors.asking(PAIR_HEAD, SINGLE) as counted:
            within(120, lambda: counted["answered"] > 10)
            assert doors.health(PAIR_HEAD, "single_a") == 503
        assert set(counted) == {"answered"}, counted
    finally:
        # whoever comes next runs site.yml on all hosts
        doors.cluster.lab.boot(SINGLE_A)
        doors.cluster.lab.wait(SINGLE_A)
    within(900, lambda: doors.health(PAIR_HEAD, "single_a") == 200)
