# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three pipeline stages served out of containers: the main job's own tests, and what only containers can get wrong."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.integration.conftest import Cluster

# the same promises, the same tests
from tests.integration.default.test_main_job import (  # noqa: F401
    status,
    test_a_second_run_changes_nothing_and_restarts_nothing,
    test_health_is_proved_by_a_completion,
    test_nothing_but_the_api_passes_the_front,
    test_secrets_are_in_files_of_root_and_nowhere_else,
    test_streaming_models_and_plain_completions,
    test_the_greedy_answer_equals_that_of_one_host,
    test_without_the_key_there_is_no_answer,
)
from tests.integration.serve import test_serve
from tests.integration.serve.conftest import Serving
from tools import leaks

UNIT = "sparkthor-vllm.service"
STOP_LIMIT = 30
SERVING_LIMIT = 600


def containers(cluster: Cluster, host: str) -> dict[str, str]:
    lines = cluster.run(host, "docker ps --all --no-trunc --format '{{.Names}} {{.ID}}'").splitlines()
    return dict(line.split() for line in lines)


def wait_serving(cluster: Cluster, limit: float = SERVING_LIMIT) -> float:
    begun = time.monotonic()
    while status(f"{cluster.endpoint}/health")[0] != 200:
        assert time.monotonic() - begun < limit, cluster.run(
            cluster.head, f"journalctl -u {UNIT} -n 40 -o cat --no-pager"
        )
        time.sleep(1)
    return time.monotonic() - begun


def test_one_container_for_each_unit(cluster):
    wait_serving(cluster)
    assert set(containers(cluster, cluster.head)) == {"sparkthor-ray", "sparkthor-vllm"}
    for worker in cluster.hosts[1:]:
        assert set(containers(cluster, worker)) == {"sparkthor-ray"}


def test_vllm_is_nobodys_root_and_its_socket_is_the_fronts(cluster):
    found = json.loads(cluster.run(cluster.head, "docker container inspect sparkthor-vllm"))[0]
    user, group = found["Config"]["User"].split(":")
    assert user == cluster.run(cluster.head, "id -u sparkthor").strip() != "0"
    assert group == cluster.run(cluster.head, "getent group sparkthor-api | cut -d: -f3").strip()
    assert cluster.run(cluster.head, "stat -c '%U %G %a' /run/sparkthor/vllm/vllm.sock").split() == [
        *("sparkthor", "sparkthor-api", "770")
    ]
    assert "page cache dropped on 3 nodes" in cluster.run(
        cluster.head, f"journalctl -u {UNIT} -o cat --no-pager | grep 'page cache'"
    )


def test_no_secret_is_shown_by_docker(cluster):
    for host in cluster.hosts:
        shown = cluster.run(host, "docker container inspect $(docker ps --all --quiet); docker ps --all --no-trunc")
        assert leaks.shown(shown, {name: cluster.secret(name) for name in ("api_key", "ray_token")}) == []


def test_a_killed_client_of_vllm_leaves_nothing_and_serving_comes_back(cluster):
    before = containers(cluster, cluster.head)
    cluster.run(cluster.head, f"systemctl kill --signal=SIGKILL {UNIT}")
    begun = time.monotonic()
    # By its id: the next one has the same name a moment later.  Where the kernel kills what is forked into a control
    # group that was killed (seen on Linux 6.18, CLONE_INTO_CGROUP), ExecStopPost dies too, and the next start removes
    # the container.
    while before["sparkthor-vllm"] in containers(cluster, cluster.head).values():
        assert time.monotonic() - begun < STOP_LIMIT
        time.sleep(0.2)
    print(f"orphan gone after {time.monotonic() - begun:.1f} s")
    while status(f"{cluster.endpoint}/health")[0] == 200:
        assert time.monotonic() - begun < 60
        time.sleep(0.5)
    print(f"serving again after {wait_serving(cluster):.0f} s")
    now = containers(cluster, cluster.head)
    assert now["sparkthor-ray"] == before["sparkthor-ray"], "Ray was not touched"
    assert now["sparkthor-vllm"] != before["sparkthor-vllm"]
    assert len(now) == 2


