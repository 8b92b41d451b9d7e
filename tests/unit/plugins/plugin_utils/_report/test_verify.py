# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who measures towards whom, what is enough, and which line fails for which trouble."""

from __future__ import annotations

import json

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import measurements, verify

from tests.unit.plugins.plugin_utils._report.planned_fabric import HOSTS, plan


def test_the_weaker_kind_decides_and_the_user_above_it():
    assert verify.thresholds(["spark"])["tcp_half_gbits"] == 15
    assert verify.thresholds(["spark", "thor"])["tcp_half_gbits"] == 5
    assert verify.thresholds(["spark", "thor"], {"tcp_half_gbits": "7"})["tcp_half_gbits"] == 7


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"bandwith": 1}, "bandwith is not known"),
        ({"ttft_seconds": "fast"}, "'fast' is not a number"),
        ({"ttft_seconds": -1}, "negative"),
        (["x"], "not a dictionary"),
    ],
)
def test_thresholds_that_mean_nothing_are_refused(own, words):
    with pytest.raises(verify.VerifyError, match=words):
        verify.thresholds(["spark"], own)


def judged(fabric, hosts, results, given=None, speeds=None, lan=False):
    tests = [test for host in hosts for test in measurements.link_tests(fabric, hosts, {})[host]]
    complete = {test["id"]: {"id": test["id"], "how": "tcp", "gbits": 30.0, "mtu": 9000} for test in tests}
    complete.update(results)
    kinds = dict.fromkeys(hosts, "spark")
    lines = verify.link_lines(
        tests, complete, {"kinds": kinds, "topology": "lan" if lan else "direct"}, given or {}, speeds or {}, {}
    )
    return lines, verify.shared_ports(lines, tests)


def failing(lines):
    return [(line["check"], line["where"]) for line in lines if line["verdict"] == "fail"]


def test_healthy_links_hold():
    lines, suspects = judged(plan("switch"), HOSTS, {})
    assert failing(lines) == []
    assert suspects == []


def test_a_slow_port_is_the_one_that_both_slow_lines_share():
    slow = {"how": "tcp", "gbits": 1.0, "mtu": 9000}
    lines, suspects = judged(plan("switch"), HOSTS, {"a>b:1": slow, "c>a:1": slow})
    assert failing(lines) == [
        ("bandwidth", "a to b, half 1 (enP2p1s0f1np1 to enP2p1s0f1np1)"),
        ("bandwidth", "c to a, half 1 (enP2p1s0f1np1 to enP2p1s0f1np1)"),
    ]
    assert suspects == ["a enP2p1s0f1np1"]


def test_a_lane_of_a_thor_is_no_half():
    paths = [{"netdev": "mgbe2_0", "peer_netdev": "mgbe2_0", "half": 2}]
    assert verify.where_of({"host": "t", "peer": "u", "paths": paths}) == "t to u, lane 2 (mgbe2_0 to mgbe2_0)"


def test_a_small_mtu_fails_its_own_line_only():
    lines, _suspects = judged(plan("switch"), HOSTS, {"a>b:0": {"how": "tcp", "gbits": 30.0, "mtu": 1500}})
    assert failing(lines) == [("path MTU", "a to b, half 0 (enp1s0f1np1 to enp1s0f1np1)")]


def test_what_was_not_measured_fails_with_its_reason():
    lines, _suspects = judged(plan("switch"), HOSTS, {"a>b:0": {"how": "tcp", "error": "Connection refused"}})
    assert [line["note"] for line in lines if line["verdict"] == "fail"] == ["Connection refused"]


@pytest.mark.parametrize(("gbits", "word"), [(13.1, "13 Gb/s"), (1.6, "1.6 Gb/s"), (50.0, "other half")])
def test_throttled_nics_are_told_from_others(gbits, word):
    lines, _suspects = judged(plan("direct", ["a", "b"]), ["a", "b"], {"a>b:0": {"how": "rdma", "gbits": gbits}})
    [line] = [line for line in lines if line["verdict"] == "fail"]
    assert word in line["fix"]
    assert line["threshold"] == 85


def test_a_lan_is_measured_against_what_it_negotiated():
    fabric = plan("lan")
    speeds = {host: {"enP7s7": 10.0} for host in HOSTS}
    results = {"a>b:0": {"how": "tcp", "gbits": 5.9, "mtu": 1500}}
    for entry in measurements.link_tests(fabric, HOSTS, {}).values():
        results.setdefault(entry[0]["id"], {"how": "tcp", "gbits": 9.4, "mtu": 1500})
    lines, _suspects = judged(fabric, HOSTS, results, speeds=speeds, lan=True)
    assert failing(lines) == [("bandwidth", "a to b, half 0 (enP7s7 to enP7s7)")]


