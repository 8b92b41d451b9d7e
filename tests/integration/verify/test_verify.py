# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""status and verify on a converged lab: what they say when all is well, and that a fault fails its own lines."""

from __future__ import annotations

import json

import pytest

from tests.integration.conftest import TOP, Cluster
from tools.playbooks import run_playbook

HALF = ("enp1s0f1np1", "enP2p1s0f1np1")
#: well below what any simulated port reaches, well above a port limited to 40 Mbit/s
LEAST = 0.12


def status(cluster: Cluster, folder, *inventories, rc=0):
    path = folder / "status.json"
    outcome = run_playbook(
        "playbooks/status.yml",
        [*cluster.inventories, *inventories],
        extra_vars={"status_output": "json", "status_output_file": str(path)},
        name="status",
        say=lambda line: None,
    )
    assert outcome.rc == rc, outcome.failures
    assert set(outcome.changed.values()) == {0}
    return json.loads(path.read_text()), outcome


def verify(cluster: Cluster, folder, parts="links", inventories=()):
    """The run's outcome and the document that it left."""
    thresholds = {"tcp_half_gbits": LEAST, "tcp_both_gbits": LEAST, "busbw_gloo_gbytes": 0.0005, "latency_us": 5e6}
    thresholds |= {"decode_fraction": 0, "ttft_seconds": 180, "batch_gain": 0.3}
    outcome = run_playbook(
        "playbooks/verify.yml",
        [*cluster.inventories, *inventories],
        extra_vars={
            **{"verify_parts": parts, "verify_folder": str(folder), "verify_thresholds": thresholds},
            "verify_burn_seconds": 8,
        },
        name="verify",
        say=lambda line: None,
    )
    assert set(outcome.changed.values()) == {0}
    documents = sorted((folder / "verify").glob("*.json"))
    return outcome, json.loads(documents[-1].read_text()) if documents else None


def failing(document):
    return [(line["check"], line["where"]) for line in document["lines"] if line["verdict"] == "fail"]


def test_status_of_a_healthy_cluster(cluster, tmp_path):
    document, outcome = status(cluster, tmp_path)
    assert document["problems"] == []
    assert document["ok"] is True
    assert document["serving"]["state"] == "serving"
    assert document["ray"]["present_nodes"] == len(cluster.hosts)
    for host in cluster.hosts:
        found = document["hosts"][host]
        assert [(link["netdev"], link["state"], link["mtu"]) for link in found["links"]] == [
            (netdev, "up", 9000) for netdev in HALF
        ]
        assert found["versions"]["ray"]
    print(f"status: {outcome.seconds:.1f} s")


def test_status_costs_at_most_twice_one_ping(cluster, tmp_path):
    """The best of five each, in turn: another load on the machine hits both."""
    ping = TOP / ".lab" / cluster.lab.name / "ping.yml"
    ping.write_text("- hosts: cluster\n  gather_facts: false\n  tasks: [{ansible.builtin.ping: }]\n")
    pings, statuses = [], []
    for _round in range(5):
        pings.append(
            run_playbook(str(ping.relative_to(TOP)), cluster.inventories, name="ping", say=lambda line: None).seconds
        )
        statuses.append(status(cluster, tmp_path)[1].seconds)
    print(f"ping {min(pings):.2f} s, status {min(statuses):.2f} s at best; all: {pings} {statuses}")
    assert min(statuses) <= 2 * min(pings)


def test_verify_of_a_healthy_cluster_passes(cluster, tmp_path):
    outcome, document = verify(cluster, tmp_path, "links,collective,ray,serving")
    assert outcome.rc == 0, outcome.failures
    assert failing(document) == []
    checks = {line["check"] for line in document["lines"]}
    assert checks == {
        *("link", "path MTU", "bandwidth", "all-reduce", "latency", "transport", "ray"),
        *("completion", "TTFT", "decode", "throughput"),
    }
    assert len(document["sweep"]) > 3
    print(f"verify: {outcome.seconds:.1f} s")


def host_pair(cluster):
    first, second = cluster.hosts[0], cluster.hosts[1]
    return first, second, cluster.hosts[-1]


def test_a_limited_port_fails_the_lines_that_use_it(cluster, tmp_path):
    _first, second, _last = host_pair(cluster)
    cluster.lab.rate(second, [HALF[1]], 40)
    try:
        outcome, document = verify(cluster, tmp_path)
    finally:
        cluster.lab.rate(second, [HALF[1]], None)
    assert outcome.rc != 0
    failed = failing(document)
    halves = [where for check, where in failed if "half 1" in where and check == "bandwidth"]
    assert len(halves) == 2
    assert all(second in where for where in halves)
    assert not [where for _check, where in failed if "half 0" in where]
    assert document["suspects"] == [f"{second} {HALF[1]}"]


