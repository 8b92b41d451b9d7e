# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judged on answers captured from a real Ray 2.60 of three nodes with token authentication."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import deadline
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import ray_health, ray_members, ray_probe
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plugins.module_utils._onhost.ray_cluster import ADDRESSES, FIXTURES, config, engine_view, http, text

OK = ray_probe.RayProbe("x", ray_probe.OK, 1.0)


def dashboard_view(case):
    rows = ray_members.read_dashboard_nodes(text(f"{case}.dashboard_nodes.json"))
    demands = []
    if (FIXTURES / f"{case}.dashboard_status.json").exists():
        demands = ray_members.read_dashboard_status(text(f"{case}.dashboard_status.json"))[1]
    return ray_members.View("dashboard", tuple(rows), tuple(demands))


def answers(view, raylets=None, sources=(), gcs=OK):
    return ray_health.Answers(gcs, tuple(sources), view, dict.fromkeys(ADDRESSES, OK) if raylets is None else raylets)


def codes(result):
    return [(p["code"], p["node"]) for p in result["problems"]]


VIEWS = pytest.mark.parametrize("view", [engine_view, dashboard_view], ids=["engine", "dashboard"])


@VIEWS
def test_healthy(view):
    result = ray_health.assess(config(), answers(view("healthy")))
    assert result["healthy"]
    assert result["problems"] == []
    assert [(n["name"], n["address"], n["role"]) for n in result["alive"]] == [
        ("rx-h0", "10.89.0.10", "head"),
        ("rx-h1", "10.89.0.11", "worker"),
        ("rx-h2", "10.89.0.12", "worker"),
    ]
    assert (result["expected_gpus"], result["present_gpus"]) == (3, 3)
    assert result["alive"][0]["resources_total"] == {
        "CPU": 2.0,
        "GPU": 1.0,
        "memory": 24250769152.0,
        "object_store_memory": 100000000.0,
    }
    assert result["alive"][0]["started"] == "2026-11-21T01:25:08Z"
    assert result["dead"] == []
    assert result["reason"] == "3 of 3 nodes, 3 of 3 GPUs on 10.89.0.10"


@VIEWS
def test_dead_rows_stay_after_a_rejoin_and_do_not_count(view):
    result = ray_health.assess(config(), answers(view("rejoined")))
    assert result["healthy"]
    (dead,) = result["dead"]
    assert dead["address"] == "10.89.0.12"
    assert dead["rejoined"] is True
    assert dead["reason"] == "Unexpected termination: health check failed due to missing too many heartbeats"
    assert dead["ended"] == "2026-11-21T01:27:38Z"
    assert result["present_gpus"] == 3


@VIEWS
def test_a_new_head_without_its_workers(view):
    result = ray_health.assess(config(), answers(view("newhead"), raylets=dict.fromkeys(ADDRESSES, OK)))
    assert codes(result) == [("absent", "rx-h1"), ("absent", "rx-h2")]
    assert result["missing"] == ["rx-h1", "rx-h2"]
    assert "a raylet runs there, but not in this cluster" in result["problems"][0]["cause"]
    assert result["reason"].startswith("1 of 3 nodes, 1 of 3 GPUs: rx-h1 (10.89.0.11) is not a member")
    assert "(and 1 more)" in result["reason"]


def test_half_started_cluster_has_no_rows():
    result = ray_health.assess(config(), answers(dashboard_view("half_started"), raylets={}))
    assert [code for code, node in codes(result)] == ["absent"] * 3
    assert result["present_nodes"] == 0


def test_a_raylet_killed_a_moment_ago_is_still_listed_alive():
    refused = ray_probe.RayProbe("raylet rx-h2", ray_probe.REFUSED, 0.2)
    view = dashboard_view("raylet_killed")
    result = ray_health.assess(
        config(), answers(view, raylets={ADDRESSES[0]: OK, ADDRESSES[1]: OK, ADDRESSES[2]: refused})
    )
    assert codes(result) == [("raylet_refused", "rx-h2")]
    assert result["present_nodes"] == 3
    assert result["alive"][2]["raylet_ok"] is False