def rank(backend="nccl", network="IB", ports=("rocep1s0f1:1", "roceP2p1s0f1:1"), busbw=22.0, **more):
    rows = [
        {"bytes": 8, "seconds": 40e-6, "gbytes": 0.0, "busbw_gbytes": 0.0},
        {"bytes": 1 << 27, "seconds": 0.01, "gbytes": 13.0, "busbw_gbytes": busbw},
    ]
    log = {"network": network, "ports": list(ports), "netdevs": [], "bootstrap": "", "ib_disabled": network == "Socket"}
    return {"backend": backend, "right": True, "rows": rows, "log": log, "sent": {}, **more}


def collective(results, topology="switch", profile="roce", fabric=None):
    limits = verify.thresholds(["spark"])
    return verify.collective_lines(results, HOSTS, topology, profile, fabric or plan(topology), limits)


def test_rdma_on_both_halves_holds():
    assert failing(collective({host: rank() for host in HOSTS})) == []


def test_sockets_instead_of_rdma_fail_the_host_and_name_the_variable():
    results = {host: rank() for host in HOSTS} | {"b": rank(network="Socket", ports=())}
    lines = collective(results)
    assert failing(lines) == [("transport", "b")]
    assert "NCCL_IB_DISABLE" in next(line["fix"] for line in lines if line["verdict"] == "fail")


def test_one_half_only_fails():
    results = {host: rank() for host in HOSTS} | {"c": rank(ports=("rocep1s0f1:1",), busbw=11.0)}
    lines = collective(results)
    assert failing(lines) == [("transport", "c")]
    assert "without roceP2p1s0f1" in next(line["note"] for line in lines if line["verdict"] == "fail")


def test_a_slow_bus_fails_by_topology():
    slow = {host: rank(busbw=11.0) for host in HOSTS}
    assert ("all-reduce", "3 ranks, 128 MiB") in failing(collective(slow))
    everything = tuple(f"{name}:1" for name in ("rocep1s0f0", "roceP2p1s0f0", "rocep1s0f1", "roceP2p1s0f1"))
    ring = {host: rank(busbw=11.0, ports=everything, nccl="2.30.7") for host in HOSTS}
    assert failing(collective(ring, "ring")) == []
    assert failing(collective({**ring, "b": {**ring["b"], "nccl": "2.28.9"}}, "ring")) == [("NCCL", "b")]


def test_gloo_must_leave_by_the_control_interface():
    good = rank("gloo", busbw=1.0, sent={"enp1s0f1np1": 1000, "enP7s7": 10})
    bad = rank("gloo", busbw=1.0, sent={"enp1s0f1np1": 10, "enP7s7": 1000})
    assert failing(collective(dict.fromkeys(HOSTS, good))) == []
    assert failing(collective({"a": good, "b": bad, "c": good})) == [("transport", "b")]
    assert failing(collective({"a": good, "b": rank("gloo", busbw=1.0), "c": good})) == [("transport", "b")]


def test_a_rank_without_a_result_is_named():
    lines = collective({"a": rank(), "b": {"error": "no end after 120 s"}})
    [line] = lines
    assert line["verdict"] == "fail"
    assert "b: no end after 120 s" in line["note"]
    assert "c: no result" in line["note"]


def ray(**more):
    alive = {host: plan("switch")[host]["control_address"] for host in HOSTS}
    found = {"state": "healthy", "line": "3 of 3", "alive": alive, "strangers": [], "problems": []}
    return {"ray": {**found, **more}, "serving": {"executor": "ray"}}


def test_ray_on_the_right_network():
    fabric = plan("switch")
    assert failing(verify.ray_lines(ray(), fabric)) == []
    moved = ray(alive={**ray()["ray"]["alive"], "b": "192.168.1.12"})
    assert failing(verify.ray_lines(moved, fabric)) == [("ray", "b")]
    gone = ray(alive={"a": fabric["a"]["control_address"]})
    assert failing(verify.ray_lines(gone, fabric)) == [("ray", "b"), ("ray", "c")]


