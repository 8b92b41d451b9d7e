# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import inspect
import json
import types
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    former_head,
    patience,
    ray_ranks,
    watchdog_service,
)


def test_ray_ranks_reads_the_living_newest_last(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        types.SimpleNamespace(address="10.0.0.1", node_id="new", alive=True, started_ms=2),
        types.SimpleNamespace(address="10.0.0.1", node_id="old", alive=True, started_ms=1),
        types.SimpleNamespace(address="10.0.0.2", node_id="dead", alive=False, started_ms=1),
    ]
    answer = types.SimpleNamespace(ok=True, data="text")
    asked = []

    def probe_http(name: str, url: str, timeout: float, token: str) -> Any:
        asked.append((url, token, timeout))
        return answer

    cluster = types.SimpleNamespace(dashboard_port=8265, head_address="10.0.0.1", agent_port=6384)
    monkeypatch.setattr(ray_ranks.ray_config, "load_config", lambda path: cluster)
    monkeypatch.setattr(ray_ranks.ray_probe, "probe_http", probe_http)
    monkeypatch.setattr(ray_ranks.ray_members, "read_dashboard_nodes", lambda text: rows)
    read = ray_ranks.ranks(token=lambda _config: "token")
    assert read({}) == {"10.0.0.1": "new"}
    assert asked == [("http://127.0.0.1:8265/api/v0/nodes?detail=true&limit=10000", "token", 3.0)]
    # while the dashboard is stopped, the agents say who is there; the head's own Ray is systemd's to watch
    rows += [types.SimpleNamespace(address=f"10.0.0.{n}", node_id=f"n{n}", alive=True, started_ms=3) for n in (3, 4)]
    everybody = {"10.0.0.1": "new", "10.0.0.3": "n3", "10.0.0.4": "n4"}
    assert read({}) == everybody
    answer.ok = False
    agents = {"10.0.0.3": "ok", "10.0.0.4": "ok"}

    agent_timeouts = []

    def probe_tcp(name: str, address: str, port: int, seconds: float) -> ray_ranks.ray_probe.RayProbe:
        assert port == 6384
        agent_timeouts.append(seconds)
        return ray_ranks.ray_probe.RayProbe(name, agents[address])

    monkeypatch.setattr(ray_ranks.ray_probe, "probe_tcp", probe_tcp)
    assert read({}) == everybody
    # a host that says nothing may be the same later
    agents["10.0.0.3"] = ray_ranks.ray_probe.SILENT
    assert read({}) == {"10.0.0.1": "new", "10.0.0.4": "n4"}
    agents["10.0.0.3"] = "ok"
    assert read({}) == everybody
    # where nobody listened for a moment, it is another one
    agents["10.0.0.3"] = ray_ranks.ray_probe.REFUSED
    assert read({}) == {"10.0.0.1": "new", "10.0.0.4": "n4"}
    agents["10.0.0.3"] = "ok"
    nameless = read({})
    assert nameless == {**everybody, "10.0.0.3": nameless["10.0.0.3"]}
    assert nameless["10.0.0.3"].startswith("?")
    answer.ok = True
    assert read({}) == everybody
    answer.ok = False
    # the dashboard is stopped, a host and the head that may be its successor are silent: the state stays fresh
    waited = [timeout for _url, _token, timeout in asked[-1:]] + agent_timeouts[-1:]
    waited += [inspect.signature(former_head.health).parameters["seconds"].default]
    assert sum(waited) + watchdog_service.OBSERVE_EVERY < 10
    # who knows no rank yet has nobody to ask for
    assert ray_ranks.ranks(token=lambda _config: "token")({}) is None


def test_ray_signs_ask_for_each_node_and_stop_at_a_dashboard_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [types.SimpleNamespace(address=f"10.0.0.{number}", name=f"spark-0{number}") for number in (1, 2)]
    cluster = types.SimpleNamespace(dashboard_port=8265, nodes=nodes, head_address="10.0.0.1")
    detail = {"data": {"detail": {"now": 1.0, "gpus": [{"utilizationGpu": 97, "powerMw": 18000}]}}}
    answers = [types.SimpleNamespace(ok=True, data=json.dumps(detail)), types.SimpleNamespace(ok=False, data="")]
    asked = []

    def probe_http(_name: str, url: str, _timeout: float, _token: str) -> Any:
        asked.append(url)
        return answers[min(len(asked) - 1, 1)]

    monkeypatch.setattr(ray_ranks.ray_config, "load_config", lambda path: cluster)
    monkeypatch.setattr(ray_ranks.ray_probe, "probe_http", probe_http)
    monkeypatch.setattr(ray_ranks.life, "of_host", lambda: (2, True))
    ranks = {"10.0.0.1": "n1", "10.0.0.2": "n2", "10.0.0.3": "n3"}
    found = ray_ranks.signs(token=lambda _cluster: "token")({}, ranks)
    assert found == {"spark-01": patience.Signs(utilization=97.0, power=18.0, compilers=2, stopped=True)}
    assert asked == [f"http://127.0.0.1:8265/nodes/{node}" for node in ("n1", "n2")]


@pytest.mark.parametrize(
    ("answer", "ended"),
    [
        ([("n1", "ALIVE"), ("n2", "DEAD")], {"spark-01": False, "spark-02": True}),
        ([("n1", "ALIVE"), ("n3", "DEAD")], {"spark-01": False, "spark-02": False}),
        (None, {"spark-01": False, "spark-02": False}),
        ("odd", {"spark-01": False, "spark-02": False}),
    ],
)
def test_ray_signs_tell_a_rank_that_the_gcs_holds_for_dead(
    monkeypatch: pytest.MonkeyPatch, answer: Any, ended: dict[str, bool]
) -> None:
    nodes = [types.SimpleNamespace(address=f"10.0.0.{number}", name=f"spark-0{number}") for number in (1, 2)]
    cluster = types.SimpleNamespace(dashboard_port=8265, nodes=nodes, head_address="10.0.0.1")
    rows: Any = 3
    if answer != "odd":
        rows = [{"class_name": "RayWorkerProc", "node_id": node, "state": state} for node, state in answer or ()]
    listed = {"result": True, "data": {"result": {"total": 2, "result": rows}}}

    def probe_http(_name: str, url: str, _timeout: float, _token: str) -> Any:
        data = listed if "/api/v0/actors" in url else {"data": {"detail": {"now": 1.0}}}
        return types.SimpleNamespace(ok=answer is not None or data is not listed, data=json.dumps(data))

    monkeypatch.setattr(ray_ranks.ray_config, "load_config", lambda path: cluster)
    monkeypatch.setattr(ray_ranks.ray_probe, "probe_http", probe_http)
    monkeypatch.setattr(ray_ranks.life, "of_host", lambda: (0, False))
    found = ray_ranks.signs(token=lambda _cluster: "token")({}, {"10.0.0.1": "n1", "10.0.0.2": "n2"})
    assert {host: one.ended for host, one in found.items()} == ended
