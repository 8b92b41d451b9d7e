# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SGLang itself, TP=2 over two hosts: what it answers, what its counters show, and what a lost rank costs.

The tests build on each other.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import openai
import pytest

from tests.integration.conftest import Cluster
from tests.integration.groups.conftest import Doors
from tests.integration.sites import within

MODEL = "tiny"
HEAD, WORKER = "spark-01", "spark-02"
#: what the kernel keeps of the name of a rank's process
RANK = "sglang::schedul"
#: as long as a start may take on a busy machine
START = 900.0
#: tokens of a request that is still running when something is done to a rank
LONG = 900
METRICS = "curl -s http://127.0.0.1:30000/metrics"


@dataclass
class Sglang(Doors):
    """The group, and what its ranks are on the hosts."""

    def answers(self) -> bool:
        try:
            return self.ask(HEAD, MODEL) == MODEL
        except openai.OpenAIError:
            return False

    def state(self) -> str:
        """What the watchdog says of the group."""
        told = self.cluster.run(HEAD, "cat /run/sparkthor/state.json", check=False)
        return str(json.loads(told)["state"]) if told else ""

    def serves(self) -> bool:
        return self.state() == "serving" and self.answers()

    def ranks(self) -> list[int]:
        return [len(self.cluster.run(host, f"pgrep -x {RANK}", check=False).split()) for host in (HEAD, WORKER)]

    def count(self, name: str, label: str = "") -> float:
        """The sum of a counter over its labels, as the engine says it to root on its host."""
        text = self.cluster.run(HEAD, METRICS)
        rows = re.findall(rf"^{name}(\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        return sum(float(value) for labels, value in rows if label in labels)

    def long(self) -> int:
        """A request of LONG tokens; how many came."""
        reply = self.client(HEAD).completions.create(
            model=MODEL, prompt="hello", max_tokens=LONG, temperature=0, extra_body={"ignore_eos": True}
        )
        return reply.usage.completion_tokens if reply.usage else 0

    @contextlib.contextmanager
    def asked(self) -> Iterator[concurrent.futures.Future[int]]:
        """Such a request, which the engine has begun."""
        within(START, self.serves)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            request = pool.submit(self.long)
            within(60, lambda: self.count("sglang:num_running_reqs") >= 1)
            yield request

    def heals(self, before: str) -> None:
        """The group serves again, by another start than before."""
        seconds = within(START, lambda: self.starts(HEAD) not in ("", before) and self.answers())
        print(f"{seconds:.0f} s until the next answer", flush=True)
        assert self.ranks() == [1, 1]


@pytest.fixture(scope="module")
def sglang(cluster: Cluster) -> Sglang:
    return Sglang(cluster)


def test_it_answers_as_the_client_asks(sglang: Sglang) -> None:
    assert sglang.models(HEAD) == {MODEL}
    said = [{"role": "user", "content": "hello"}]
    reply = sglang.client(HEAD).chat.completions.create(model=MODEL, messages=said, max_tokens=8, temperature=0)
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 8
    parts = sglang.client(HEAD).completions.create(model=MODEL, prompt="hello", max_tokens=6, stream=True)
    assert len([part for part in parts if part.choices]) > 3
    with pytest.raises(openai.AuthenticationError):
        sglang.ask(HEAD, MODEL, "no-key-of-this-cluster")
    assert sglang.ranks() == [1, 1]


def test_its_port_is_for_the_front_proxy_and_root(sglang: Sglang) -> None:
    probe = "timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/30000' 2>&1"
    assert sglang.cluster.run(HEAD, probe) == ""
    assert "Connection refused" in sglang.cluster.run(HEAD, f"runuser -u nobody -- {probe}", check=False)


def test_a_second_run_changes_nothing(sglang: Sglang) -> None:
    before = sglang.starts(HEAD)
    outcome = sglang.play("site.yml")
    assert outcome.rc == 0, outcome.failures
    assert set(outcome.changed.values()) == {0}, outcome.changes
    assert sglang.starts(HEAD) == before


def test_a_counter_moves_within_a_request_and_the_watchdog_leaves_it_alone(sglang: Sglang) -> None:
    """The totals that other engines are judged by move at a request's end alone."""
    before = sglang.starts(HEAD)
    with sglang.asked() as request:
        seen, totals, states = [], [], set()
        while not request.done():
            seen.append(sglang.count("sglang:realtime_tokens_total", 'mode="decode"'))
            totals.append(sglang.count("sglang:generation_tokens_total"))
            states.add(sglang.state())
            time.sleep(1)
        assert request.result() == LONG
    print(f"realtime {seen}, totals {totals}, states {states}", flush=True)
    rises = [later - sooner for sooner, later in itertools.pairwise(seen[1:-1])]
    assert len(rises) > 3
    assert all(rises), seen
    # what the watchdog itself asked meanwhile
    assert totals[-2] - totals[1] < 20, totals
    assert states == {"serving"}
    assert sglang.starts(HEAD) == before


@pytest.mark.parametrize("host", [HEAD, WORKER])
def test_a_rank_killed_while_nothing_is_asked(sglang: Sglang, host: str) -> None:
    within(START, sglang.serves)
    before = sglang.starts(HEAD)
    sglang.cluster.run(host, f"pkill -KILL -x {RANK}")
    sglang.heals(before)


@pytest.mark.parametrize("signal", ["KILL", "STOP"])
def test_a_rank_that_ends_or_stops_in_a_request_costs_that_request(sglang: Sglang, signal: str) -> None:
    """The head of one that is stopped would end itself after minutes; the watchdog sees sooner that no token comes."""
    since = sglang.cluster.run(HEAD, "date +%s").strip()
    with sglang.asked() as request:
        before = sglang.starts(HEAD)
        sglang.cluster.run(WORKER, f"pkill -{signal} -x {RANK}")
        sglang.heals(before)
        with pytest.raises(openai.OpenAIError):
            request.result(60)
    log = sglang.cluster.run(HEAD, f"journalctl --no-pager -o cat -u sparkthor-vllm.service --since @{since}")
    assert "Scheduler watchdog timeout" not in log


def test_drained_and_started(sglang: Sglang) -> None:
    with sglang.asked() as request:
        outcome = sglang.play("playbooks/drain.yml")
        assert outcome.rc == 0, outcome.failures
        assert request.result(1) == LONG
    assert not sglang.answers()
    outcome = sglang.play("playbooks/start.yml")
    assert outcome.rc == 0, outcome.failures
    within(START, sglang.serves)


def test_stopped_and_started(sglang: Sglang) -> None:
    """A follower does not hear SIGTERM."""
    before = sglang.starts(HEAD)
    outcome = sglang.play("playbooks/stop.yml")
    assert outcome.rc == 0, outcome.failures
    assert not sglang.answers()
    within(60, lambda: sglang.ranks() == [0, 0])
    outcome = sglang.play("playbooks/start.yml")
    assert outcome.rc == 0, outcome.failures
    sglang.heals(before)