def test_a_slow_agent_alone_makes_nobody_sick():
    slow = ray_probe.RayProbe("raylet rx-h2", ray_probe.SLOW, 3000.0)
    result = ray_health.assess(config(), answers(engine_view("healthy"), raylets={ADDRESSES[2]: slow}))
    assert result["healthy"]
    assert result["alive"][2]["raylet_ok"] is False


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (ray_probe.SILENT, "its host does not answer on the control address"),
        (ray_probe.UNREACHABLE, "its host does not answer on the control address"),
        (ray_probe.REFUSED, "its host answers, but no raylet runs there"),
    ],
)
def test_why_a_node_is_absent(status, words):
    view = engine_view("headonly")
    probe = ray_probe.RayProbe("raylet", status)
    result = ray_health.assess(config(), answers(view, raylets={ADDRESSES[1]: probe, ADDRESSES[2]: probe}))
    assert words in result["problems"][0]["cause"]
    assert result["problems"][0]["fix"]


def test_absent_node_tells_when_and_why_it_left():
    view = engine_view("rejoined")
    gone = ray_members.View("engine", tuple(r for r in view.rows if not (r.alive and r.address == ADDRESSES[2])))
    result = ray_health.assess(config(), answers(gone))
    assert codes(result) == [("absent", "rx-h2")]
    assert "it left at 2026-11-21T01:27:38Z: Unexpected termination" in result["problems"][0]["cause"]
    assert result["dead"][0]["rejoined"] is False


@VIEWS
def test_alive_on_an_unexpected_address_is_no_member(view):
    """The node joined by another of its addresses: its GPUs must not count."""
    elsewhere = config(
        nodes=[
            {"name": "rx-h0", "address": "10.89.0.10", "role": "head"},
            {"name": "rx-h1", "address": "10.89.0.11"},
            {"name": "rx-h2", "address": "10.84.0.12"},
        ]
    )
    result = ray_health.assess(elsewhere, answers(view("healthy"), raylets={}))
    assert not result["healthy"]
    assert result["present_gpus"] == 2
    assert result["missing"] == ["rx-h2"]
    assert [s["address"] for s in result["strangers"]] == ["10.89.0.12"]
    assert ("absent", "rx-h2") in codes(result)


def test_a_node_on_its_wrong_address_is_named():
    elsewhere = config(
        nodes=[
            {"name": "rx-h0", "address": "10.89.0.10", "role": "head"},
            {"name": "rx-h1", "address": "10.89.0.11"},
            {"name": "rx-h2", "address": "10.84.0.12"},
        ]
    )
    result = ray_health.assess(elsewhere, answers(engine_view("healthy"), raylets={}))
    assert ("wrong_address", "rx-h2") in codes(result)
    assert any(p["cause"] == "rx-h2 joined on 10.89.0.12, not on 10.84.0.12" for p in result["problems"])


def test_two_living_rows_are_a_ghost_and_count_once():
    view = engine_view("rejoined")
    rows = tuple(ray_members.Row(**{**vars(r), "alive": True}) for r in view.rows)
    result = ray_health.assess(config(), answers(ray_members.View("engine", rows)))
    assert codes(result) == [("ghost", "rx-h2")]
    assert result["present_gpus"] == 3
    newest = max((r for r in rows if r.address == ADDRESSES[2]), key=lambda r: r.started_ms)
    assert result["alive"][2]["node_id"] == newest.node_id


