# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.registry import engine_problems
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.vllm import PlannedVllm
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import plan_serving

from tests.unit.planned_cluster import planned


def test_without_the_variable_it_is_the_default_one() -> None:
    assert registry.planned_engine("") is registry.DEFAULT
    assert not engine_problems({}, 4, "group_vars/cluster.yml")


def test_an_engine_that_nobody_knows_is_refused_with_those_that_there_are() -> None:
    (found,) = engine_problems({"serving_engine": "flux"}, 1, "group_vars/cluster.yml")
    assert str(found) == (
        "serving_engine: 'flux': no engine of this name can be served here; set one of "
        f"{', '.join(registry.ENGINES)} in group_vars/cluster.yml"
    )


@pytest.mark.parametrize(
    ("given", "kinds", "words"),
    [
        ({"vllm_serve_model": "/srv/a.GGUF"}, (), "vLLM cannot do gguf models; "),
        ({"vllm_serve_model": "org/a-GGUF:Q4_K_M"}, (), "vLLM cannot do gguf models; set serving_engine to llama_cpp"),
        ({"vllm_serve_executor": "flux"}, (), "vLLM cannot do flux as executor; "),
        ({}, ("abacus",), "vLLM cannot do hosts of kind abacus; "),
    ],
)
def test_what_the_engine_cannot_do_is_refused(given: dict[str, Any], kinds: tuple[str, ...], words: str) -> None:
    (found,) = engine_problems(given, 2, "group_vars/cluster.yml", kinds)
    assert f"serving_engine: 'vllm': {words}" in str(found)


def test_engines_that_can_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader(PlannedVllm):
        on_host = dataclasses.replace(PlannedVllm.on_host, name="reader")
        can = dataclasses.replace(PlannedVllm.can, formats=frozenset(("gguf",)))

    monkeypatch.setitem(registry.ENGINES, "reader", Reader())
    (found,) = engine_problems({"vllm_serve_model": "/srv/a.gguf"}, 1, "group_vars/cluster.yml")
    able = " or ".join(name for name, engine in registry.ENGINES.items() if "gguf" in engine.can.formats)
    assert "llama_cpp" in able
    assert able.endswith("reader")
    assert found.fix.startswith(f"set serving_engine to {able} in group_vars/cluster.yml, or change vllm_")


def test_kinds_are_judged_once_they_are_known() -> None:
    first, cluster, _fabric, nodes = planned(["one", "two"])
    cluster["kinds"] = dict.fromkeys(cluster["hosts"], "abacus")
    with pytest.raises(RecipeError, match="vLLM cannot do hosts of kind abacus"):
        plan_serving({**first, "vllm_serve_model": "org/model"}, cluster, nodes, ".")
