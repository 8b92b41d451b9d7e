# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ray in containers on three hosts: what holds without a container holds with one, and Docker leaves nothing behind.

SPARKTHOR_RAY_REPEATS   how often each fault is laid (default 3)
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.conftest import TOP, Cluster
from tools.playbooks import run_playbook

REPEATS = int(os.environ.get("SPARKTHOR_RAY_REPEATS", "3"))
SITE = ["--skip-tags=vllm_serve,model_store"]
GATE = "/usr/bin/python3 -IB /usr/local/lib/sparkthor/sparkthor_host ray-gate"
UNIT = "sparkthor-ray.service"
KILL_LIMIT, WORKER_LIMIT, STOP_LIMIT, REFUSAL_LIMIT = 30, 60, 30, 30


def control(cluster: Cluster, host: str) -> str:
    return f"10.100.0.{cluster.hosts.index(host) + 1}"


def health(cluster: Cluster, host: str, source: str = "auto") -> dict[str, Any]:
    """The gate's answer there; what it prints is JSON whatever it finds."""
    return json.loads(cluster.run(host, f"{GATE} --json --source {source} --timeout 60", check=False))


def wait_for(
    cluster: Cluster, good: Callable[[dict[str, Any]], bool], limit: float, host: str = ""
) -> tuple[float, dict[str, Any]]:
    begun = time.monotonic()
    while True:
        answer = health(cluster, host or cluster.head)
        took = time.monotonic() - begun
        if good(answer):
            return took, answer
        assert took < limit, f"after {took:.0f} s: {answer['reason']}"
        time.sleep(0.3)


def nodes(answer: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["node_id"] for entry in answer["alive"]}


def again(before: dict[str, str], *hosts: str) -> Callable[[dict[str, Any]], bool]:
    """The cluster is whole, and these hosts are there as other nodes than before, the others as the same."""

    def good(answer: dict[str, Any]) -> bool:
        now = nodes(answer)
        return answer["healthy"] and all((now[host] != before[host]) == (host in hosts) for host in before)

    return good


def containers(cluster: Cluster, host: str) -> list[str]:
    return cluster.run(host, "docker ps --all --no-trunc --format '{{.ID}} {{.Names}}'").splitlines()


def ray_container(cluster: Cluster, host: str) -> dict[str, Any]:
    return json.loads(cluster.run(host, "docker container inspect sparkthor-ray"))[0]


def report(what: str, took: list[float], limit: float) -> None:
    shown = ", ".join(f"{seconds:.1f}" for seconds in took)
    load = os.getloadavg()[0]
    print(f"{what}: {shown} s, median {statistics.median(took):.1f} s, limit {limit} s, load {load:.1f}")
    assert max(took) < limit


@pytest.fixture(autouse=True)
def whole(cluster: Cluster) -> None:
    """Each test begins with a whole cluster."""
    wait_for(cluster, lambda answer: answer["healthy"], 240)


def test_all_hosts_are_members_on_their_control_addresses_and_nowhere_else(cluster):
    for host, source in ((cluster.head, "dashboard"), (cluster.head, "engine"), (cluster.hosts[1], "auto")):
        answer = health(cluster, host, source)
        assert answer["healthy"], answer["reason"]
        assert {entry["address"] for entry in answer["alive"]} == {control(cluster, name) for name in cluster.hosts}
        assert answer["present_gpus"] == 3
        assert answer["strangers"] == []
        assert answer["source"] == ("engine" if source == "auto" else source)
        print(f"health on {host} by {answer['source']}: {answer['seconds']} s")
    for entry in answer["alive"]:
        assert entry["raylet_ok"] is True
    started = {entry["name"]: entry["started"] for entry in answer["alive"]}
    print("started: " + ", ".join(f"{name} {moment}" for name, moment in sorted(started.items())))


def test_health_takes_less_than_a_second(cluster):
    for host in (cluster.head, cluster.hosts[1]):
        took = [health(cluster, host)["seconds"] for _unused in range(5)]
        print(f"ray_info on {host}: {took}")
        assert min(took) < 1


