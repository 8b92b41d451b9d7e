# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three hosts: members on the fabric and nowhere else, closed to strangers, changed only when something changed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import yaml

from tests.integration.ray.conftest import GATE, PATIENCE, STALLED, TOP, UNIT, assert_members, show, start_table
from tests.integration.scan import tcp_ports

ENVIRONMENT = "RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH={token}"
PYTHON = "/opt/sparkthor/venv/bin/python"
RAY = "/opt/sparkthor/venv/bin/ray"
#: what a management network may reach of a host: ssh
OPEN = [22]


def test_all_hosts_are_members_on_their_control_addresses(three, results):
    answer = three.healthy()
    assert_members(three, answer)
    assert not answer["dead"]
    rows = start_table(three, answer)
    show(rows)
    results.put("start of 3 hosts", {"rows": rows})


def test_a_second_run_changes_nothing_and_restarts_no_raylet(three):
    before = three.units()
    again = three.ray()
    assert again.rc == 0, again.output
    assert set(again.changed.values()) == {0}, again.output
    assert three.units() == before
    # whether Ray could be started matters only when it is to be
    task = "Find what prevents a start"
    assert task in three.first.output
    told = again.output.partition(task)[2].partition("TASK")[0]
    assert not re.search(r"^(ok|changed): ", told, re.MULTILINE), again.output


def test_health_is_data(three, results):
    """From the head with its dashboard and without, and from a worker; `make bench` has a bar on how long it takes."""
    figures = {}
    # the dashboard learns from the autoscaler's report, every five seconds, what is free
    three.wait_for(lambda found: all(entry["resources_available"] for entry in found["alive"]))
    for host, source in ((three.head, "dashboard"), (three.head, "engine"), (three.workers[0], "auto")):
        three.health(host, source)  # the first one compiles Ray's Python on this host
        answers = three.steady_health(host, source)
        assert {answer["source"] for answer in answers} == {"engine" if source == "auto" else source}
        figures[f"{'head' if host == three.head else 'worker'} {source}"] = [answer["seconds"] for answer in answers]
        for answer in answers:
            assert_members(three, answer)
            for entry in answer["alive"]:
                assert entry["node_id"]
                assert entry["started"]
                assert entry["raylet_ok"] is True
                assert entry["resources_total"]["GPU"] == entry["resources_available"]["GPU"] == 1
            assert answer["probes"]["gcs"]["ok"]
            assert answer["probes"]["gcs"]["latency_ms"] > 0
            assert answer["pending"] == []
            assert answer["problems"] == []
    results.put("ray_info on a healthy cluster", {"seconds": figures})


def test_the_gate_is_the_same_code_without_ansible(three):
    ends = time.monotonic() + PATIENCE
    while STALLED in (line := three.on(three.workers[0], f"{GATE}; echo status $?")):
        assert time.monotonic() < ends, line
    assert line.splitlines() == [f"3 of 3 nodes, 3 of 3 GPUs on {three.control(three.head)}", "status 0"]


