# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment's module on a host whose uv is a stand-in."""

from __future__ import annotations

import copy
import fcntl
import json
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible_collections.sparkthor.cluster.plugins.module_utils._drift import compare
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import venv
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept

from tests.unit.engine_host import MINOR, Host, running_from


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Host:
    return Host(tmp_path, capsys)


def test_from_nothing_to_an_environment_and_nothing_more(host: Host) -> None:
    prediction = host.call(check=True)
    assert prediction["changed"] is True
    assert not host.path.parent.exists()
    first = host.call()
    assert len(first["need"]) == 3
    assert not os.path.lexists(host.path)
    host.send(first["need"])
    result = host.call()
    assert result["changed"] is True
    assert result["diff"]["before"] == ""
    assert result["diff"]["after"] == "ray==2.60.0\nuv==0.13.8\nvllm==0.32.0\n"
    assert prediction["diff"] == result["diff"]
    assert host.path.is_symlink()
    assert os.readlink(host.path).startswith("venvs/")
    assert result["ansible_facts"]["sparkthor_engine"]["versions"] == {"ray": "2.60.0", "vllm": "0.32.0"}
    again = host.call()
    assert (again["changed"], again["problems"]) == (False, [])
    assert host.call(check=True)["changed"] is False


def test_a_wheel_that_was_swapped_on_the_host_is_not_run(host: Host) -> None:
    host.converge()
    (wheel,) = (host.path.parent / "wheels").glob("*/uv-*.whl")
    before = wheel.stat()
    wheel.write_bytes(wheel.read_bytes().replace(b"base64", b"BASE64"))
    os.utime(wheel, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert wheel.stat().st_size == before.st_size
    os.unlink(host.path)
    shutil.rmtree(host.environments)
    needed = host.call()["need"]
    assert [item["size"] for item in needed] == [before.st_size]
    assert not os.path.lexists(host.path)
    host.send(needed)
    assert host.call()["changed"] is True
    assert b"BASE64" not in wheel.read_bytes()


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (
            lambda site: (site / "ray-2.60.0.dist-info" / "RECORD").unlink() or _rmdir(site / "ray-2.60.0.dist-info"),
            "ray",
        ),
        (lambda site: _rmdir(site / "vllm"), "vllm was removed"),
        (lambda site: (site / "numpy").mkdir(), "numpy was added"),
        (lambda site: os.rename(site / "ray-2.60.0.dist-info", site / "ray-2.61.0.dist-info"), "ray 2.61.0 instead of"),
        (lambda site: (site / "ray" / "big.bin").write_bytes(b""), "ray/big.bin has 0 bytes"),
        (lambda site: (site / "ray" / "big.bin").unlink(), "ray/big.bin was removed"),
        (lambda site: (site.parents[2] / "bin" / "ray").unlink(), "ray was removed"),
        (lambda site: (site.parents[2] / ".sparkthor-engine.json").unlink(), "not complete"),
    ],
)
def test_drift_is_found_and_fixed_beside_the_running_one(host: Host, damage: Any, problem: str) -> None:
    host.converge()
    before = os.path.realpath(host.path)
    record = (host.path / ".sparkthor-engine.json").read_text()
    damage(Path(before, "lib", f"python{MINOR}", "site-packages"))
    prediction = host.call(check=True)
    assert prediction["changed"] is True
    assert any(problem in found for found in prediction["problems"]), prediction["problems"]
    result = host.call()
    assert "need" not in result  # the wheels are still there
    assert result["changed"] is True
    assert (host.path / ".sparkthor-engine.json").read_text() != record  # which the serving group restarts for
    assert host.call()["changed"] is False


def _rmdir(path: Path) -> None:
    for child in path.iterdir():
        child.unlink()
    path.rmdir()


def test_a_changed_file_needs_the_full_check(host: Host) -> None:
    host.converge()
    site = Path(os.path.realpath(host.path), "lib", f"python{MINOR}", "site-packages")
    (site / "ray" / "__init__.py").write_text("x = 2")
    (site / "vllm" / "__init__.py").unlink()
    assert host.call()["changed"] is False
    result = host.call(verify="full")
    assert result["problems"] == ["ray/__init__.py was changed", "vllm/__init__.py was removed"]
    assert host.call(verify="full")["changed"] is False


def test_an_environment_that_lost_its_marker_stays_until_there_is_a_new_one(host: Host) -> None:
    host.converge()
    before = os.path.realpath(host.path)
    Path(before, ".sparkthor-engine.json").unlink()
    (host.environments / "fail").touch()
    assert host.call()["failed"] is True
    assert os.path.realpath(host.path) == before
    assert Path(before, "bin", "ray").exists()


def test_an_update_keeps_the_environment_that_processes_run_from(host: Host) -> None:
    host.converge()
    first = os.path.realpath(host.path)
    host.pins["ray"] = "2.61.0"
    host.make_wheels()
    need = host.call()["need"]
    assert len(need) == 1  # the other wheels are linked from the set before
    host.send(need)
    result = host.call()
    assert "ray==2.60.0" in result["diff"]["before"]
    assert "ray==2.61.0" in result["diff"]["after"]
    second = os.path.realpath(host.path)
    assert os.path.isdir(first)
    host.pins["ray"] = "2.62.0"
    host.make_wheels()
    host.converge(keep=0)
    assert not os.path.exists(first)
    assert os.path.isdir(second)
    assert len(list((host.path.parent / "wheels").glob("[0-9a-f]*"))) == 1