def test_the_container_is_what_was_asked_for(cluster):
    wanted = json.loads(cluster.run(cluster.head, "cat /etc/sparkthor/container.json"))
    for host in cluster.hosts:
        found = ray_container(cluster, host)
        settings = found["HostConfig"]
        assert [settings[key] for key in ("NetworkMode", "IpcMode", "PidMode")] == ["host"] * 3
        assert settings["RestartPolicy"]["Name"] == "no"
        assert settings["LogConfig"]["Type"] == "none"
        assert settings["CapAdd"] == ["IPC_LOCK"]
        assert settings["Privileged"] is False
        assert settings["DeviceRequests"][0]["DeviceIDs"] == ["nvidia.com/gpu=all"]
        uid = cluster.run(host, "id -u sparkthor").strip()
        assert found["Config"]["User"].split(":")[0] == uid != "0"
        pid = found["State"]["Pid"]
        # the CDI description of the lab has no device, and says that it was followed
        assert "SPARKLAB_GPU=cdi" in cluster.run(host, f"tr '\\0' '\\n' < /proc/{pid}/environ")
        # the lab's machine may raise no limit: then it is the highest that it has
        hard = cluster.run(host, "ulimit -Hl").strip()
        assert cluster.run(host, f"grep 'locked memory' /proc/{pid}/limits").split()[3] == (
            "unlimited" if hard == "unlimited" else str(int(hard) * 1024)
        )
        assert found["Image"] == json.loads(cluster.run(host, "cat /etc/sparkthor/container.json"))["image"]
    assert wanted["services"]["ray"]["umask"] == "0022"


def test_the_image_is_the_archives_with_ray_added_once(cluster):
    manifest = subprocess.run(
        ["tar", "-xOf", str(TOP / ".lab/engine/image.tar"), "manifest.json"], capture_output=True, check=True, text=True
    ).stdout
    archive = "sha256:" + json.loads(manifest)[0]["Config"].removesuffix(".json")
    for host in cluster.hosts:
        labels = ray_container(cluster, host)["Config"]["Labels"]
        assert labels["sparkthor.base"] == archive
        made = cluster.run(host, "docker images --no-trunc --quiet --filter label=sparkthor.base").split()
        assert len(made) == 1, "one derived image"
        for image, ray in ((archive, "absent"), (made[0], "2.60.0")):
            program = (
                "import importlib.util as u, importlib.metadata as m; "
                "print(m.version('ray') if u.find_spec('ray') else 'absent')"
            )
            said = cluster.run(host, f'docker run --rm --network none --entrypoint python3 {image} -c "{program}"')
            assert said.strip() == ray


def test_an_nccl_conf_in_the_image_does_not_reach_the_engine(cluster):
    image = json.loads(cluster.run(cluster.head, "cat /etc/sparkthor/container.json"))["image"]
    own = cluster.run(cluster.head, f"docker run --rm --entrypoint cat {image} /etc/nccl.conf")
    assert "NCCL_IB_DISABLE=1" in own, "the lab's image carries one, or this test shows nothing"
    for host in cluster.hosts:
        inside = cluster.run(host, "docker exec sparkthor-ray cat /etc/nccl.conf")
        assert "NCCL_IB_DISABLE=1" not in inside
        assert inside == cluster.run(host, "cat /etc/nccl.conf 2>/dev/null", check=False)
        assert "NCCL_IB_DISABLE=0" in cluster.run(host, "docker exec sparkthor-ray env")


