# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    container as _container,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    ray_config,
    ray_gate,
    ray_prepare,
    ray_probe,
    ray_processes,
    ray_start_check,
)

from tests.unit.ports import free_port

SESSION = "session_2026-11-21_03-04-43_140862_268"


def write_config(folder, **changes):
    data = {
        "nodes": [
            {"name": "a", "address": "127.0.0.1", "role": "head"},
            {"name": "b", "address": "127.0.0.2"},
        ],
        "node_address": "127.0.0.1",
        "ports": {port.key: 1 + index for index, port in enumerate(ray_config.PORTS)},
        "token_path": str(folder / "token"),
        "temp_dir": str(folder / "ray"),
        "engine": [sys.executable],
        # a range in which nobody on the machine that runs this listens
        "worker_ports": [2, 2],
    }
    path = folder / "ray.json"
    path.write_text(json.dumps({**data, **changes}))
    (folder / "token").write_text("0123456789abcdef\n")
    (folder / "run").mkdir(exist_ok=True)
    return str(path)


# -- back-off ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("starts", "delay"),
    [
        ([], 0),
        ([990.0], 0),
        ([970.0, 980.0, 990.0], 0),
        ([960.0, 970.0, 980.0, 990.0], 2),
        ([950.0, 960.0, 970.0, 980.0, 990.0], 4),
        ([float(number) for number in range(900, 1000, 5)], 30),
        # a year of single failures is no series
        ([float(number) for number in range(0, 1000, 200)], 0),
        # four quick ones, long ago
        ([100.0, 101.0, 102.0, 103.0], 0),
    ],
)
def test_only_starts_shortly_after_one_another_delay(starts, delay):
    assert ray_prepare.series_delay(starts, 1000.0) == delay


def test_starts_are_remembered(tmp_path):
    now, delays = 1000.0, []
    for _unused in range(9):
        delays.append(ray_prepare.note_start(str(tmp_path), now))
        now += delays[-1] + 1
    assert delays == [0, 0, 0, 0, 2, 4, 8, 16, 30]
    assert ray_prepare.note_start(str(tmp_path), 5000.0) == 0


def test_a_clock_set_back_or_a_damaged_file_delays_nobody(tmp_path):
    for number in range(6):
        ray_prepare.note_start(str(tmp_path), 9000.0 + number)
    assert ray_prepare.note_start(str(tmp_path), 100.0) == 0
    (tmp_path / "starts").write_text("rubbish\n")
    assert ray_prepare.note_start(str(tmp_path), 200.0) == 0
    assert ray_prepare.note_start(str(tmp_path / "absent"), 200.0) == 0


# -- leftovers ---------------------------------------------------------------------------------------------------------

RAYLET = f"/opt/sparkthor/venv/lib/ray/core/src/ray/raylet/raylet --session_dir=/var/lib/sparkthor/ray/t/{SESSION}"


@pytest.mark.parametrize(
    ("process", "left"),
    [
        (ray_processes.Process(7, 990, RAYLET, "0::/user.slice/session-1.scope"), True),
        (ray_processes.Process(7, 990, "ray::DashboardAgent", "0::/", ("/var/lib/sparkthor/ray/t/x/logs/a",)), True),
        (ray_processes.Process(7, 990, "ray::DashboardAgent", "0::/", ("/tmp/ray/x/logs/a",)), False),
        (ray_processes.Process(7, 0, RAYLET, "0::/"), False),
        (ray_processes.Process(1, 990, RAYLET, "0::/"), False),
        (ray_processes.Process(7, 990, RAYLET, "0::/system.slice/sparkthor-ray.service"), False),
        (ray_processes.Process(7, 990, "python serve", "0::/", ("/var/lib/sparkthor/ray/t/x/logs/a",)), False),
        (ray_processes.Process(7, 990, RAYLET.replace("sparkthor/ray", "other/ray"), "0::/"), False),
    ],
    ids=["raylet", "agent by its log", "agent of another", "another user", "ourselves", "the unit", "driver", "other"],
)
def test_only_our_own_leftovers(process, left):
    assert (ray_processes.leftovers([process], "/var/lib/sparkthor/ray", 990, 1) == [process]) is left