def test_pending_demands_and_the_module_over_ansible(three):
    """The module as a task, on the head and on a worker, and a demand that no node can meet."""
    token = "/etc/sparkthor/secrets/ray_token"
    ask = (
        "import ray, time; ray.init(address='auto'); "
        "f = ray.remote(num_gpus=2)(lambda: 1); r = f.remote(); time.sleep(900)"
    )
    address = f"{three.control(three.head)}:6379"
    environment = ENVIRONMENT.format(token=token)
    three.on(
        three.head,
        f"systemd-run --collect --unit=ray-demand -p Restart=always -p RestartSec=3 "
        f"-p Environment='{environment} RAY_ADDRESS={address}' "
        f'{PYTHON} -c "{ask}"',
    )
    try:
        _seconds, answer = three.wait_for(lambda found: bool(found["pending"]))
        assert answer["pending"][0]["resources"]["GPU"] == 2
        assert answer["healthy"], "a demand is data, no sickness"
        done = subprocess.run(
            [
                str(Path(os.sys.executable).with_name("ansible")),
                "cluster",
                f"--inventory={three.inventory}",
                f"--inventory={three.lab.folder / 'inventory.yml'}",
                "--become",
                "--module-name=sparkthor.cluster.ray_info",
                "--args=timeout=30",
            ],
            env={
                **os.environ,
                "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
                "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.json",
                # molecule asks for colours, and an answer that is read again has none
                "ANSIBLE_FORCE_COLOR": "0",
                "ANSIBLE_NOCOLOR": "1",
            },
            capture_output=True,
            text=True,
            cwd=TOP,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        for host in three.hosts:
            said = done.stdout.partition(f"{host} | SUCCESS => ")[2]
            # until the next host's line, which is the next one that is not indented
            asked = yaml.safe_load(re.match(r"\n((?:[ ].*\n)+)", said).group(1))
            assert asked["healthy"], asked["reason"]
            assert asked["source"] == ("dashboard" if host == three.head else "engine")
            assert asked["pending"] == answer["pending"]
    finally:
        three.on(three.head, "systemctl stop ray-demand")
    three.wait_for(lambda found: not found["pending"])


def test_strangers_reach_nothing_of_ray(three):
    """From the management network every port of TCP is tried; Ray listens on many of them, on every interface."""
    listening = three.on(three.head, "ss -ltnH | awk '{print $4}'")
    assert "*:6379" in listening or "0.0.0.0:6379" in listening, "the GCS is bound to one address: nothing is proven"
    assert "127.0.0.1:8265" in listening
    assert "0.0.0.0:8265" not in listening
    assert "*:8265" not in listening
    for host in three.hosts:
        assert tcp_ports(three.management(host)) == OPEN, host
    for port in (6379, 8265):
        with socket.socket() as stranger:
            stranger.settimeout(3)
            assert stranger.connect_ex((three.management(three.head), port)) != 0


def test_without_a_token_or_with_a_wrong_one_nobody_joins(three):
    """By hand, from a member's own fabric address, as nothing else lets a packet through."""
    host = three.workers[0]
    address = f"{three.control(three.head)}:6379"
    before = three.node_ids()
    for mode, words in (("", "token"), ("wrong-token-of-some-length-0123456789abcdef", "token")):
        path = "/run/test-token"
        three.on(host, f"umask 077; printf %s '{mode}' >{path}")
        said = three.on(
            host,
            f"env {ENVIRONMENT.format(token=path)} timeout {PATIENCE:.0f} {RAY} start --address={address} --num-gpus=1 "
            f"--node-ip-address={three.control(host)} --temp-dir=/tmp/r --disable-usage-stats 2>&1; echo status $?; "
            f"rm -rf {path} /tmp/r",
            timeout=PATIENCE + 60,
        )
        assert "status 0" not in said, said
        assert "status 124" not in said, said
        assert words in said.lower(), said
    assert three.node_ids() == before
    done = three.on(
        three.head,
        "curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1:8265/api/v0/nodes; "
        "curl -s -o /dev/null -w '%{http_code}' -H 'Authorization: Bearer wrong' http://127.0.0.1:8265/api/jobs/",
    )
    assert set(done.split()) <= {"401", "403"}, done


def test_a_wrong_token_is_the_play_s_message(three, tmp_path, results):
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(
        f"all: {{hosts: {{{three.workers[1]}: {{ray_node_token: wrong-token-of-some-length-0123456789}}}}}}\n"
    )
    three.extra = [wrong]
    try:
        run = three.ray()
    finally:
        three.extra = []
    assert run.rc != 0
    assert f"{three.workers[1]} cannot join" in run.output or "refuses" in run.output, run.output
    assert "token" in run.output.partition("cannot join")[2][:400], run.output
    assert "wrong-token-of-some-length" not in run.output
    seconds = run.moment("cannot join") - run.moment(r"TASK .*: Start Ray\]", last=True)
    results.put("wrong token: from the worker's start to the message", {"seconds": round(seconds, 1)})
    # it does not wait for all members, which takes the whole time limit
    assert seconds < yaml.safe_load((TOP / "roles/ray_node/defaults/main.yml").read_text())["ray_node_join_timeout"]
    # the others have joined anew, for which the play did not wait
    others = [three.head, three.workers[0]]
    three.wait_for(lambda found: [entry["name"] for entry in found["alive"]] == others)
    fixed = three.ray()
    assert fixed.rc == 0, fixed.output
    assert_members(three, three.healthy())


def test_an_empty_token_is_refused_before_anything(three, tmp_path):
    before = three.units()
    empty = tmp_path / "empty.yml"
    empty.write_text(f"all: {{hosts: {{{three.workers[1]}: {{ray_node_token: ''}}}}}}\n")
    three.extra = [empty]
    try:
        run = three.ray()
    finally:
        three.extra = []
    assert run.rc != 0
    assert "ray_node_token" in run.output, run.output
    assert three.units() == before


#: a unit that hangs on Ray's as the engine's does, by the same lines
ENGINE = """
lines=$(sed -n '/^\\[Unit\\]/,/^\\[Service\\]/p' /run/vllm.j2 | grep -E '^(Wants|After|PartOf|Requires)=sparkthor-ray')
printf '[Unit]\\n%s\\n[Service]\\nExecStart=/bin/sleep infinity\\n' "$lines" >/run/systemd/system/sparkthor-vllm.service
systemctl daemon-reload; systemctl start sparkthor-vllm; systemctl is-active sparkthor-vllm
"""


def monotonic(site, host, unit, name) -> int:
    return int(site.on(host, f"systemctl show -P {name}TimestampMonotonic {unit}"))


def test_a_changed_port_restarts_ray_once_head_first_and_stops_vllm_before(three, results):
    head = three.head
    template = (TOP / "roles/vllm_serve/templates/sparkthor-vllm.service.j2").read_text(encoding="utf-8")
    subprocess.run(
        three.lab.enter_command(head, ["bash", "-c", "cat >/run/vllm.j2"]), input=template, text=True, check=True
    )
    assert three.on(head, ENGINE).strip() == "active"
    before = three.units()
    engine_begun = monotonic(three, head, "sparkthor-vllm", "ActiveEnter")
    try:
        run = three.ray("--extra-vars", json.dumps({"ray_node_ports": {"metrics_export": 6395}}))
        assert run.rc == 0, run.output
        assert_members(three, three.healthy())
        after = three.units()
        begun = {host: monotonic(three, host, UNIT, "InactiveExit") for host in three.hosts}
        ended = {host: monotonic(three, host, UNIT, "InactiveEnter") for host in three.hosts}
        for host in three.hosts:
            assert after[host]["MainPID"] != before[host]["MainPID"]
            # once, and by the play: systemd had nothing to restart
            assert after[host]["NRestarts"] == "0", three.on(host, f"journalctl --no-pager -n 60 -u {UNIT}")
            assert three.on(host, "ss -ltnH 'sport = :6395'").strip()
            assert not three.on(host, "ss -ltnH 'sport = :6385'").strip()
        engine_ended = monotonic(three, head, "sparkthor-vllm", "InactiveEnter")
        assert engine_begun < engine_ended < ended[head], "vLLM was not stopped before Ray"
        assert monotonic(three, head, "sparkthor-vllm", "ActiveEnter") > begun[head]
        assert all(begun[head] < begun[worker] for worker in three.workers), begun
        results.put("changed port", {"seconds": round(run.seconds, 1)})
    finally:
        three.on(head, "systemctl stop sparkthor-vllm; rm /run/systemd/system/sparkthor-vllm.service /run/vllm.j2")
    back = three.ray()
    assert back.rc == 0, back.output
    assert_members(three, three.healthy())


@contextlib.contextmanager
def tunnel(site):
    """ssh -L to the dashboard, which listens on the head's loopback alone."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        ["ssh", "-N", "-L", f"127.0.0.1:{port}:127.0.0.1:8265", *site.lab.ssh_command(site.head)[1:]],
        stdin=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.2)
        yield port
    finally:
        process.terminate()
        process.wait()


def test_it_stays_an_ordinary_ray_cluster(three):
    """docs/ray.md: `ray status` on the head, `ray job submit` from elsewhere with the token through an ssh tunnel."""
    import prepare

    three.healthy()
    ends = time.monotonic() + PATIENCE
    # the autoscaler, which answers here, hears of a node some seconds after the GCS does
    while "0.0/3.0 GPU" not in (
        status := three.on(
            three.head,
            f"env {ENVIRONMENT.format(token='/etc/sparkthor/secrets/ray_token')} "
            f"timeout 120 {RAY} status --address {three.control(three.head)}:6379",
            check=False,
        )
    ):
        assert time.monotonic() < ends, status
    ray = Path(prepare.prepare(venv=True)["venv"]) / "bin/ray"
    token = (TOP / ".lab/ray-secrets/ray_token").read_text(encoding="utf-8").strip()
    with tunnel(three) as port, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "auth_token"
        path.touch(0o600)

        def submit(word: str) -> subprocess.CompletedProcess:
            path.write_text(word, encoding="utf-8")
            return subprocess.run(
                [str(ray), "job", "submit", "--address", f"http://127.0.0.1:{port}", "--", "hostname"],
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": folder,
                    "RAY_AUTH_MODE": "token",
                    "RAY_AUTH_TOKEN_PATH": str(path),
                },
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )

        done = submit(token)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "succeeded" in done.stdout
        assert three.head in done.stdout
        refused = submit("wrong-token-of-some-length-0123456789abcdef")
        assert refused.returncode != 0
        assert "token" in (refused.stdout + refused.stderr).lower()