@pytest.mark.parametrize("state", ["absent", "down", "unknown"])
def test_no_ray_is_one_line(state):
    assert failing(verify.ray_lines(ray(state=state), plan("switch"))) == [("ray", "cluster")]


def test_a_head_that_does_not_answer_is_what_is_to_be_mended() -> None:
    [of_ray] = verify.ray_lines(ray(state="unknown"), plan("switch"))
    [of_api] = verify.serving_lines(None, None, "", {})
    assert [of_ray["fix"], of_api["fix"]] == ["make the head answer; the line of its host says how"] * 2


def test_an_executor_without_ray_needs_none():
    status = ray(state="absent")
    status["serving"]["executor"] = "mp"
    assert failing(verify.ray_lines(status, plan("switch"))) == []


def run(speed=20.0, ttft=0.5, eight=80.0):
    single = {
        "tokens_per_second": speed,
        "decode_tokens_per_second": speed,
        "ttft_seconds": ttft,
        "ttft_max_seconds": ttft,
    }
    more = {**single, "tokens_per_second": eight}
    return {"completion": {"tokens": 5, "seconds": 0.4}, "streams": {"1": single, "8": more}}


@pytest.mark.parametrize(
    ("found", "bound", "expected"),
    [
        (run(), 40.0, []),
        ({**run(), "answers": {"asked": 4, "right": 3, "wrong": "x"}}, 40.0, []),
        ({**run(), "answers": {"asked": 4, "right": 2, "wrong": "x"}}, 40.0, [("answers", "simple tasks")]),
        (run(speed=5.0), 40.0, [("decode", "1 stream")]),
        (run(speed=5.0, eight=50.0), None, []),
        (run(ttft=9.0), 40.0, [("TTFT", "1 stream")]),
        (run(eight=20.0), 40.0, [("throughput", "8 streams")]),
        (None, 40.0, [("completion", "API")]),
        ({"error": "the front proxy answered 503"}, 40.0, [("completion", "API")]),
        ({"completion": {"tokens": 5, "seconds": 1}, "streams": {}, "error": "broke"}, 40.0, [("throughput", "API")]),
    ],
)
def test_the_api(found, bound, expected):
    limits = verify.thresholds(["spark"])
    assert failing(verify.serving_lines(found, bound, "no recipe", limits)) == expected


def test_history_shows_the_newest_earlier_value_and_skips_torn_files():
    line = verify.line("TTFT", "1 stream", "pass", 1.0)
    texts = [
        json.dumps({"version": 1, "taken": "2026-02-01", "lines": [{**line, "value": 3.0}]}),
        json.dumps({"version": 1, "taken": "2026-01-01", "lines": [{**line, "value": 2.0}]}),
        "{torn",
        '{"version": 99, "lines": []}',
        "[]",
    ]
    earlier = verify.read_history(texts)
    assert len(earlier) == 2
    lines = [dict(line), verify.line("new", "x", "pass", 1)]
    verify.with_history(lines, earlier)
    assert [entry["before"] for entry in lines] == [3.0, None]


def test_the_table_ends_with_what_to_do():
    lines = [
        verify.line("link", "3 hosts", "pass", 6, "ports"),
        verify.line("path MTU", "a to b", "fail", 1500, "bytes", 9000, "lost", "raise the MTU"),
    ]
    text = verify.text({"lines": lines, "suspects": ["a eth0"]})
    assert "1 of 2 lines are below what is needed" in text
    assert "path MTU, a to b: raise the MTU" in text
    assert text.endswith("a eth0")
    assert verify.text({"lines": lines[:1]}).endswith("all 1 lines hold")


def engine_facts(runtime="venv", path="/srv/e", torch="2.13.0"):
    return {"engine": {"runtime": runtime, "path": path}, "versions": {"torch": torch} if torch else {}}


@pytest.mark.parametrize(
    ("facts_by_host", "verdict", "words"),
    [
        ({"a": engine_facts(), "b": engine_facts(path="/opt/sparkthor/venv")}, None, ""),
        ({"a": engine_facts()}, verify.FAIL, "b did not answer"),
        ({"a": engine_facts(), "b": engine_facts(torch="")}, verify.FAIL, "no engine with torch on b"),
        ({"a": engine_facts("container"), "b": engine_facts(torch="")}, verify.FAIL, "no engine with torch on b"),
    ],
)
def test_where_an_all_reduce_can_be_run(facts_by_host, verdict, words):
    found = measurements.collective_plan(["a", "b"], facts_by_host)
    told = verify.collective_not_run(["a", "b"], {**found, "reached": list(facts_by_host)})
    if verdict is None:
        assert told is None
        assert found["python"] == {"a": ["/srv/e/bin/python"], "b": ["/opt/sparkthor/venv/bin/python"]}
    else:
        assert (told["verdict"], words in told["note"]) == (verdict, True), told
        # what the play's condition is made of
        assert len(found["with_engine"]) < 2


