# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job on a converged lab: what a user was promised, seen from outside and on the hosts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

import openai
import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file

from tests.integration.conftest import TOP, Cluster
from tools import leaks
from tools.playbooks import run_playbook

GATE = "/usr/bin/python3 -IB /usr/local/lib/sparkthor/sparkthor_host ray-gate"

MODEL = "tiny-qwen3"
SITE_SECONDS_LIMIT = 600
UNITS = ("sparkthor-ray.service", "sparkthor-vllm.service", "sparkthor-front.service", "sparkthor-watchdog.service")


def client(cluster: Cluster) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{cluster.endpoint}/v1", api_key=cluster.api_key, timeout=180.0, max_retries=0)


def status(url: str, key: str | None = None, data: dict | None = None) -> tuple[int, dict[str, str], str]:
    request = urllib.request.Request(url, data=json.dumps(data).encode() if data is not None else None)
    request.add_header("Content-Type", "application/json")
    if key is not None:
        request.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, dict(reply.headers), reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read().decode()


def unit_state(cluster: Cluster) -> dict[str, str]:
    state = {}
    for host in cluster.hosts:
        boot = cluster.run(host, "cat /proc/sys/kernel/random/boot_id").strip()
        shown = cluster.run(
            host, "systemctl show -p Id -p MainPID -p ExecMainStartTimestampMonotonic " + " ".join(UNITS)
        )
        state[host] = f"{boot}\n{shown}"
    return state


def test_the_greedy_answer_equals_that_of_one_host(cluster):
    reference = json.loads(
        subprocess.run(
            [sys.executable, str(TOP / "lab/engine/reference_answer.py"), "--prompt", "hello", "--max-tokens", "16"],
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        ).stdout.splitlines()[-1]
    )
    # far enough apart that float32 rounding in another order of summation cannot swap two tokens
    assert reference["margin"] > 0.01
    reply = client(cluster).chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hello"}], max_tokens=16, temperature=0.0
    )
    assert reply.choices[0].message.content == reference["content"]


def test_streaming_models_and_plain_completions(cluster):
    api = client(cluster)
    assert [model.id for model in api.models.list().data] == [MODEL]
    parts = [
        part.choices[0].delta.content or ""
        for part in api.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "hello"}],
            max_tokens=8,
            temperature=0.0,
            stream=True,
        )
        if part.choices
    ]
    assert len([part for part in parts if part]) > 1
    plain = api.completions.create(model=MODEL, prompt="hello", max_tokens=4, temperature=0.0)
    assert plain.usage.completion_tokens == 4


@pytest.mark.parametrize("key", [None, "", "wrong-key-of-some-length"])
def test_without_the_key_there_is_no_answer(cluster, key):
    code, _headers, body = status(f"{cluster.endpoint}/v1/models", key)
    assert code == 401
    assert "error" in json.loads(body)
    code, _headers, _body = status(
        f"{cluster.endpoint}/v1/completions", key, {"model": MODEL, "prompt": "hello", "max_tokens": 1}
    )
    assert code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/invocations",
        "/metrics",
        "/tokenize",
        "/detokenize",
        "/load",
        "/docs",
        "/openapi.json",
        "/version",
        "/ping",
        "/console/console.json",
        "/console/vendor/../../console.json",
    ],
)
@pytest.mark.parametrize("with_key", [False, True])
def test_nothing_but_the_api_passes_the_front(cluster, path, with_key):
    code, _headers, _body = status(f"{cluster.endpoint}{path}", cluster.api_key if with_key else None)
    assert code in (401, 404)


def test_the_page_shows_the_cluster_to_its_key_and_a_login_to_everybody(cluster):
    code, headers, body = status(f"{cluster.endpoint}/")
    assert (code, "Content-Security-Policy" in headers) == (200, True)
    assert not [host for host in cluster.hosts if host in body]
    for path in ("state", "log"):
        for key in (None, "wrong-key-of-some-length"):
            assert status(f"{cluster.endpoint}/console/{path}", key)[0] == 401
    end = time.monotonic() + 60
    while True:
        code, _headers, body = status(f"{cluster.endpoint}/console/state", cluster.api_key)
        told = json.loads(body)
        if code == 200 and [host["answers"] for host in told["hosts"]] == [True] * len(cluster.hosts):
            break
        assert time.monotonic() < end, body
        time.sleep(1)
    assert told["groups"][0]["state"] == "serving"
    wish = {"do": "stop", "group": "", "reason": "x", "id": "0" * 9}
    assert status(f"{cluster.endpoint}/console/do", cluster.api_key, wish)[0] == 403


def test_health_is_proved_by_a_completion(cluster):
    code, _headers, body = status(f"{cluster.endpoint}/health")
    assert code == 200, body


def test_ray_has_three_nodes_on_control_addresses_and_none_elsewhere(cluster):
    plan = {host: f"10.100.0.{index}" for index, host in enumerate(cluster.hosts, 1)}
    for host, address in plan.items():
        assert f"inet {address}/" in cluster.run(host, "ip -4 address show dev enp1s0f1np1"), host
    text = cluster.run(
        cluster.head,
        "set -a; . /etc/sparkthor/fabric.env; set +a; export RAY_AUTH_MODE=token "
        "RAY_AUTH_TOKEN_PATH=/etc/sparkthor/secrets/ray_token RAY_USAGE_STATS_ENABLED=0; "
        "timeout 60 /opt/sparkthor/venv/bin/ray status",
    )
    assert re.search(r"3\.0/3\.0 GPU", text), text
    gate = json.loads(cluster.run(cluster.head, f"{GATE} --json"))
    assert sorted(node["address"] for node in gate["alive"]) == sorted(plan.values())


