# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layers over pipeline stages."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.split import split_layers, stages_of
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.published_models import model


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [
        (126, 3, [42, 42, 42]),
        (60, 3, [20, 20, 20]),
        (88, 4, [22, 22, 22, 22]),
        (61, 4, [15, 15, 16, 15]),  # the middle ones first, from the back
        (62, 4, [15, 16, 16, 15]),
        (63, 4, [16, 16, 16, 15]),  # never the last one
        (5, 2, [3, 2]),
    ],
)
def test_uneven_stages(layers: int, stages: int, expected: list[int]) -> None:
    assert split_layers(layers, stages) == expected


def test_a_partition_can_be_given() -> None:
    assert split_layers(60, 3, "18,20,22") == [18, 20, 22]
    with pytest.raises(SizingError, match="layer_partition"):
        split_layers(60, 3, [20, 20, 19])


def test_layers_that_read_one_cache_are_on_one_stage() -> None:
    """DeepSeek V4.1: its caches begin with layers 2, 8, 14 and 20, its tables of n-grams are at layers 1 and 14."""
    shape = read_shape(model("deepseek-v4.1-flash"))
    assert stages_of(shape, 2) == [20, 20]
    assert stages_of(shape, 1) == [40]
    with pytest.raises(SizingError, match=r"layers 10, 20, 30, .*let a stage begin with layer 20\."):
        stages_of(shape, 4)
    # a table on the second stage
    with pytest.raises(SizingError, match="tables of n-grams"):
        stages_of(shape, 2, "14,26")
    # one cache for all layers
    config = model("deepseek-v4.1-flash")
    alone = read_shape({**config, "text_config": {**config["text_config"], "kv_source_layer_ids": [2]}})
    with pytest.raises(SizingError, match=r"Use tensor parallelism, over RoCE\.$"):
        stages_of(alone, 2)


@given(st.integers(1, 200), st.integers(1, 16))
def test_stages_add_up_and_differ_by_at_most_one(layers: int, stages: int) -> None:
    if stages > layers:
        with pytest.raises(SizingError):
            split_layers(layers, stages)
        return
    counts = split_layers(layers, stages)
    assert sum(counts) == layers
    assert max(counts) - min(counts) <= 1