def test_a_rank_runs_inside_the_engines_image():
    found = measurements.collective_plan(["a", "b"], {"a": engine_facts("container"), "b": engine_facts("container")})
    assert verify.collective_not_run(["a", "b"], {**found, "reached": ["a", "b"]}) is None
    assert found["in_container"] == ["a", "b"]
    assert found["python"]["a"][-2:] == ["container", "rank"]


def test_rdma_is_not_proven_by_tcp():
    paths = [{"netdev": "x", "peer_netdev": "y", "half": 0, "wanted_mtu": 9000}]
    test = {"id": "1", "host": "a", "peer": "b", "how": "rdma", "paths": paths}
    for gbits, verdict in ((90.0, verify.UNPROVEN), (1.0, verify.FAIL)):
        result = {"1": {"how": "tcp", "gbits": gbits, "mtu": 9000}}
        *_mtu, line = verify.link_lines(
            [test], result, {"kinds": {"a": "spark", "b": "spark"}, "topology": "direct"}, {}, {}, {}
        )
        assert line["verdict"] == verdict
        assert "RDMA is not proven" in line["note"]
    proven = {"1": {"how": "rdma", "gbits": 95.0, "mtu": 9000}}
    *_mtu, line = verify.link_lines(
        [test], proven, {"kinds": {"a": "spark", "b": "spark"}, "topology": "direct"}, {}, {}, {}
    )
    assert line["verdict"] == verify.PASS


def test_the_closing_line_says_what_is_not_proven():
    lines = [verify.line("bandwidth", "a to b", verify.UNPROVEN, 90.0, "Gb/s", 85, fix="install perftest")]
    text = verify.text({"lines": lines})
    assert "not proven  bandwidth" in text
    assert text.endswith("1 of 1 lines are not proven: install perftest")


@pytest.mark.parametrize(
    ("version", "verdict"), [("2.30.7", "pass"), ("2.31.2", "pass"), ("2.28.9", "fail"), ("", "fail")]
)
def test_a_ring_needs_an_nccl_that_routes_by_subnet(version, verdict):
    line = verify.nccl_line("a", {"nccl": version}, {})
    assert (line["verdict"], bool(line["fix"])) == (verdict, verdict == "fail")
    assert "SKIP_TREE" not in line["note"]


@pytest.mark.parametrize(
    ("libraries", "verdict", "words"),
    [
        ({"/opt/libnccl.so.2": ["NCCL_ALGO", "NCCL_SKIP_TREE_CONNECT"]}, "pass", "/opt/libnccl.so.2 knows NCCL_SKIP"),
        ({"/opt/libnccl.so.2": ["NCCL_ALGO"]}, "fail", "/opt/libnccl.so.2 does not know NCCL_SKIP_TREE_CONNECT, the"),
        # the engine's own, beside the one that torch brings
        ({"/a": ["NCCL_SKIP_TREE_CONNECT"], "/b": []}, "fail", "; /b does not know"),
        ({}, "pass", "whether it has NCCL_SKIP_TREE_CONNECT is unknown"),
    ],
)
def test_a_patch_that_is_named_is_looked_for_in_the_library(libraries, verdict, words):
    found = {"nccl": "2.30.7", "nccl_libraries": libraries}
    line = verify.nccl_line("a", found, {"NCCL_ALGO": "Ring", "NCCL_SKIP_TREE_CONNECT": "1"})
    assert (line["verdict"], bool(line["fix"])) == (verdict, verdict == "fail")
    assert words in line["note"]


def test_limits_follow_the_speed_that_links_are_planned_for() -> None:
    full, half = verify.thresholds(["spark"]), verify.thresholds(["spark"], None, 100)
    assert {name for name in full if full[name] != half[name]} == set(verify.BY_SPEED)
    assert (half["rdma_both_gbits"], half["busbw_nccl_gbytes"], half["busbw_nccl_ring_gbytes"]) == (82.5, 10.9375, 5.0)
    assert verify.thresholds(["spark"], {"rdma_both_gbits": 90}, 100)["rdma_both_gbits"] == 90