def test_processes_are_read_and_ended():
    """One that ignores SIGTERM, which it says once it does."""
    program = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        found = [p for p in ray_processes.read_processes() if p.pid == child.pid]
        assert found[0].uid == os.getuid()
        assert "time.sleep" in found[0].command
        ray_processes.end_processes(found, patience=0.5)
        assert child.wait(5) == -9
    finally:
        child.kill()
        child.communicate()


def test_old_sessions_go_and_the_newest_stay(tmp_path):
    names = [f"session_2026-11-2{day}_03-04-43_140862_268" for day in range(5)]
    for name in [*names, "other"]:
        (tmp_path / name / "logs").mkdir(parents=True)
    (tmp_path / "session_latest").symlink_to(tmp_path / names[-1])
    (tmp_path / "ray_current_cluster").write_text("10.0.0.1:6379")
    assert ray_prepare.clean_temp_dir(str(tmp_path)) == names[:2]
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([*names[2:], "other", "session_latest"])
    assert ray_prepare.clean_temp_dir(str(tmp_path / "absent")) == []


# -- addresses and ports -----------------------------------------------------------------------------------------------


def test_is_local():
    assert ray_start_check.is_local("127.0.0.1")
    assert not ray_start_check.is_local("203.0.113.9")


def test_port_taken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert ray_prepare.port_taken(server.getsockname()[1])
    assert not ray_prepare.port_taken(free_port())


def test_waiting_for_the_head_is_told_now_and_then():
    now, said = [0.0], []
    outcomes = [ray_probe.REFUSED] * 3 + [ray_probe.SILENT] * 90 + [ray_probe.OK]

    def sleep(seconds):
        now[0] += seconds

    config = ray_config.Config.from_mapping({"nodes": [{"address": "10.0.0.1", "role": "head"}]})
    ray_prepare.wait_for_head(
        config,
        ask=lambda: ray_probe.Probe("gcs", outcomes.pop(0)),
        sleep=sleep,
        clock=lambda: now[0],
        tell=said.append,
    )
    assert said == [f"waiting for the head's GCS at 10.0.0.1:6379: {s}" for s in ("refused", "silent", "silent")]
    assert now[0] == 93


# -- programs ----------------------------------------------------------------------------------------------------------


def test_prepare_of_a_head(tmp_path):
    path = write_config(tmp_path, ports={port.key: free_port() for port in ray_config.PORTS})
    assert ray_prepare.main(["--config", path, "--run-dir", str(tmp_path / "run")]) == 0


def test_prepare_without_a_token(tmp_path, capsys):
    path = write_config(tmp_path, ports={port.key: free_port() for port in ray_config.PORTS})
    (tmp_path / "token").write_text("")
    assert ray_prepare.main(["--config", path, "--run-dir", str(tmp_path / "run")]) == 75
    assert "there is no Ray token" in capsys.readouterr().out


def test_prepare_names_a_port_that_is_taken(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ray_prepare, "wait_until", lambda good, seconds: good())
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ports = {p.key: port if p.key == "object_manager" else free_port() for p in ray_config.PORTS}
        path = write_config(tmp_path, ports=ports)
        assert ray_prepare.main(["--config", path, "--run-dir", str(tmp_path / "run")]) == 75
    assert f"port {port} (object_manager) is taken" in capsys.readouterr().out


def test_prepare_names_a_control_address_that_is_not_there(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ray_prepare, "wait_until", lambda good, seconds: good())
    path = write_config(tmp_path, node_address="203.0.113.9")
    assert ray_prepare.main(["--config", path, "--run-dir", str(tmp_path / "run")]) == 75
    assert "203.0.113.9 is on no interface" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ('{"error": "AuthenticationError: InvalidAuthToken"}', "the head refuses this host's token"),
        ('{"error": "RpcError: later"}', "does not answer yet (error)"),
    ],
)
def test_prepare_of_a_worker_tells_a_refused_token(tmp_path, capsys, answer, words):
    engine = tmp_path / "engine"
    engine.write_text(f"#!{sys.executable}\nprint({answer!r})\n")
    engine.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as gcs:
        ports = {p.key: free_port() for p in ray_config.PORTS} | {"gcs": gcs.getsockname()[1]}
        path = write_config(tmp_path, node_address="127.0.0.2", engine=[str(engine)], ports=ports)
        assert ray_prepare.main(["--config", path, "--run-dir", str(tmp_path / "run")]) == 75
    out = capsys.readouterr().out
    assert words in out
    assert "0123456789abcdef" not in out