def test_secrets_are_in_files_of_root_and_nowhere_else(cluster):
    token = cluster.secret("ray_token")
    folder = cluster.secrets
    assert folder.stat().st_mode & 0o777 == 0o700
    for name in ("api_key", "ray_token"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600
    for host in cluster.hosts:
        modes = cluster.run(host, "stat -c '%a %U %n' /etc/sparkthor/secrets /etc/sparkthor/secrets/*")
        for line in modes.splitlines():
            assert line.split()[:2] in (["700", "root"], ["600", "root"]), line
        for secret in (cluster.api_key, token):
            assert leaks.places(cluster.lab, host, secret) == [], host


def test_units_have_their_limits_and_the_engine_its_environment(cluster):
    for host in cluster.hosts:
        shown = cluster.run(host, "systemctl show sparkthor-ray.service -p LimitMEMLOCK -p Restart -p EnvironmentFiles")
        assert "LimitMEMLOCK=infinity" in shown
        assert "Restart=always" in shown
        # systemd would give them to root's steps as well
        assert ".env" not in shown
        given = cluster.run(host, "tr '\\0' '\\n' </proc/$(systemctl show -P MainPID sparkthor-ray.service)/environ")
        files = cluster.run(host, "cat /etc/sparkthor/fabric.env /etc/sparkthor/engine.env /etc/sparkthor/ray.env")
        wanted = environment_file.parse(files)
        # an address of clients' is none of Ray's own
        assert wanted.pop("RAY_ADDRESS")
        assert set(map("=".join, wanted.items())) <= set(given.splitlines()), host
        assert "RAY_ADDRESS=" not in given


def test_a_second_run_changes_nothing_and_restarts_nothing(cluster):
    before = unit_state(cluster)
    outcome = run_playbook("site.yml", cluster.inventories, name="second")
    print(f"second run: {outcome.seconds:.1f} s, {outcome.stages}")
    assert outcome.rc == 0, outcome.failures
    assert set(outcome.changed.values()) == {0}, outcome.changed
    assert outcome.seconds < SITE_SECONDS_LIMIT
    assert unit_state(cluster) == before


def stops_before_any_change(cluster, inventories, words, **variables):
    before = unit_state(cluster)
    outcome = run_playbook("site.yml", inventories, extra_vars=variables or None, name="bad", say=lambda line: None)
    assert outcome.rc != 0
    assert sum(outcome.changed.values()) == 0
    [message] = {failure.partition(": ")[2] for failure in outcome.failures}
    for word in words:
        assert word in message, message
    assert unit_state(cluster) == before


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"fabric_topology": "mesh"}, ["fabric_topology", "mesh", "switch"]),
        ({"vllm_serve_api_key": ""}, ["vllm_serve_api_key", "is empty", "16"]),
        ({"vllm_serve_api_key": "short"}, ["vllm_serve_api_key", "5 characters"]),
        ({"ray_node_token": ""}, ["ray_node_token", "is empty"]),
        ({"vllm_serve_pipeline_parallel_size": 7}, ["vllm_serve_pipeline_parallel_size", "7", "3"]),
        ({"fabric_cidr": "10.100.0.0/31"}, ["fabric_cidr", "10.100.0.0/31"]),
    ],
)
def test_bad_variables_stop_before_any_change(cluster, variables, words):
    stops_before_any_change(cluster, cluster.inventories, words, **variables)


HEAD_ONLY = "cluster: {children: {ray_head: {hosts: {%s}}, ray_workers: {hosts: {%s}}}}"


@pytest.mark.parametrize(
    ("heads", "workers", "words"),
    [
        ([], [0, 1, 2], ["ray_head", "no host"]),
        ([0, 1], [2], ["ray_head", "2 hosts"]),
        ([0], [0, 1, 2], ["both ray_head and ray_workers"]),
        ([0], [], ["vllm_serve_pipeline_parallel_size", "needs 3 GPUs"]),
    ],
)
def test_bad_groups_stop_before_any_change(cluster, tmp_path, heads, workers, words):
    def listed(indexes):
        return ", ".join(
            f"{cluster.hosts[index]}: {{ansible_host: {cluster.addresses[cluster.hosts[index]]}}}" for index in indexes
        )

    inventory = tmp_path / "inventory"
    inventory.mkdir()
    (inventory / "hosts.yml").write_text(HEAD_ONLY % (listed(heads), listed(workers)))
    (inventory / "group_vars").symlink_to(cluster.inventories[0] / "group_vars")
    stops_before_any_change(cluster, [inventory], words)


def test_an_unreachable_host_stops_before_any_change_and_is_named(cluster):
    before = unit_state(cluster)
    last = cluster.hosts[-1]
    # a port of the lab host on which nothing listens
    extra = TOP / ".lab" / cluster.lab.name / "unreachable.yml"
    extra.write_text(f"all: {{hosts: {{{last}: {{ansible_port: 2222}}}}}}\n")
    try:
        outcome = run_playbook("site.yml", [*cluster.inventories, extra], name="bad", say=lambda line: None)
    finally:
        extra.unlink()
    assert outcome.rc != 0
    assert sum(outcome.changed.values()) == 0
    assert any(f"host {last}" in failure and "ansible_port" in failure for failure in outcome.failures), (
        outcome.failures
    )
    assert unit_state(cluster) == before
