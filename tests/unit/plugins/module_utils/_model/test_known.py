# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import text_config
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.known import unknown_of
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan

from tests.unit.published_models import MODELS, NOT_KNOWN, model


@pytest.mark.parametrize("name", sorted(path.stem for path in MODELS.glob("*.json")))
def test_published_models_are_known(name: str) -> None:
    found = unknown_of(text_config(model(name)))
    if name in NOT_KNOWN:
        assert len(found) == 1
        assert f"model_type {NOT_KNOWN[name]!r}" in found[0]
    else:
        assert found == []


def test_a_field_that_changes_the_cache_is_known_of_some_models_only() -> None:
    assert unknown_of({"model_type": "llama", "index_head_dim": 128}) == ["config.index_head_dim of model_type 'llama'"]
    assert unknown_of({"model_type": "deepseek_v42", "compress_ratios": [4]})[0].startswith("config.compress_ratios")


def test_another_model_type_is_named() -> None:
    assert "model_type 'glm9_next'" in unknown_of({"model_type": "glm9_next"})[0]
    assert unknown_of({}) == []


@pytest.mark.parametrize("strange", [5, "dense", {}, None])
def test_strange_words_for_dense_layers_and_fields_that_are_left_out_end_no_plan(strange: object) -> None:
    laguna = {**model("transformers-laguna"), "mlp_layer_types": strange}
    assert plan(laguna, max_model_len=4096, memory_bytes=1024 * 2**30)["ranks"]
    short = {name: value for name, value in model("transformers-gemma3n_text").items() if "per_layer_input" not in name}
    whole = model("transformers-gemma3n_text")
    asked = {"max_model_len": 4096, "memory_bytes": 1024 * 2**30}
    assert plan(short, **asked)["ranks"] == plan(whole, **asked)["ranks"]
    glm = {**model("glm-5.3-flash-text"), "index_kpool": 0}
    assert plan(glm, **asked)["ranks"]