def test_a_small_mtu_fails_the_link_and_its_path(cluster, tmp_path):
    _first, second, _last = host_pair(cluster)
    cluster.run(second, f"ip link set {HALF[0]} mtu 1500")
    try:
        outcome, document = verify(cluster, tmp_path)
    finally:
        cluster.run(second, f"ip link set {HALF[0]} mtu 9000")
    assert outcome.rc != 0
    failed = failing(document)
    assert failed[0] == ("link", f"{second} {HALF[0]} (half 0)")
    paths = [where for check, where in failed if check == "path MTU"]
    assert len(paths) == 2
    assert all(second in where and "half 0" in where for where in paths)
    # a little more than its MTU may still come in
    found = [line["value"] for line in document["lines"] if (line["check"], line["verdict"]) == ("path MTU", "fail")]
    assert max(found) < 1520


def test_a_switch_that_drops_jumbo_frames_fails_the_path_alone(cluster, tmp_path):
    _first, second, _last = host_pair(cluster)
    cluster.lab.blackhole(second, HALF[1])
    try:
        outcome, document = verify(cluster, tmp_path)
    finally:
        cluster.lab.blackhole(second, HALF[1], on=False)
    assert outcome.rc != 0
    paths = [where for check, where in failing(document) if check == "path MTU"]
    assert len(paths) == 2
    assert all(second in where and "half 1" in where for where in paths)
    assert not [where for check, where in failing(document) if check == "link"]


def test_a_cut_half_fails_its_link_and_what_needs_it(cluster, tmp_path):
    _first, second, _last = host_pair(cluster)
    cluster.lab.cut(second, HALF[1])
    try:
        outcome, document = verify(cluster, tmp_path)
        seen, _outcome = status(cluster, tmp_path)
    finally:
        cluster.lab.fix(second, HALF[1])
    assert outcome.rc != 0
    failed = failing(document)
    assert failed[0] == ("link", f"{second} {HALF[1]} (half 1)")
    assert document["lines"][0]["note"].startswith(f"{HALF[1]} has no carrier")
    assert not [where for _check, where in failed if "half 0" in where]
    assert [(item["host"], item["text"]) for item in seen["problems"]] == [(second, f"{HALF[1]} has no carrier")]


@pytest.fixture
def away(cluster):
    """An inventory under which a host does not answer: a port of it on which nothing listens."""
    made = []

    def inventory(*hosts):
        path = TOP / ".lab" / cluster.lab.name / f"away{len(made)}.yml"
        entries = ", ".join(f"{host}: {{ansible_port: 2222}}" for host in hosts)
        path.write_text(f"all: {{hosts: {{{entries}}}}}\n")
        made.append(path)
        return path

    yield inventory
    for path in made:
        path.unlink()


def test_half_a_cluster_is_an_answer(cluster, tmp_path, away):
    last = cluster.hosts[-1]
    inventory = away(last)
    document, _outcome = status(cluster, tmp_path, inventory)
    assert document["problems"][0]["host"] == last
    assert document["problems"][0]["text"].startswith("it does not answer at ")
    assert document["serving"]["state"] == "serving"
    outcome, document = verify(cluster, tmp_path, "collective,ray", [inventory])
    assert outcome.rc != 0
    assert failing(document)[:2] == [("host", last), ("all-reduce", "all ranks")]


def test_no_cluster_at_all_is_an_answer(cluster, tmp_path, away):
    inventory = away(*cluster.hosts)
    document, outcome = status(cluster, tmp_path, inventory, rc=2)
    assert [item["host"] for item in document["problems"]] == cluster.hosts
    assert all(item["text"].startswith("it does not answer at ") for item in document["problems"])
    assert outcome.seconds < 60
    outcome, document = verify(cluster, tmp_path, "links,collective,ray,serving", [inventory])
    assert outcome.rc != 0
    assert outcome.seconds < 60
    assert [line["where"] for line in document["lines"] if line["check"] == "host"] == cluster.hosts


def test_a_slow_gpu_is_found_under_load(cluster, tmp_path):
    """By name, because the cluster serves; the hosts have a stand-in for nvidia-smi, and torch on CPUs."""
    slow = cluster.hosts[-1]
    outcome, document = verify(cluster, tmp_path / "sound", "burn")
    assert outcome.rc == 0, outcome.failures
    assert {line["where"] for line in document["lines"] if line["check"] == "GPU burn"} == {
        f"{host} GPU 0" for host in cluster.hosts
    }
    cluster.run(slow, "printf 'clocks.sm=104 MHz\\npower.draw=2.10 W\\n' > /run/gpu-fields")
    try:
        outcome, document = verify(cluster, tmp_path / "slow", "burn")
    finally:
        cluster.run(slow, "rm /run/gpu-fields")
    assert outcome.rc != 0
    assert failing(document) == [("GPU burn", f"{slow} GPU 0")]
    # without being asked for, nothing is loaded beside an engine that serves
    _outcome, document = verify(cluster, tmp_path / "serving", "ray")
    assert document["parts"] == ["ray"]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"verify_thresholds": {"ttft": 1}}, ["verify_thresholds", "ttft", "ttft_seconds"]),
        ({"verify_parts": "links,speed"}, ["parts", "speed", "collective"]),
    ],
)
def test_bad_variables_are_named(cluster, variables, words):
    outcome = run_playbook(
        "playbooks/verify.yml", cluster.inventories, extra_vars=variables, name="bad", say=lambda line: None
    )
    assert outcome.rc != 0
    message = " ".join(outcome.failures)
    for word in words:
        assert word in message
    assert "Traceback" not in message
