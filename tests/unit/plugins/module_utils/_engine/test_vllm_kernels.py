# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.cuda_kernels import DEVICES, Kernels
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.vllm_kernels import kernel_notes, kernel_problem


@pytest.mark.parametrize(
    ("kind", "found", "serves"),
    [
        ("spark", Kernels((121,)), True),
        ("spark", Kernels((120,)), True),  # sm_121 runs sm_120 code
        ("spark", Kernels((100, 110)), False),
        ("spark", Kernels((90,), (90,)), True),  # by way of PTX
        ("spark", Kernels((), (130,)), False),
        ("thor", Kernels((110,)), True),
        ("thor", Kernels((90, 100, 120, 121)), False),
        ("thor", Kernels((90,), (120,)), False),
        ("thor", Kernels(), False),
    ],
)
def test_what_serves_where(kind: str, found: Kernels, serves: bool) -> None:
    message = kernel_problem(kind, "0.33.0", {"_C": found})
    assert (message == "") == serves
    if not serves:
        assert f"a {kind} needs sm_{DEVICES[kind]}" in message
        assert f"library _C of vLLM 0.33.0, which every model calls, carries kernels for {found.text}" in message


def test_other_hosts_and_cpu_builds_are_let_through() -> None:
    assert kernel_problem("generic", "0.33.0", {}) == ""
    assert kernel_problem("spark", "0.32.0+cpu", {}) == ""
    assert kernel_notes("generic", "0.33.0", {"_C": Kernels()}) == []
    assert kernel_notes("spark", "0.32.0+cpu", {"_C": Kernels()}) == []


#: a wheel that was built with one library for other GPUs
WHEEL = {
    "_C": Kernels((80, 121)),
    "_moe_C": Kernels((80, 90)),
    "_flashkda_C": Kernels((90, 100)),
    "_vllm_fa3_C": Kernels((90,)),
    "_flashmla_C": Kernels((90, 100)),
}


def test_a_library_counts_where_the_model_calls_it() -> None:
    assert kernel_problem("spark", "0.33.0", WHEEL) == ""
    said = kernel_problem("spark", "0.33.0", WHEEL, ["experts"])
    assert said.startswith("library _moe_C of vLLM 0.33.0, which a model with experts calls, carries kernels for sm_80")
    assert "_flashkda_C" not in said
    both = kernel_problem("spark", "0.33.0", WHEEL, ["experts", "kda"])
    assert "library _moe_C" in both
    assert "library _flashkda_C" in both
    assert not any(name in both for name in ("_vllm_fa3_C", "_flashmla_C")), "no GPU of these hosts calls them"


def test_a_library_that_the_model_does_not_call_is_named() -> None:
    named = kernel_notes("spark", "0.33.0", WHEEL, ["experts"])
    assert len(named) == 1
    assert "library _flashkda_C of vLLM 0.33.0" in named[0]
    assert "GLM-5.3-Flash) cannot be served with it" in named[0]
    assert [line.split()[1] for line in kernel_notes("spark", "0.33.0", WHEEL)] == ["_flashkda_C", "_moe_C"]


def test_vllm_takes_triton_for_kimis_attention_on_a_thor() -> None:
    found = {"_C": Kernels((110,)), "_moe_C": Kernels((110,)), "_flashkda_C": Kernels((90, 100))}
    assert kernel_problem("thor", "0.33.0", found, ["experts", "kda"]) == ""
    assert kernel_notes("thor", "0.33.0", found) == []


def test_of_a_build_with_other_names_the_fullest_library_counts() -> None:
    found = {"_own_ops": Kernels((80, 121)), "_more": Kernels((90,))}
    assert kernel_problem("spark", "0.33.0", found) == ""
    assert "carries kernels for sm_90, and a thor needs sm_110" in kernel_problem("thor", "1", {"_x": Kernels((90,))})
    assert "carries kernels for none" in kernel_problem("thor", "1", {})
