# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools
import json
import socket
import sys

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    location,
    ray_config,
    ray_prepare,
    ray_probe,
)

from tests.unit.plugins.module_utils._onhost.ray_node import write_config
from tests.unit.ports import free_port


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
        ask=lambda: ray_probe.RayProbe("gcs", outcomes.pop(0)),
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


def test_a_series_of_starts_makes_compiled_modules_anew_once(tmp_path, capsys, monkeypatch):
    slept, clock = [], itertools.count(1000.0, 50.0)
    monkeypatch.setattr(ray_prepare.time, "sleep", slept.append)
    monkeypatch.setattr(ray_prepare.time, "time", lambda: next(clock))
    outside, bytecode = tmp_path / "outside", tmp_path / "pycache"
    outside.mkdir()
    (outside / "file").write_text("precious")
    path = write_config(
        tmp_path,
        ports={port.key: free_port() for port in ray_config.PORTS},
        environment={"PYTHONPYCACHEPREFIX": str(bytecode)},
    )
    for there in (True, True, True, True, False, True):
        bytecode.unlink(missing_ok=True)
        bytecode.symlink_to(outside)
        assert ray_prepare.main(["--config", path, "--run-dir", str(tmp_path)]) == 0
        assert bytecode.is_symlink() is there
    assert slept == [2.0, 4.0]
    assert (outside / "file").read_text() == "precious"
    assert capsys.readouterr().out.count("in case compiled code in it is torn") == 1


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


def test_with_a_container_the_head_is_asked_by_a_step_of_its_own(tmp_path, capsys, monkeypatch):
    """The preparation runs as the serving user, who may not speak to Docker."""
    asked, refused = [], ray_probe.RayProbe("engine", ray_probe.UNAUTHORIZED)
    monkeypatch.setattr(ray_prepare.ray_probe, "probe_engine", lambda config, seconds: asked.append(seconds) or refused)
    engine = location.command("container", "python")
    with socket.create_server(("127.0.0.1", 0)) as gcs:
        ports = {p.key: free_port() for p in ray_config.PORTS} | {"gcs": gcs.getsockname()[1]}
        path = write_config(tmp_path, node_address="127.0.0.2", engine=engine, ports=ports)
        assert ray_prepare.main(["--config", path, "--run-dir", str(tmp_path / "run")]) == 0
    assert asked == []
    assert ray_prepare.main(["--config", path, "--run-dir", str(tmp_path / "other"), "--ask-head"]) == 75
    assert "the head refuses this host's token" in capsys.readouterr().out
    assert not (tmp_path / "other").exists(), "root's step writes nothing where the serving user may"
    head = write_config(tmp_path, engine=engine, ports=ports)
    assert ray_prepare.main(["--config", head, "--ask-head"]) == 0
    assert len(asked) == 1


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


@pytest.mark.parametrize("engine", [["/nonexistent"], ["/bin/false"]])
def test_check_of_an_engine_that_cannot_run(tmp_path, capsys, engine):
    path = write_config(tmp_path, engine=engine)
    assert ray_prepare.main(["--config", path, "--check"]) == 1
    assert "the engine's Python cannot be run" in capsys.readouterr().out