def test_check_reports_without_changing_anything(tmp_path, capsys):
    engine = tmp_path / "engine"
    engine.write_text(f'#!{sys.executable}\nprint(\'{{"python": "3.11.2", "ray": "2.53.0"}}\')\n')
    engine.chmod(0o755)
    path = write_config(tmp_path, node_address="203.0.113.9", engine=[str(engine)])
    assert ray_prepare.main(["--config", path, "--run-dir", str(tmp_path / "run"), "--check"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["versions"] == {"python": "3.11.2", "ray": "2.53.0"}
    assert [problem.split(":")[0] for problem in report["problems"]] == [
        "the control address 203.0.113.9 is on no interface of this host",
        "Ray 2.53.0 is older than 2.54",
    ]
    assert list((tmp_path / "run").iterdir()) == []


def test_listening_inodes_of_both_families():
    tcp = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0
   1: 0100007F:18EB 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0 100 0 0 10 0
"""
    tcp6 = """  sl  local_address                         remote_address                        st tx_queue rx_queue tr
   0: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A 00000000:00000000 00:0 0 0 0 99 1
"""
    assert ray_processes.listening_inodes([tcp, tcp6]) == {"4711": 6379, "99": 8000}


def test_a_port_s_holder_is_found():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = ray_processes.read_listeners([port, free_port()], ray_processes.read_processes())
        assert [(one.port, one.pid) for one in found] == [(port, os.getpid())]
        # somebody whose files we may not see
        assert ray_processes.read_listeners([port], []) == [ray_processes.Listener(port, 0, "")]


SETTINGS = ray_start_check.NodeSettings("/var/lib/sparkthor/ray/t", {}, (20000, 20999), 1 << 30)


@pytest.mark.parametrize(
    ("listener", "head", "words"),
    [
        (
            ray_processes.Listener(6381, 77, "nc -l 6381"),
            False,
            "port 6381 (ray_node_ports.object_manager) is taken by nc -l 6381 (process 77)",
        ),
        (ray_processes.Listener(20500, 77, "nc"), False, "port 20500 (the worker range 20000-20999) is taken by nc"),
        (ray_processes.Listener(6379, 0, ""), True, "port 6379 (ray_node_ports.gcs) is taken by a program that cannot"),
        # no worker opens the GCS's
        (ray_processes.Listener(6379, 77, "nc"), False, ""),
    ],
)
def test_a_foreign_program_on_a_port_of_ours(listener, head, words):
    problems = ray_start_check.port_problems(SETTINGS, head, [listener])
    assert len(problems) == (1 if words else 0)
    assert not words or problems[0].startswith(words)


RAYLET = "/opt/v/ray/core/src/ray/raylet/raylet --raylet_socket_name=/var/lib/sparkthor/ray/t/s/sockets/raylet"


@pytest.mark.parametrize(
    ("process", "own", "runs"),
    [
        (ray_processes.Process(1, 0, RAYLET, "0::/system.slice/sparkthor-ray.service"), True, True),
        (ray_processes.Process(1, 0, RAYLET, "0::/system.slice/docker-abc.scope"), True, True),
        (
            ray_processes.Process(1, 0, RAYLET.replace("/var/lib/sparkthor/ray/t", "/tmp/ray"), "0::/user.slice"),
            False,
            False,
        ),
        (
            ray_processes.Process(1, 0, "ray::IDLE", "0::/user.slice", ("/var/lib/sparkthor/ray/t/s/logs/w.out",)),
            True,
            False,
        ),
        (
            ray_processes.Process(
                *(
                    1,
                    999,
                    "/usr/bin/python3 -m ray.util.client.server --port=6386",
                    "0::/system.slice/docker-abc.scope",
                ),
                ("/var/lib/sparkthor/ray/t/s/logs/ray_client_server.err",),
            ),
            True,
            False,
        ),
        (ray_processes.Process(1, 0, "python3 serve", "0::/system.slice/sparkthor-vllm.service"), True, False),
        (ray_processes.Process(1, 0, "tail -f /var/lib/sparkthor/ray/t/x", "0::/user.slice"), False, False),
    ],
)
def test_what_a_restart_of_ray_ends(process, own, runs):
    assert ray_processes.ours(process, SETTINGS.temp_dir) is own
    assert ray_processes.runs_here([process], SETTINGS.temp_dir) is runs


def engine_of(tmp_path, **versions):
    engine = tmp_path / "engine"
    engine.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps(versions))})\n")
    engine.chmod(0o755)
    return [str(engine)]


@pytest.mark.parametrize("running", [False, True])
def test_check_compares_the_object_store_with_what_is_free(tmp_path, monkeypatch, running):
    path = write_config(
        tmp_path,
        engine=engine_of(tmp_path, python="3.11.2", ray="2.60.0"),
        object_store_memory=4 << 30,
        temp_dir=SETTINGS.temp_dir,
        ports={port.key: free_port() for port in ray_config.PORTS},
    )
    monkeypatch.setattr(ray_start_check, "available_memory", lambda: 1 << 30)
    there = [ray_processes.Process(1, 0, RAYLET, "0::/system.slice/sparkthor-ray.service")] if running else []
    report = ray_start_check.check(ray_config.load_config(path), ray_start_check.NodeSettings.load(path), there)
    words = "ray_node_object_store_memory: 4,096 MiB is more than the 1,024 MiB that are free on this host"
    assert [problem.startswith(words) for problem in report["problems"]] == ([] if running else [True])


def test_check_names_who_holds_a_port(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ports = {p.key: port if p.key == "node_manager" else free_port() for p in ray_config.PORTS}
        path = write_config(tmp_path, engine=engine_of(tmp_path, python="3.11.2", ray="2.60.0"), ports=ports)
        report = ray_start_check.check(ray_config.load_config(path), ray_start_check.NodeSettings.load(path))
    assert len(report["problems"]) == 1
    assert report["problems"][0].startswith(f"port {port} (ray_node_ports.node_manager) is taken by ")
    assert f"(process {os.getpid()})" in report["problems"][0]


def test_what_runs_in_our_units_containers_is_ours(tmp_path):
    groups = [f"0::/system.slice/docker-{digit * 64}.scope" for digit in "abc"]
    # Ray gives a driver a port of the worker range as well; vLLM's engine core names itself
    ray, vllm, other = (ray_processes.Process(1, 999, "VLLM::EngineCore", group) for group in groups)
    assert ray_processes.own_groups(str(tmp_path / "absent")) == ray_processes.OWN_UNITS
    for service, digit in (("ray", "a"), ("vllm", "b"), ("other", "c")):
        (tmp_path / f"{service}.cid").write_text(f"{digit * 64}\n")
    known = ray_processes.own_groups(str(tmp_path))
    assert [ray_processes.ours(one, SETTINGS.temp_dir, known) for one in (ray, vllm, other)] == [True, True, False]
    # Docker has made the file and not written it yet
    (tmp_path / "vllm.cid").write_text("")
    assert not ray_processes.ours(other, SETTINGS.temp_dir, ray_processes.own_groups(str(tmp_path)))


def test_the_ids_of_containers_lie_where_they_are_written():
    assert ray_processes.CONTAINERS == _container.RUN_DIR


@pytest.mark.parametrize("known", [True, False])
def test_check_lets_an_engine_in_a_container_have_its_port(tmp_path, known):
    container = "b" * 64
    (tmp_path / "vllm.cid").write_text(container if known else "c" * 64)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ports = {p.key: free_port() for p in ray_config.PORTS}
        path = write_config(
            tmp_path, engine=engine_of(tmp_path, python="3.11.2", ray="2.60.0"), ports=ports, worker_ports=[port, port]
        )
        holder = next(one for one in ray_processes.read_processes() if one.pid == os.getpid())
        core = dataclasses.replace(
            holder, command="VLLM::EngineCore", cgroup=f"0::/system.slice/docker-{container}.scope"
        )
        report = ray_start_check.check(
            ray_config.load_config(path), ray_start_check.NodeSettings.load(path), [core], containers=str(tmp_path)
        )
    assert [problem.split(" is taken by ")[0] for problem in report["problems"]] == (
        [] if known else [f"port {port} (the worker range {port}-{port})"]
    )


def test_check_of_a_head_that_cannot_be_reached(tmp_path, monkeypatch):
    monkeypatch.setattr(ray_probe, "probe_tcp", lambda *words: ray_probe.Probe("head", ray_probe.SILENT))
    path = write_config(
        tmp_path,
        node_address="127.0.0.1",
        head_address="203.0.113.1",
        nodes=[
            {"name": "a", "address": "203.0.113.1", "gpus": 1, "role": "head"},
            {"name": "b", "address": "127.0.0.1", "gpus": 1},
        ],
        engine=engine_of(tmp_path, python="3.11.2", ray="2.60.0"),
        ports={port.key: free_port() for port in ray_config.PORTS},
    )
    report = ray_start_check.check(ray_config.load_config(path), ray_start_check.NodeSettings.load(path))
    assert len(report["problems"]) == 1
    assert report["problems"][0].startswith("the head's control address 203.0.113.1 cannot be reached from 127.0.0.1")


def test_available_memory(tmp_path):
    path = tmp_path / "meminfo"
    path.write_text("MemTotal:       131072 kB\nMemAvailable:    65536 kB\n")
    assert ray_start_check.available_memory(str(path)) == 64 << 20
    assert ray_start_check.available_memory(str(tmp_path / "absent")) == 0


@pytest.mark.parametrize("engine", [["/nonexistent"], ["/bin/false"]])
def test_check_of_an_engine_that_cannot_run(tmp_path, capsys, engine):
    path = write_config(tmp_path, engine=engine)
    assert ray_prepare.main(["--config", path, "--check"]) == 1
    assert "the engine's Python cannot be run" in capsys.readouterr().out


def test_gate_says_why_in_one_line(tmp_path, capsys):
    path = write_config(tmp_path)
    assert ray_gate.main(["--config", path, "--timeout", "1"]) == 1
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert "0 of 2 nodes, 0 of 2 GPUs: the GCS at 127.0.0.1:1 cannot be reached: nothing listens there" in out
    assert ray_gate.main(["--config", path, "--timeout", "1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"][0]["code"] == "gcs_refused"


def test_gate_without_a_configuration(tmp_path, capsys):
    assert ray_gate.main(["--config", str(tmp_path / "none")]) == 2
    assert "was not set up as a Ray node" in capsys.readouterr().out
    assert ray_gate.main(["--config", str(tmp_path / "none"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["healthy"] is False


def test_the_gate_does_without_the_hosts_that_the_watchdog_left_out(tmp_path):
    nodes = [{"name": name, "address": f"10.0.0.{number}"} for number, name in enumerate("abc", 1)]
    nodes[0]["role"] = "head"
    config = ray_config.Config.from_mapping({"nodes": nodes, "node_address": "10.0.0.1"})
    path = tmp_path / "degraded.json"
    assert ray_gate.without(config, str(path)) == config
    path.write_text(json.dumps({"without": {"10.0.0.3": "c"}}))
    assert [node.name for node in ray_gate.without(config, str(path)).nodes] == ["a", "b"]
    path.write_text(json.dumps({"without": {"10.0.0.1": "a"}}))
    assert len(ray_gate.without(config, str(path)).nodes) == 3, "never without the head"
    path.write_text("[]")
    assert ray_gate.without(config, str(path)) == config
