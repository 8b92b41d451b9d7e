# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import limits, watchdog, watchdog_report

from tests.unit.plugins.module_utils._onhost.watchdog_world import World

METRICS = """# HELP vllm:prompt_tokens_total x
vllm:prompt_tokens_total{engine="0",model_name="tiny"} 12.0
vllm:prompt_tokens_total{engine="1",model_name="tiny"} 3.0
vllm:generation_tokens_total{engine="0",model_name="tiny"} 40.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:num_requests_running{engine="0",model_name="tiny"} 2.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.0
vllm:request_success_total{engine="0",finished_reason="abort"} 5.0
http_requests_total{handler="/metrics"} 99.0
"""


def test_engine_counters_hold_nothing_that_the_server_moves_alone() -> None:
    assert watchdog_report.engine_counters(METRICS) == (15.0, 40.0, 0.0, 0.0, 0.25)
    moved = METRICS.replace('"abort"} 5.0', '"abort"} 6.0').replace("} 99.0", "} 100.0")
    assert watchdog_report.engine_counters(moved) == watchdog_report.engine_counters(METRICS)
    assert watchdog_report.engine_counters("python_info 1\n") is None
    assert watchdog_report.requests_in_flight(METRICS) == 3
    assert watchdog_report.requests_in_flight("") is None
    for value in ("NaN", "+Inf", "1e400"):
        text = f"vllm:num_requests_running {value}\nvllm:prompt_tokens_total {value}\n"
        assert watchdog_report.requests_in_flight(text) is None
        assert watchdog_report.engine_counters(text) is None


def test_status_metrics_and_health() -> None:
    world = World().serve()
    decision = world.step()
    state = watchdog_report.status(world.machine, decision, world.seen, since=500.0, wall=560.0)
    assert json.loads(json.dumps(state)) == state
    text = watchdog_report.metrics_text(state, 560.0)
    assert 'sparkthor_serving_state{state="serving"} 1\n' in text
    assert 'sparkthor_serving_state{state="loading"} 0\n' in text
    assert "sparkthor_serving_state_seconds 60.0\n" in text
    assert 'sparkthor_serving_restarts_total{cause="lost_rank"} 0\n' in text
    assert 'sparkthor_serving_rank_alive{rank="spark-03"} 1\n' in text
    status, body = watchdog_report.health_body({**state, "generation": 2}, 1.0)
    assert (status, body["status"], body["generation"]) == (200, "serving", 2)
    loading = {**state, "healthy": False, "state": watchdog.LOADING, "detail": "41 % · x", "fraction": 0.41}
    status, body = watchdog_report.health_body(loading, 1.0)
    assert (status, body["status"], body["detail"]) == (503, "loading", "41 %")
    assert watchdog_report.health_body(None, 1.0)[0] == 503
    # a watchdog that hangs says nothing new
    status, body = watchdog_report.health_body(state, limits.WATCHDOG_STALE + 1)
    assert (status, body["status"]) == (503, "unknown")


@pytest.mark.parametrize("name", watchdog_report.STATES)
def test_health_tells_everybody_no_line_of_the_log(name: str) -> None:
    log = "loading weights: (EngineCore pid=7) loaded /home/alice/secret-model for spark-02"
    state = {**dict.fromkeys(("line", "detail", "progress", "text"), log), "state": name, "healthy": False}
    for fraction in (None, 0.5):
        body = watchdog_report.health_body({**state, "fraction": fraction, "completion": {}, "generation": 1}, 1.0)[1]
        assert "secret" not in json.dumps(body)
        assert "spark-02" not in json.dumps(body)
