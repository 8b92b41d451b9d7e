# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import life, patience

TICKS = os.sysconf("SC_CLK_TCK")


def put(proc: Path, pid: int, name: str, seconds: float, state: str = "S", session: int = 7) -> None:
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    rest = [state, "1", "1", str(session), *["0"] * 7, str(int(seconds * TICKS)), "0", *["0"] * 20]
    (folder / "stat").write_text(f"{pid} ({name}) {' '.join(rest)}\n", encoding="utf-8")


class Host:
    """A host's /proc and nvidia-smi on a clock of their own."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.now = 100.0
        self.gpus: tuple[int, str] = (0, "96, 45.10\n")
        self.asked = 0
        self.sampler = life.Sampler(lambda: self.now, self.run)

    def run(self, argv: list[str], _seconds: float) -> tuple[int, str, str]:
        assert argv[0] == "nvidia-smi"
        self.asked += 1
        return (*self.gpus, "")

    def sample(self, lines: int = 0) -> patience.Signs:
        return self.sampler.sample(life.of_session(7, str(self.proc)), lines)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_cpu_time_between_two_samples(host: Host) -> None:
    put(host.proc, 1, "vllm (a) b", 10)
    put(host.proc, 2, "other", 10, session=8)
    assert host.sample().cores is None
    host.now += 10
    put(host.proc, 1, "vllm (a) b", 15)
    put(host.proc, 2, "other", 20, session=8)
    assert host.sample().cores == pytest.approx(0.5)
    host.now += 4
    assert host.sample().cores == pytest.approx(0.5)  # a window is not over
    host.now += 300
    assert host.sample().cores is None  # that was another stall


def test_what_waits_for_a_rank_is_none(host: Host) -> None:
    put(host.proc, 1, "vllm", 10)
    put(host.proc, 2, "VLLM::EngineCor", 10)
    put(host.proc, 3, "VLLM::Worker_PP", 10)
    host.sample()
    host.now += 10
    put(host.proc, 1, "vllm", 15)
    put(host.proc, 2, "VLLM::EngineCor", 12)
    assert host.sample().cores == 0.0


def test_a_stopped_process_and_compilers_are_seen(host: Host) -> None:
    put(host.proc, 1, "python", 1)
    assert not host.sample().stopped
    put(host.proc, 1, "python", 1, state="T")
    put(host.proc, 3, "cc1plus", 1, state="R")
    put(host.proc, 4, "ptxas", 1, session=9)
    signs = host.sample()
    assert (signs.stopped, signs.compilers) == (True, 1)


def test_processes_of_a_unit_s_container(tmp_path: Path) -> None:
    cid, run_dir, proc = "41d26fe0e0fc4a8a", tmp_path / "run", tmp_path / "proc"
    run_dir.mkdir()
    proc.mkdir()
    # Docker's client is a child of ours, the rank is none
    for pid, name, group in ((1, "docker", "sparkthor-vllm.service"), (2, "sglang::schedul", f"docker-{cid}.scope")):
        put(proc, pid, name, 1, state="T")
        (proc / str(pid) / "cgroup").write_text(f"0::/system.slice/{group}\n", encoding="utf-8")
    assert life.of_container("vllm", str(run_dir), str(proc)) == []
    (run_dir / "vllm.cid").write_text(cid, encoding="utf-8")
    assert [one.name for one in life.of_container("vllm", str(run_dir), str(proc))] == ["sglang::schedul"]
    # a name that Docker has not yet written whole is in every group
    (run_dir / "vllm.cid").write_text("", encoding="utf-8")
    assert life.of_container("vllm", str(run_dir), str(proc)) == []


def test_processes_in_the_kernel_are_those_of_the_units(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    below = groups / "vllm.service" / ".control"
    below.mkdir(parents=True)
    (groups / "vllm.service" / "cgroup.procs").write_text("5\n6\n")
    (below / "cgroup.procs").write_text("7\n99\n")
    proc.mkdir()
    for pid, state in ((5, "D"), (6, "S"), (7, "D"), (8, "D")):
        put(proc, pid, f"process {pid}", 1, state=state)
    found = life.in_the_kernel(("vllm.service", "ray.service"), str(groups), str(proc))
    assert found == {5: "process 5", 7: "process 7"}


def test_a_new_line_counts_for_one_window(host: Host) -> None:
    host.sample(5)
    spoke = []
    for lines in (6, 6):
        host.now += 10
        spoke.append(host.sample(lines).spoke)
    assert spoke == [True, False]


def test_gpus_are_not_asked_in_every_round(host: Host) -> None:
    for _unused in range(6):
        assert (host.sample().utilization, host.sample().power) == (96.0, 45.1)
        host.now += 2
    assert host.asked == 2
    host.gpus = (127, "")
    host.now += 10
    assert host.sample().utilization is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("96, 17.20\n", (96.0, 17.2)),
        ("96, [N/A]\n", (96.0, None)),
        ("[N/A], [N/A]\n", (None, None)),
        ("3, 50\n97, 40\n", (97.0, 40.0)),
        ("No devices were found\n", (None, None)),
        ("", (None, None)),
    ],
)
def test_nvidia_smi(text: str, found: tuple[float | None, float | None]) -> None:
    assert life.read_gpus(text) == found


@pytest.fixture
def spinner() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_real_processes_of_a_session(spinner: subprocess.Popen[bytes]) -> None:
    def until(wanted: Any) -> list[life.Process]:
        for _unused in range(200):
            found = life.of_session(spinner.pid)
            if found and wanted(found[0]):
                return found
            time.sleep(0.05)
        raise AssertionError(found)

    assert until(lambda one: one.cpu_seconds > 0)[0].pid == spinner.pid
    spinner.send_signal(signal.SIGSTOP)
    assert until(lambda one: one.state == "T")


def node(now: float, seconds: float, gpus: list[dict[str, Any]] | None = None, name: str = "ray::RayWorkerProc") -> str:
    workers = [
        {"pid": 11, "cmdline": [name, ""], "cpuTimes": [seconds, 0.0, 0.0, 0.0, 0.0]},
        {"pid": 12, "cmdline": ["ray::IDLE"], "cpuTimes": [999.0 * seconds, 0.0]},
        "odd",
    ]
    return json.dumps({"result": True, "data": {"detail": {"now": now, "workers": workers, "gpus": gpus or []}}})


def test_signs_by_ray() -> None:
    sampler = life.RaySampler()
    assert not sampler.read("a", node(0, 1)).known
    gpus = [{"utilizationGpu": 96, "powerMw": 20500}]
    assert sampler.read("a", node(30, 16, gpus)) == patience.Signs(0.5, None, 96.0, 20.5)
    assert sampler.read("a", node(60, 16)).cores == 0.0
    assert not sampler.read("a", node(60, 16, name="ray::IDLE")).known
    assert sampler.read("a", node(600, 17)).cores is None


def test_a_rank_that_stopped_within_a_window_is_seen_at_the_end_of_the_next_measurements() -> None:
    sampler = life.RaySampler()
    # the dashboard tells every 15 s; the rank is stopped at second 5
    used = {0: 100.0, 15: 105.0, 30: 105.0, 45: 105.0}
    seen = {at: sampler.read("a", node(at, cpu)).cores for at, cpu in used.items()}
    assert seen == {0: None, 15: None, 30: pytest.approx(5 / 30), 45: 0.0}, "no second window of its own"


def test_an_agent_that_measures_no_more_is_no_rank_that_does_nothing() -> None:
    sampler = life.RaySampler()
    for _unused in range(5):
        assert not sampler.read("a", node(10, 1)).known
    # nor is one whose clock was set back
    assert not sampler.read("a", node(-900, 1)).known


def test_compilers_and_stopped_processes_of_this_host(tmp_path: Path) -> None:
    put(tmp_path, 1, "ray::RayWorkerP", 1)
    put(tmp_path, 2, "cicc", 1)
    put(tmp_path, 3, "less", 1, state="T")
    assert life.of_host(str(tmp_path)) == (1, False)
    put(tmp_path, 4, "VLLM::EngineCor", 1, state="T")
    assert life.of_host(str(tmp_path)) == (1, True)
    assert life.of_host(str(tmp_path / "absent")) == (0, False)


@pytest.mark.parametrize(
    "answer", ["", "[]", "{}", '{"data": {"detail": null}}', '{"data": {"detail": {"workers": 3}}}']
)
def test_an_answer_of_another_ray_is_no_sign(answer: str) -> None:
    assert not life.RaySampler().read("a", answer).known
