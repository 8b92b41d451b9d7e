# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.drafter import read_drafter
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

from tests.unit.published_models import model

QWEN = model("qwen3.6-35b-a3b")
SHAPE = read_shape(QWEN)


def test_nothing_is_drafted_unless_asked() -> None:
    assert read_drafter(None, QWEN, SHAPE, None).tokens == 0
    assert read_drafter("", QWEN, SHAPE, None).shape is None


def test_looking_up_tokens_caches_nothing() -> None:
    found = read_drafter({"method": "ngram", "num_speculative_tokens": 5}, QWEN, SHAPE, None)
    assert (found.tokens, found.shape, found.unknown) == (5, None, "")


def test_prediction_layers_are_the_models_own() -> None:
    found = read_drafter('{"method": "mtp", "num_speculative_tokens": 2}', QWEN, SHAPE, None)
    assert found.own_weights
    assert found.shape is not None
    assert [layer.cache for layer in found.shape.layers] == ["full"]


def test_a_drafter_without_its_config_is_not_known() -> None:
    found = read_drafter({"method": "dflash", "model": "org/drafter"}, QWEN, SHAPE, None)
    assert found.unknown.startswith("the drafter org/drafter")
    assert read_drafter({"method": "dflash", "model": "org/drafter"}, QWEN, SHAPE, model("llama-3.1-8b")).unknown == ""


@pytest.mark.parametrize("value", ["{", "[1]", [1]])
def test_what_is_no_mapping_is_refused(value: Any) -> None:
    with pytest.raises(SizingError, match="speculative_config"):
        read_drafter(value, QWEN, SHAPE, None)


def test_drafting_takes_cache_and_weights() -> None:
    options: dict[str, Any] = {"max_model_len": 131_072, "kv_cache_memory_bytes": "36G", "memory_bytes": 2**37}
    alone = plan(QWEN, **options)
    drafting = plan(QWEN, speculative_config={"method": "mtp", "num_speculative_tokens": 3}, **options)
    assert drafting["max_concurrent_sequences"] < alone["max_concurrent_sequences"]
    assert drafting["weights_bytes_per_rank"] > alone["weights_bytes_per_rank"]
    assert drafting["state_bytes_per_sequence"] > alone["state_bytes_per_sequence"]