def test_the_token_is_in_files_alone(cluster):
    token = cluster.secret("ray_token")
    command = (
        "read -r s; { cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; "
        "docker container inspect $(docker ps -aq); journalctl --no-pager -o cat; cat /run/sparkthor/container/*; } "
        "| grep -aF -f <(echo \"$s\") | grep -v '^s=' | head -c 300"
    )
    for host in cluster.hosts:
        found = subprocess.run(
            cluster.lab.enter_command(host, ["bash", "-c", command]),
            input=token + "\n",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert found.stdout == "", f"the token shows on {host}"
        assert len(cluster.run(host, "docker exec sparkthor-ray sh -c 'cat $RAY_AUTH_TOKEN_PATH'").strip()) == len(
            token
        )
        refused = cluster.run(
            host, "docker exec sparkthor-ray cat /etc/sparkthor/secrets/ray_token 2>&1; echo $?", check=False
        )
        assert "Permission denied" in refused


def test_a_second_run_changes_nothing_and_restarts_no_container(cluster):
    before = {host: containers(cluster, host) for host in cluster.hosts}
    outcome = run_playbook("site.yml", cluster.inventories, arguments=SITE, name="second")
    print(f"second run: {outcome.seconds:.1f} s")
    assert outcome.rc == 0, outcome.failures
    assert set(outcome.changed.values()) == {0}, outcome.changed
    assert {host: containers(cluster, host) for host in cluster.hosts} == before


@pytest.mark.parametrize("wrong", [True, False])
def test_a_wrong_or_missing_token_is_refused_with_the_reason(cluster, wrong):
    worker = cluster.hosts[2]
    path = "/etc/sparkthor/secrets/ray_token"
    cluster.run(worker, f"cp -p {path} /root/token.kept")
    begun = time.monotonic()
    try:
        change = f"echo {'x' * 40} > {path}" if wrong else f": > {path}"
        cluster.run(worker, f"{change}; systemctl restart --no-block {UNIT}")
        wanted = "the head refuses this host's token" if wrong else "there is no Ray token"
        while wanted not in cluster.run(worker, f"journalctl -u {UNIT} -o cat --no-pager -n 20"):
            assert time.monotonic() - begun < REFUSAL_LIMIT
            time.sleep(0.5)
        print(f"{'wrong' if wrong else 'no'} token refused after {time.monotonic() - begun:.1f} s")
        answer = health(cluster, worker, "engine")
        assert answer["problems"][0]["code"] == ("token_refused" if wrong else "token_missing"), answer["reason"]
        assert control(cluster, worker) not in {e["address"] for e in health(cluster, cluster.head)["alive"]}
    finally:
        cluster.run(worker, f"mv /root/token.kept {path}; systemctl restart --no-block {UNIT}")


def test_a_killed_raylet_is_back(cluster):
    worker, took = cluster.hosts[1], []
    for _unused in range(REPEATS):
        before = nodes(health(cluster, cluster.head))
        cluster.run(worker, "kill -9 $(pgrep -f '[/]raylet/raylet')")
        seconds, _answer = wait_for(cluster, again(before, worker), 4 * KILL_LIMIT)
        took.append(seconds)
        assert len(containers(cluster, worker)) == 1
    report("kill -9 raylet, member again", took, KILL_LIMIT)


def test_a_killed_client_leaves_no_container(cluster):
    worker, took = cluster.hosts[1], []
    for _unused in range(REPEATS):
        before, old = nodes(health(cluster, cluster.head)), containers(cluster, worker)
        cluster.run(worker, f"systemctl kill --signal=SIGKILL {UNIT}")
        seconds, _answer = wait_for(cluster, again(before, worker), 4 * KILL_LIMIT)
        took.append(seconds)
        now = containers(cluster, worker)
        assert len(now) == 1
        assert now != old
        assert len(cluster.run(worker, "pgrep -f '[/]raylet/raylet'").split()) == 1
    report("kill -9 of Docker's client, member again", took, KILL_LIMIT)


def test_a_worker_that_lost_power_is_back(cluster):
    worker, took = cluster.hosts[2], []
    for _unused in range(REPEATS):
        before = nodes(health(cluster, cluster.head))
        cluster.lab.off(worker)
        cluster.lab.boot(worker)
        cluster.lab.wait(worker, seconds=180)
        seconds, _answer = wait_for(cluster, again(before, worker), 4 * WORKER_LIMIT)
        took.append(seconds)
        assert len(containers(cluster, worker)) == 1
    report("worker power loss, member after its ssh", took, WORKER_LIMIT)


def test_docker_may_be_restarted(cluster):
    worker = cluster.hosts[1]
    before = nodes(health(cluster, cluster.head))
    cluster.run(worker, "systemctl restart docker.service")
    seconds, _answer = wait_for(cluster, again(before, worker), 4 * KILL_LIMIT)
    print(f"restart of Docker, member again: {seconds:.1f} s")
    assert len(containers(cluster, worker)) == 1


def test_docker_that_died_leaves_no_process(cluster):
    """The container's own processes survive a killed dockerd: the unit ends them by their control group."""
    worker = cluster.hosts[1]
    before = nodes(health(cluster, cluster.head))
    # masked, so that neither systemd nor its socket brings Docker back before the test has checked
    cluster.run(worker, "systemctl mask --runtime docker.service docker.socket")
    cluster.run(worker, "systemctl kill --signal=SIGKILL docker.service")
    try:
        deadline = time.monotonic() + 60
        while cluster.run(worker, "pgrep -f '[/]raylet/raylet'", check=False).split():
            assert time.monotonic() < deadline, "a raylet outlived its unit"
            time.sleep(0.5)
    finally:
        cluster.run(
            worker,
            "systemctl unmask --runtime docker.service docker.socket; systemctl reset-failed 'docker*'; "
            # a socket that was masked while it listened has nothing to hand to Docker until it is opened anew
            "systemctl stop docker.socket; systemctl start docker.socket docker.service",
        )
    wait_for(cluster, again(before, worker), 4 * KILL_LIMIT)
    assert len(containers(cluster, worker)) == 1


def test_a_stop_is_short_and_whole(cluster):
    worker, took = cluster.hosts[1], []
    for _unused in range(REPEATS):
        before = nodes(health(cluster, cluster.head))
        begun = time.monotonic()
        cluster.run(worker, f"systemctl stop {UNIT}")
        took.append(time.monotonic() - begun)
        assert containers(cluster, worker) == []
        assert cluster.run(worker, "pgrep -f '[/]raylet/raylet'", check=False) == ""
        assert cluster.run(worker, f"systemctl show --property=ActiveState --value {UNIT}").strip() == "inactive"
        cluster.run(worker, f"systemctl start --no-block {UNIT}")
        wait_for(cluster, again(before, worker), 4 * KILL_LIMIT)
    report("stop of a worker's Ray", took, STOP_LIMIT)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"engine_image_digest": "sha256:" + "0" * 64}, ["engine_image_digest is sha256:000", "holds sha256:"]),
        ({"engine_image_archive": "/nowhere/image.tar"}, ["engine_image_archive", "is not on the controller"]),
        ({"engine_image_archive": "", "engine_image": "own/vllm:latest"}, ["a tag that moves"]),
        ({"engine_image_archive": "", "engine_image": ""}, ["engine_image is empty"]),
        ({"engine_ray_version": "2.59.0"}, ["engine_ray_version is '2.59.0'"]),
        ({"engine_vllm_version": "0.31.0"}, ["engine_vllm_version is '0.31.0'"]),
        ({"engine_container_gpu": "gpus"}, ["engine_container_gpu: gpus cannot be had", "nvidia-container-runtime"]),
    ],
)
def test_bad_input_is_stopped_before_a_unit_is_touched(cluster, variables, words):
    before = {host: containers(cluster, host) for host in cluster.hosts}
    outcome = run_playbook(
        "site.yml", cluster.inventories, extra_vars=variables, arguments=["--tags=engine,ray"], name="bad"
    )
    assert outcome.rc != 0
    said = " ".join(outcome.output.split())
    for word in words:
        assert word in said, said[-3000:]
    assert {host: containers(cluster, host) for host in cluster.hosts} == before


def test_another_way_to_the_gpus_restarts_ray_once(cluster):
    """And check mode says so before, with the file's difference."""
    before = {host: containers(cluster, host) for host in cluster.hosts}
    arguments = ["--tags=engine,ray", "--diff"]
    change = {"engine_container_options": ["--env", "PROBE=1"]}
    checked = run_playbook(
        "site.yml", cluster.inventories, extra_vars=change, arguments=[*arguments, "--check"], name="check"
    )
    assert checked.rc == 0, checked.failures
    assert "PROBE=1" in checked.output
    assert {host: containers(cluster, host) for host in cluster.hosts} == before
    outcome = run_playbook("site.yml", cluster.inventories, extra_vars=change, arguments=arguments, name="options")
    assert outcome.rc == 0, outcome.failures
    for host in cluster.hosts:
        now = containers(cluster, host)
        assert len(now) == 1
        assert now != before[host]
        assert "PROBE=1" in ray_container(cluster, host)["Config"]["Env"]
        assert cluster.run(host, f"systemctl show --property=NRestarts --value {UNIT}").strip() == "0"
    outcome = run_playbook("site.yml", cluster.inventories, arguments=["--tags=engine,ray"], name="back")
    assert outcome.rc == 0, outcome.failures
