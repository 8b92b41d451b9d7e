# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import os
import socket
import sys

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    ray_config,
    ray_probe,
    ray_processes,
    ray_start_check,
)

from tests.unit.plugins.module_utils._onhost.ray_node import RAYLET, SETTINGS, engine_of, write_config
from tests.unit.ports import free_port


def test_is_local():
    assert ray_start_check.is_local("127.0.0.1")
    assert not ray_start_check.is_local("203.0.113.9")


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
    problems = ray_start_check.ray_port_problems(SETTINGS, head, [listener])
    assert len(problems) == (1 if words else 0)
    assert not words or problems[0].startswith(words)


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
    there = [ray_processes.RayProcess(1, 0, RAYLET, "0::/system.slice/sparkthor-ray.service")] if running else []
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
    monkeypatch.setattr(ray_probe, "probe_tcp", lambda *words: ray_probe.RayProbe("head", ray_probe.SILENT))
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


@pytest.mark.parametrize("said", ["{}[]", '{"ray": ' + "[" * 100_000 + "]" * 100_000 + "}"])
def test_an_engine_whose_words_nobody_can_read_has_no_versions(tmp_path, said):
    engine = tmp_path / "engine"
    engine.write_text(f"#!{sys.executable}\nprint({said!r})\n")
    engine.chmod(0o755)
    config = ray_config.load_config(write_config(tmp_path, engine=[str(engine)]))
    assert ray_start_check.engine_versions(config) == {}
