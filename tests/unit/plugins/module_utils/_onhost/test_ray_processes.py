# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import container, ray_processes

from tests.unit.plugins.module_utils._onhost.ray_node import RAYLET, SETTINGS
from tests.unit.ports import free_port

SESSION = "session_2026-11-21_03-04-43_140862_268"

LEFT_RAYLET = f"/opt/sparkthor/venv/lib/ray/core/src/ray/raylet/raylet --session_dir=/var/lib/sparkthor/ray/t/{SESSION}"


@pytest.mark.parametrize(
    ("process", "left"),
    [
        (ray_processes.RayProcess(7, 990, LEFT_RAYLET, "0::/user.slice/session-1.scope"), True),
        (ray_processes.RayProcess(7, 990, "ray::DashboardAgent", "0::/", ("/var/lib/sparkthor/ray/t/x/logs/a",)), True),
        (ray_processes.RayProcess(7, 990, "ray::DashboardAgent", "0::/", ("/tmp/ray/x/logs/a",)), False),
        (ray_processes.RayProcess(7, 0, LEFT_RAYLET, "0::/"), False),
        (ray_processes.RayProcess(1, 990, LEFT_RAYLET, "0::/"), False),
        (ray_processes.RayProcess(7, 990, LEFT_RAYLET, "0::/system.slice/sparkthor-ray.service"), False),
        (ray_processes.RayProcess(7, 990, "python serve", "0::/", ("/var/lib/sparkthor/ray/t/x/logs/a",)), False),
        (ray_processes.RayProcess(7, 990, LEFT_RAYLET.replace("sparkthor/ray", "other/ray"), "0::/"), False),
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


@pytest.mark.parametrize(
    ("process", "own", "runs"),
    [
        (ray_processes.RayProcess(1, 0, RAYLET, "0::/system.slice/sparkthor-ray.service"), True, True),
        (ray_processes.RayProcess(1, 0, RAYLET, "0::/system.slice/docker-abc.scope"), True, True),
        (
            ray_processes.RayProcess(1, 0, RAYLET.replace("/var/lib/sparkthor/ray/t", "/tmp/ray"), "0::/user.slice"),
            False,
            False,
        ),
        (
            ray_processes.RayProcess(1, 0, "ray::IDLE", "0::/user.slice", ("/var/lib/sparkthor/ray/t/s/logs/w.out",)),
            True,
            False,
        ),
        (
            ray_processes.RayProcess(
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
        (ray_processes.RayProcess(1, 0, "python3 serve", "0::/system.slice/sparkthor-vllm.service"), True, False),
        (ray_processes.RayProcess(1, 0, "tail -f /var/lib/sparkthor/ray/t/x", "0::/user.slice"), False, False),
    ],
)
def test_what_a_restart_of_ray_ends(process, own, runs):
    assert ray_processes.ours(process, SETTINGS.temp_dir) is own
    assert ray_processes.runs_here([process], SETTINGS.temp_dir) is runs


def test_what_runs_in_our_units_containers_is_ours(tmp_path):
    groups = [f"0::/system.slice/docker-{digit * 64}.scope" for digit in "abc"]
    # Ray gives a driver a port of the worker range as well; vLLM's engine core names itself
    ray, vllm, other = (ray_processes.RayProcess(1, 999, "VLLM::EngineCore", group) for group in groups)
    assert ray_processes.own_groups(str(tmp_path / "absent")) == ray_processes.OWN_UNITS
    for service, digit in (("ray", "a"), ("vllm", "b"), ("other", "c")):
        (tmp_path / f"{service}.cid").write_text(f"{digit * 64}\n")
    known = ray_processes.own_groups(str(tmp_path))
    assert [ray_processes.ours(one, SETTINGS.temp_dir, known) for one in (ray, vllm, other)] == [True, True, False]
    # Docker has made the file and not written it yet
    (tmp_path / "vllm.cid").write_text("")
    assert not ray_processes.ours(other, SETTINGS.temp_dir, ray_processes.own_groups(str(tmp_path)))


def test_the_ids_of_containers_lie_where_they_are_written():
    assert ray_processes.CONTAINERS == container.RUN_DIR
