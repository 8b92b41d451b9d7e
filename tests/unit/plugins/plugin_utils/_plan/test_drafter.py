# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the plan learns of the model that drafts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.drafter import found
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.registry import DEFAULT
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import (
    READ_OF_HEAD,
    ServingError,
    plan_serving,
    plan_whole,
)

from tests.unit.planned_cluster import planned
from tests.unit.published_models import model

SPECULATIVE = {"method": "eagle3", "model": "some/drafter", "num_speculative_tokens": 3}
CONFIG = {**model("llama-3.1-8b"), "num_hidden_layers": 1}


def recipe(folder: Path, **more: Any) -> str:
    data = {
        **{"name": "drafting", "summary": "one", "model": "a/model", "runtime": "venv", "hosts": "any"},
        **{"args": {"speculative-config": SPECULATIVE}, "config": model("llama-3.1-8b"), "max_model_len": 4096},
        **{"weights_bytes": 16_000_000_000, **more},
    }
    (folder / "drafting.yml").write_text(json.dumps(data))
    return "./drafting.yml"


def memory(folder: Path, ask: Any = None, **variables: Any) -> dict[str, Any]:
    named = variables.pop("vllm_serve_recipe", None) or recipe(folder)
    given = {"vllm_serve_recipe": named, "engine_vllm_version": "0.32.0", **variables}
    first, cluster, _fabric, nodes = planned(["a", "b"], **given)
    sizes: dict[str, Any] = plan_serving(first, cluster, nodes, str(folder), ask)["memory"]
    return sizes


def test_the_users_word_the_recipes_and_the_hubs(tmp_path: Path) -> None:
    assert "some/drafter" in memory(tmp_path)["unknown"][0]
    by_variable = memory(tmp_path, vllm_serve_draft_config=CONFIG)
    assert by_variable["unknown"] == []
    said = recipe(tmp_path, draft_config=CONFIG, draft_weights_bytes=2**30)
    by_recipe = memory(tmp_path, vllm_serve_recipe=said)
    assert by_recipe["unknown"] == []
    asked: list[tuple[str, str]] = []

    def ask(repo: str, revision: str) -> tuple[dict[str, Any], int]:
        asked.append((repo, revision))
        return CONFIG, 2**30

    by_hub = memory(tmp_path, ask)
    assert asked == [("some/drafter", "")]
    assert by_hub["weights_bytes_per_rank"] == by_recipe["weights_bytes_per_rank"]
    assert by_variable["kv_bytes_per_token"] == by_hub["kv_bytes_per_token"]
    memory(tmp_path, ask, vllm_serve_args={"spec-model": "other/drafter"})
    assert asked.pop() == ("other/drafter", "")
    # of the user's own config nobody asks
    memory(tmp_path, ask, vllm_serve_draft_config=CONFIG)
    assert len(asked) == 1


def test_a_recipe_says_nothing_of_another_drafter(tmp_path: Path) -> None:
    said = recipe(tmp_path, draft_config=CONFIG)
    other = {"speculative-config": {**SPECULATIVE, "model": "other/drafter"}}
    assert "other/drafter" in memory(tmp_path, vllm_serve_recipe=said, vllm_serve_args=other)["unknown"][0]


@pytest.mark.parametrize("error", [AnsibleActionFail("some/drafter is not on the hub"), ValueError("no")])
def test_a_drafter_that_the_hub_does_not_give_costs_its_own_line(tmp_path: Path, error: Exception) -> None:
    def ask(repo: str, revision: str) -> None:
        raise error

    sizes = memory(tmp_path, ask)
    assert "some/drafter" in sizes["unknown"][0]
    assert sizes["kv_bytes_per_token"]


def test_a_folder_of_the_controller_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "drafter"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    header = json.dumps({"x": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    data = {"args": {"speculative-config": json.dumps(SPECULATIVE)}}
    first = {"model_store_models": [{"name": "drafter", "source": str(folder)}]}
    assert found(DEFAULT, data, {}, first, None) == {"draft_config": CONFIG, "draft_weights_bytes": 8}
    (folder / "config.json").unlink()
    assert found(DEFAULT, data, {}, first, None) == {}


@pytest.mark.parametrize("value", [None, "{", [1], {"method": "mtp"}, {"method": "ngram", "model": "ngram"}])
def test_what_names_no_drafter_asks_nobody(value: Any) -> None:
    def ask(repo: str, revision: str) -> None:
        raise AssertionError(repo)

    assert found(DEFAULT, {"args": {"speculative_config": value}}, {}, {}, ask) == {}


def test_status_and_verify_gather_the_variable() -> None:
    assert "vllm_serve_draft_config" in READ_OF_HEAD


def test_a_drafter_of_another_vocabulary_is_refused_before_a_download(tmp_path: Path) -> None:
    asked = {"speculative-config": {**SPECULATIVE, "method": "draft_model"}}
    said = recipe(tmp_path, args=asked)
    words = r"recipe drafting.*speculative_config\.model='some/drafter': has a vocabulary of 1,000 words, .* Name a dra"
    first, cluster, _fabric, nodes = planned(["a", "b"], vllm_serve_recipe=said, engine_vllm_version="0.32.0")
    given = {**first, "vllm_serve_draft_config": {**CONFIG, "vocab_size": 1000}, "inventory_dir": str(tmp_path)}
    with pytest.raises(ServingError, match=words):
        plan_whole(given, cluster, nodes)