def test_a_failed_build_changes_nothing_that_is_in_use(host: Host) -> None:
    host.converge()
    before = os.path.realpath(host.path)
    host.pins["ray"] = "2.61.0"
    host.make_wheels()
    host.send(host.call()["need"])
    (host.environments / "fail").touch()
    result = host.call()
    assert result["failed"] is True
    assert "uv pip install failed: disk on fire" in result["msg"]
    assert os.path.realpath(host.path) == before
    (host.environments / "fail").unlink()
    assert host.call()["changed"] is True
    folders = [path for path in host.environments.iterdir() if path.is_dir()]
    assert len(folders) == 2  # the new one and the one before; the failed one is gone


def test_a_folder_at_our_path_is_refused(host: Host) -> None:
    host.path.mkdir(parents=True)
    result = host.call()
    assert result["failed"] is True
    assert "engine_venv_path" in result["msg"]


def test_another_python_is_refused_by_name(host: Host) -> None:
    host.send(host.call()["need"])
    target = {**host.target(), "python": "3.9"}
    result = host.call(target=target)
    assert result["failed"] is True
    assert f"is Python {platform.python_version()} on this host, but the wheels are for 3.9" in result["msg"]
    assert not os.path.lexists(host.path)


def test_a_disk_that_is_too_small_is_known_before_anything_moves(host: Host) -> None:
    result = host.call(target={**host.target(), "unpacked": 1 << 60})
    assert result["failed"] is True
    assert "Nothing was changed" in result["msg"]
    assert not host.path.parent.exists()


def test_a_second_builder_waits_and_says_so(host: Host) -> None:
    host.send(host.call()["need"])
    host.environments.mkdir(parents=True)
    with open(host.environments / ".lock", "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = host.call(timeout=0)
    assert result["failed"] is True
    assert "another run has been building" in result["msg"]
    assert host.call()["changed"] is True


def test_the_probe(host: Host) -> None:
    found = host.call(target={})["target"]
    assert found["version"] == platform.python_version()
    assert found["machine"] == platform.machine()
    result = host.call(target={}, python="/nowhere/python3")
    assert result["failed"] is True
    assert "engine_python: '/nowhere/python3' is not on this host" in result["msg"]


@pytest.mark.parametrize("keep", [0, 1])
def test_what_runs_outlives_two_builds_without_a_restart(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keep: int
) -> None:
    host.converge()
    runs = host.path.resolve()
    proc = running_from(tmp_path / "proc", runs)
    found = venv.in_use
    monkeypatch.setattr(venv, "in_use", lambda folders, *_proc: found(folders, proc))
    for version in ("0.33.0", "0.34.0"):
        host.pins["vllm"] = version
        host.make_wheels()
        host.converge(keep=keep)
    # the one that runs, the one before and the new one
    assert runs.exists()
    assert len(os.listdir(host.environments)) - len([".lock"]) == 3


def test_an_engine_is_staged_beside_the_one_in_use(host: Host) -> None:
    host.converge()
    first = os.path.realpath(host.path)
    host.pins["ray"] = "2.61.0"
    host.make_wheels()
    staged = host.converge(activate=False)
    assert staged["changed"] is True
    assert os.path.realpath(host.path) == first
    [python] = staged["command"]
    assert python.endswith("/bin/python")
    assert not python.startswith(first)
    again = host.call(activate=False)
    assert (again["changed"], again["command"], "need" in again) == (False, [python], False)
    switched = host.call()
    assert switched["changed"] is True
    assert f"{os.path.realpath(host.path)}/bin/python" == python


def test_going_back_needs_no_wheel(host: Host) -> None:
    host.converge()
    first, target = os.path.realpath(host.path), copy.deepcopy(host.target())
    host.pins["ray"] = "2.61.0"
    host.make_wheels()
    host.converge()
    assert os.path.realpath(host.path) != first
    shutil.rmtree(host.path.parent / "wheels")
    back = host.call(target=target)
    assert (back["changed"], "need" in back) == (True, False)
    assert os.path.realpath(host.path) == first
    # a damaged one is not gone back to
    Path(first, "bin", "ray").unlink()
    host.converge()
    assert "need" in host.call(target=target)


def test_what_served_keeps_its_engine(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.converge()
    first = os.path.realpath(host.path)
    monkeypatch.setattr(kept, "needed", lambda: kept.Needed([first], []))
    for version in ("2.61.0", "2.62.0", "2.63.0"):
        host.pins["ray"] = version
        host.make_wheels()
        host.converge(keep=0)
    assert os.path.isdir(first)
    assert len([path for path in host.environments.iterdir() if path.is_dir()]) == 3


def test_an_engine_in_use_is_judged_anew_by_what_the_next_model_calls(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda module, text: warnings.append(text))
    host.converge()
    marker = host.path / ".sparkthor-engine.json"
    libraries = {"_C": [[121], []], "_moe_C": [[90], []]}
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "libraries": libraries}))
    spark = {**host.target(), "kind": "spark"}
    dense = host.call(target=spark)
    assert (dense["changed"], [line.split(" of ")[0] for line in warnings]) == (False, ["library _moe_C"])
    refused = host.call(target=spark, calls=["experts"])["msg"]
    assert "library _moe_C of vLLM 0.32.0, which a model with experts calls, carries kernels for sm_90" in refused
    assert 'TORCH_CUDA_ARCH_LIST="12.1"' in refused
    # the comparison before a run judges by the same
    asked = {"path": str(host.path), "python": sys.executable, "target": spark}

    def compared(calls: list[str]) -> tuple[list[str], str]:
        return compare.compare([{"role": "engine", "module": "engine_venv", "arguments": {**asked, "calls": calls}}])

    assert compared([]) == (["engine"], "")
    assert "engine: library _moe_C of vLLM" in compared(["experts"])[1]