def test_a_stop_is_short_and_whole(cluster):
    begun = time.monotonic()
    cluster.run(cluster.head, f"systemctl stop {UNIT}")
    took = time.monotonic() - begun
    print(f"stop of vLLM: {took:.1f} s")
    assert took < STOP_LIMIT
    assert "sparkthor-vllm" not in containers(cluster, cluster.head)
    assert cluster.run(cluster.head, "pgrep -f '[V]LLM::|vllm [s]erve'", check=False) == ""
    while status(f"{cluster.endpoint}/health")[0] == 200:
        assert time.monotonic() - begun < 60
        time.sleep(0.2)
    cluster.run(cluster.head, f"systemctl start --no-block {UNIT}")
    print(f"serving again after {wait_serving(cluster):.0f} s")


def test_rotations_write_the_units_of_the_container(serving: Serving) -> None:
    """Nothing but the secret is new afterwards. Ray starts anew beside an engine that holds a port of its range."""
    cluster = serving.cluster
    units = "/etc/systemd/system/sparkthor-ray.service /etc/systemd/system/sparkthor-vllm.service"
    command = f"sha256sum {units} /etc/sparkthor/ray.json /etc/sparkthor/container.json 2>/dev/null; true"
    files = {host: cluster.run(host, command) for host in cluster.hosts}
    running, starts = serving.units(), serving.starts()
    outcome = serving.play("playbooks/rotate_api_key.yml")
    assert outcome.rc == 0, outcome.failures
    assert serving.units() == running
    outcome = serving.play("playbooks/rotate_ray_token.yml")
    assert outcome.rc == 0, outcome.failures
    assert serving.starts() == starts + 1
    assert {host: cluster.run(host, command) for host in cluster.hosts} == files
    assert set(serving.site(whole=True).changed.values()) == {0}
    serving.assert_answers_as_one_host()


# -- other splits and the other executor: the tests go on from one to the next -----------------------------------------


def test_tp3_over_ray_answers_as_one_host(serving: Serving) -> None:
    starts = serving.starts()
    before = {host: containers(serving.cluster, host)["sparkthor-ray"] for host in serving.cluster.hosts}
    serving.site(vllm_serve_pipeline_parallel_size=1, vllm_serve_tensor_parallel_size=3)
    assert serving.starts() == starts + 1
    serving.assert_answers_as_one_host()
    now = {host: containers(serving.cluster, host)["sparkthor-ray"] for host in serving.cluster.hosts}
    assert now == before, "Ray was not touched"


@pytest.mark.parametrize("split", [test_serve.MP_TP, test_serve.MP_PP], ids=["TP=3", "PP=3"])
def test_mp_serves_out_of_one_container_a_host(serving: Serving, split: dict) -> None:
    serving.site(**split)
    for host in serving.cluster.hosts:
        assert set(containers(serving.cluster, host)) == {"sparkthor-vllm"}, host
    serving.assert_answers_as_one_host()


def test_a_killed_rank_takes_its_group_along_and_serving_comes_back(serving: Serving) -> None:
    """A container is no child of its unit: each of the group's must go, and one of each come back."""
    cluster = serving.cluster
    before = {host: containers(cluster, host)["sparkthor-vllm"] for host in cluster.hosts}
    cluster.run(cluster.hosts[-1], "docker kill --signal=KILL sparkthor-vllm")
    begun = time.monotonic()
    while status(f"{cluster.endpoint}/health")[0] == 200:
        assert time.monotonic() - begun < 60
        time.sleep(0.5)
    print(f"noticed after {time.monotonic() - begun:.1f} s; serving again after {wait_serving(cluster):.0f} s")
    now = {host: containers(cluster, host) for host in cluster.hosts}
    for host in cluster.hosts:
        assert set(now[host]) == {"sparkthor-vllm"}, host
        assert now[host]["sparkthor-vllm"] != before[host], host
    serving.assert_answers_as_one_host()


def test_tp2_over_two_of_three_hosts(serving: Serving, tmp_path: Path) -> None:
    test_serve.test_tp2_over_two_of_three_hosts(serving, tmp_path)
    two = serving.cluster.hosts[:2]
    assert [set(containers(serving.cluster, host)) for host in two] == [
        {"sparkthor-ray", "sparkthor-vllm"},
        {"sparkthor-ray"},
    ]
