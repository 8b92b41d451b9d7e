# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import toolchain
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engine import EngineSettings, plan_engine

LOCK = {"vllm", "torch", "triton", "flashinfer-python"}
PACKAGES = ["gcc", "libc6-dev", "python3-dev"]
WHOLE = {"cc": "/usr/bin/cc", "python_headers": True, "nvcc": "/usr/local/cuda/bin/nvcc", "cuda": "13.0.2"}


def host(kind: str = "spark", apt: str = "/usr/bin/apt-get", **tools: object) -> dict[str, object]:
    return {"kind": kind, "binaries": {"apt-get": apt}, "toolchain": {**WHOLE, **tools}}


@pytest.mark.parametrize(
    ("node", "lock"),
    [
        (host(), LOCK),
        ({"kind": "spark"}, LOCK),  # nobody looked
        (host("generic", cc="", nvcc=""), LOCK),
        (host(cc="", nvcc=""), {"vllm", "torch"}),  # the build for CPUs compiles nothing
        (host(nvcc=""), {*LOCK, "flashinfer-cubin", "flashinfer-jit-cache"}),
    ],
)
def test_a_host_that_needs_nothing(node: dict[str, object], lock: set[str]) -> None:
    assert toolchain.packages(node, lock, PACKAGES) == []
    assert toolchain.problems(node, lock, PACKAGES) == []


def test_what_the_distribution_has_is_installed() -> None:
    node = host(cc="", python_headers=False)
    assert toolchain.packages(node, LOCK, PACKAGES) == PACKAGES
    assert toolchain.problems(node, LOCK, PACKAGES) == []


@pytest.mark.parametrize(
    ("node", "wanted", "words"),
    [
        (host(cc=""), [], "no C compiler, with which Triton"),
        (host(cc="", python_headers=False, apt=""), PACKAGES, "no C compiler and no Python headers"),
        (host(nvcc=""), PACKAGES, "no nvcc, with which FlashInfer compiles"),
        (host(cuda="12.8.1"), PACKAGES, r"CUDA 12\.8\.1 on this host does not know its GPU \(sm_121 came with 12\.9\)"),
        (host("thor", cuda="12.9.0"), PACKAGES, r"does not know its GPU \(sm_110 came with 13\.0\)"),
    ],
)
def test_what_stops_the_run_names_the_fix(node: dict[str, object], wanted: list[str], words: str) -> None:
    [problem] = toolchain.problems(node, LOCK, wanted)
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(problem)
    assert "engine_runtime: container" in problem


@pytest.mark.parametrize(
    ("topology", "version", "count"), [("ring", "2.28.9", 1), ("ring", "2.30.7", 0), ("switch", "2.28.9", 0)]
)
def test_a_ring_needs_an_nccl_that_routes_by_subnet(topology: str, version: str, count: int) -> None:
    assert len(toolchain.ring_problems(topology, {"nvidia-nccl-cu13": version})) == count
    assert toolchain.ring_problems(topology, {"torch": "2.13.0+cpu"}) == []


def test_the_role_reads_its_own_lock() -> None:
    lock = str(Path(__file__).resolve().parents[5] / "requirements/engine/cuda13-cp312-aarch64.txt")
    settings = EngineSettings(engine_runtime="venv", engine_requirements=lock, engine_build_packages=PACKAGES)
    planned = plan_engine(settings, host(cc="", nvcc=""))
    assert planned["packages"] == PACKAGES
    assert ["no nvcc" in problem for problem in planned["problems"]] == [True]
    for other in (
        EngineSettings(engine_runtime="container", engine_requirements=lock),
        EngineSettings(engine_requirements=lock, engine_toolchain_check=False),
        EngineSettings(engine_requirements="/nowhere"),
    ):
        assert (plan_engine(other, host(cc=""))["packages"], plan_engine(other, host(cc=""))["problems"]) == ([], [])
