# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that are a whole engine, and the GPU of the host that is to run them."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import program_kernels, venv
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.cuda_kernels import Kernels
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError

HEAD, WORKER = "llama-server", "ggml-rpc-server"


def check(kind: str, head: Kernels, worker: Kernels) -> list[str]:
    """As the module that installs it does."""
    wanted = venv.WantedVenv("/x", "d", {"llama-cpp-programs": "0.1"}, {}, "python3", "3.12", kind)
    return venv._check_kernels(wanted, {HEAD: head, WORKER: worker})


def test_a_build_for_another_gpu_is_refused_with_the_fix() -> None:
    with pytest.raises(EngineError) as caught:
        check("spark", Kernels((121,)), Kernels((110,)))
    assert str(caught.value).startswith(f"{WORKER} carries kernels for sm_110, and a spark needs sm_121. Give engine_")
    assert "CMAKE_CUDA_ARCHITECTURES=121" in str(caught.value)


@pytest.mark.parametrize(("kind", "machine"), [("spark", 121), ("thor", 110), ("generic", 90)])
def test_a_build_for_the_gpu_says_nothing(kind: str, machine: int) -> None:
    assert check(kind, Kernels((machine,)), Kernels((machine,))) == []


def test_a_build_without_cuda_is_said_where_there_is_a_gpu() -> None:
    assert check("spark", Kernels(), Kernels()) == [
        f"{HEAD}, {WORKER}: a build without CUDA, which computes on the CPU of a spark"
    ]
    assert check("generic", Kernels(), Kernels()) == []


def test_beside_vllm_s_libraries_both_are_judged() -> None:
    pins = {"llama-cpp-programs": "0.1", "vllm": "0.32.0"}
    wanted = venv.WantedVenv("/x", "d", pins, {}, "python3", "3.12", "spark")
    good, bad = Kernels((121,)), Kernels((90,))
    assert venv._check_kernels(wanted, {HEAD: good, WORKER: good, "_C": good}) == []
    for found, words in (({HEAD: bad, "_C": good}, f"{HEAD} carries"), ({HEAD: good, "_C": bad}, "library _C of vLLM")):
        with pytest.raises(EngineError) as caught:
            venv._check_kernels(wanted, found)
        assert words in str(caught.value)
    [said] = venv._check_kernels(wanted, {HEAD: Kernels(), "_C": good})
    assert said.startswith(f"{HEAD}: a build without CUDA")


def test_programs_are_found_where_they_are_the_engine(tmp_path: Path) -> None:
    assert program_kernels.kernels_of(str(tmp_path)) == {}
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / HEAD).write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "python").write_text("")
    assert program_kernels.kernels_of(str(tmp_path)) == {HEAD: Kernels()}
    assert venv._libraries(str(tmp_path), "3.12") == {HEAD: Kernels()}