def test_too_few_gpus():
    nodes = [{"name": f"rx-h{i}", "address": a, "gpus": 1 + i // 2} for i, a in enumerate(ADDRESSES)]
    result = ray_health.assess(config(nodes=nodes, head_address=ADDRESSES[0]), answers(engine_view("healthy")))
    assert codes(result) == [("gpus", "rx-h2")]
    assert "offers 1 of 2 GPUs" in result["problems"][0]["cause"]


@VIEWS
def test_pending_demands_are_data_not_sickness(view):
    result = ray_health.assess(config(), answers(view("pending")))
    assert result["healthy"]
    assert result["pending"] == [
        {"kind": "task_or_actor", "resources": {"GPU": 2.0, "CPU": 1.0}, "count": 1},
        {
            "kind": "placement_group",
            "strategy": "PACK",
            "bundles": [{"resources": {"GPU": 1.0}, "count": 4}],
            "count": 1,
        },
    ]


@pytest.mark.parametrize(
    ("gcs", "code", "words"),
    [
        (ray_probe.REFUSED, "gcs_refused", "nothing listens there"),
        (ray_probe.SILENT, "gcs_silent", "no answer"),
        (ray_probe.UNREACHABLE, "gcs_unreachable", "no way there"),
    ],
)
def test_a_cluster_that_is_not_there_is_data(gcs, code, words):
    result = ray_health.assess(config(), answers(None, raylets={}, gcs=ray_probe.RayProbe("gcs", gcs)))
    assert codes(result) == [(code, "")]
    assert words in result["reason"]
    assert result["reason"].startswith("0 of 3 nodes, 0 of 3 GPUs: the GCS at 10.89.0.10:6379 cannot be reached")
    assert result["missing"] == ["rx-h0", "rx-h1", "rx-h2"]


def test_wrong_token_is_told_from_no_token():
    wrong = ray_probe.read_engine_output(0, text("wrongtoken.engine.json").replace("\n", ""), "", 5, 300)
    assert wrong.status == ray_probe.UNAUTHORIZED
    assert codes(ray_health.assess(config(), answers(None, sources=[wrong]))) == [("token_refused", "")]
    missing = ray_probe.read_engine_output(-6, "", text("no_token.engine.stderr.txt"), 5, 300)
    assert missing.status == ray_probe.UNAUTHORIZED
    result = ray_health.assess(config(), answers(None, sources=[missing]))
    assert codes(result) == [("token_missing", "")]
    assert ray_health.is_final(result)


@pytest.mark.parametrize(
    ("probe", "code"),
    [
        (ray_probe.read_engine_output(-1, "", "", 5, 5000), "gcs_hangs"),
        (
            ray_probe.read_engine_output(0, '{"error": "ModuleNotFoundError: No module named ray"}', "", 5, 9),
            "engine_absent",
        ),
        (ray_probe.read_engine_output(0, '{"error": "RpcError: shut"}', "", 5, 9), "no_answer"),
        (ray_probe.read_engine_output(1, "", "Traceback\nOSError: disk\n", 5, 9), "no_answer"),
    ],
)
def test_other_ways_to_get_no_list(probe, code):
    result = ray_health.assess(config(), answers(None, sources=[probe]))
    assert codes(result) == [(code, "")]
    assert result["problems"][0]["fix"]


@given(
    st.lists(
        st.tuples(st.sampled_from([*ADDRESSES, "10.0.0.9"]), st.booleans(), st.integers(0, 2), st.integers(1, 10**6)),
        max_size=8,
    )
)
def test_healthy_means_every_expected_address_once_and_nobody_else(rows):
    made = tuple(
        ray_members.Row(f"{i:056x}", address, alive, False, started_ms=started, total={"GPU": float(gpus)})
        for i, (address, alive, gpus, started) in enumerate(rows)
    )
    result = ray_health.assess(config(), answers(ray_members.View("engine", made), raylets={}))
    living = [(a, g) for a, alive, g, _s in rows if alive]
    whole = sorted(a for a, _g in living) == sorted(ADDRESSES) and all(g >= 1 for _a, g in living)
    assert result["healthy"] is whole
    assert len(result["alive"]) == len({a for a, _g in living} & set(ADDRESSES))
    assert result["healthy"] or result["problems"][0]["fix"]
    json.dumps(result)


def test_collect_reads_the_dashboard_on_the_head(serve):
    server = serve(http(200, text("healthy.dashboard_nodes.json")))
    agent = serve(http(200, "success"))
    made = config(
        nodes=[{"name": "rx-h0", "address": "127.0.0.1", "role": "head"}],
        node_address="127.0.0.1",
        ports={"gcs": server.port, "dashboard": server.port, "dashboard_agent_listen": agent.port},
        auth=False,
    )
    found = ray_health.collect(made, timeout=2)
    assert found.view is not None
    assert [row.address for row in found.view.rows] == ["10.89.0.12", "10.89.0.11", "10.89.0.10"]
    assert found.raylets["127.0.0.1"].ok
    # the same answer is no cluster status: that is noted, and the list of nodes stands
    assert [probe.status for probe in found.sources] == [ray_probe.OK, ray_probe.OK]


def test_collect_does_not_start_the_engine_for_a_refused_token(serve, tmp_path):
    server = serve(http(403, "Forbidden: Invalid authentication token"))
    made = config(
        nodes=[{"name": "rx-h0", "address": "127.0.0.1", "role": "head"}],
        node_address="127.0.0.1",
        ports={"gcs": server.port, "dashboard": server.port, "dashboard_agent_listen": server.port},
        token_path=str(tmp_path / "none"),
        engine=["/nonexistent/python"],
    )
    found = ray_health.collect(made, timeout=2)
    assert [probe.name for probe in found.sources] == ["dashboard"]
    assert codes(ray_health.assess(made, found)) == [("token_refused", "")]


def fake_engine(tmp_path, body):
    """An executable that stands for the engine's Python and answers like the probe."""
    script = tmp_path / "engine"
    script.write_text(f"#!{sys.executable}\nimport sys, os, time\nprogram = sys.stdin.read()\n{body}\n")
    script.chmod(0o755)
    return [str(script)]


@pytest.mark.parametrize(
    ("answer", "token", "codes_", "final"),
    [
        ("no_token.dashboard.401.txt", "", ["token_missing"], True),
        ("wrongtoken.dashboard.403.txt", "wrong", ["token_refused"], True),
        # the GCS was stopped: the dashboard gives up after 24 s with these words, its client and the engine's before
        ("gcs_stopped.dashboard.500.txt", "right", ["gcs_hangs"], False),
    ],
)
def test_what_the_dashboard_says_when_it_lists_nothing(serve, tmp_path, answer, token, codes_, final):
    server = serve(http(int(answer.split(".")[2]), text(answer)))
    (tmp_path / "token").write_text(token)
    made = config(
        nodes=[{"name": "rx-h0", "address": "127.0.0.1", "role": "head"}],
        node_address="127.0.0.1",
        ports={"gcs": server.port, "dashboard": server.port, "dashboard_agent_listen": server.port},
        token_path=str(tmp_path / "token"),
        engine=fake_engine(tmp_path, "time.sleep(60)"),
    )
    result = ray_health.cluster_health(made, timeout=1, environment={})
    assert [problem["code"] for problem in result["problems"]] == codes_
    assert ray_health.is_final(result) is final
    assert not result["healthy"]
    assert result["missing"] == ["rx-h0"]
    assert result["seconds"] < 4
    assert "wrong" not in json.dumps(result)


def test_collect_falls_back_to_the_engine(serve, tmp_path):
    answer = text("healthy.engine.json").replace("\n", "")
    (tmp_path / "answer").write_text(answer)
    gcs = serve()
    made = config(
        ports={"gcs": gcs.port, "dashboard": 1, "dashboard_agent_listen": 1},
        head_address="127.0.0.1",
        node_address="10.89.0.11",
        engine=fake_engine(
            tmp_path,
            f"assert 'GcsClient' in program and sys.argv[2].endswith(':{gcs.port}')\n"
            "assert os.environ['RAY_AUTH_MODE'] == 'token'\n"
            f"print('noise'); print(open({str(tmp_path / 'answer')!r}).read())",
        ),
    )
    result = ray_health.cluster_health(made, timeout=5, raylets=False)
    assert result["healthy"], result
    assert result["source"] == "engine"
    assert result["ray_version"] == "2.60.0"


def test_an_engine_that_hangs_is_killed_with_its_children(serve, tmp_path):
    gcs = serve()
    pid_file = tmp_path / "pid"
    made = config(
        ports={"gcs": gcs.port},
        head_address="127.0.0.1",
        node_address="10.89.0.11",
        engine=fake_engine(
            tmp_path,
            f"pid = os.fork()\nif pid: open({str(pid_file)!r}, 'w').write(str(pid))\ntime.sleep(60)",
        ),
    )
    start = time.monotonic()
    result = ray_health.cluster_health(made, timeout=1, raylets=False)
    assert time.monotonic() - start < 30
    assert codes(result)[0] == ("gcs_hangs", "")
    child = int(pid_file.read_text())
    for _unused in range(50):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail(f"child {child} still runs")


def test_an_engine_that_is_not_there(serve):
    gcs = serve()
    made = config(ports={"gcs": gcs.port}, head_address="127.0.0.1", engine=["/nonexistent/python"], node_address="")
    assert codes(ray_health.cluster_health(made, timeout=1, raylets=False)) == [("engine_absent", "")]


# -- waiting -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def waiting(monkeypatch, clock):
    for module in (deadline, ray_health):
        monkeypatch.setattr(module, "time", clock)
    return clock


def outcome(healthy, *problem_codes):
    return {"healthy": healthy, "problems": [{"code": code} for code in problem_codes]}


def test_wait_stops_when_healthy(waiting):
    left = [outcome(False, "absent"), outcome(False, "absent"), outcome(True)]
    result = ray_health.wait_healthy(config(), 60, ask=lambda: left.pop(0))
    assert result["healthy"]
    assert result["waited_seconds"] == 2.0


def test_wait_stops_at_once_where_waiting_is_of_no_use(waiting):
    result = ray_health.wait_healthy(config(), 60, ask=lambda: outcome(False, "token_refused"))
    assert not result["healthy"]
    assert waiting.now == 0


def test_wait_ends_in_time(waiting):
    result = ray_health.wait_healthy(config(), 10, ask=lambda: outcome(False, "absent"))
    assert not result["healthy"]
    assert result["waited_seconds"] == waiting.now == 10
