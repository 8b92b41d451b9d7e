# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a split sends, and what that leaves over TCP."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.traffic import over_tcp, traffic

from tests.unit.published_models import model

#: 32 layers of a state of 4,096 elements
SHAPE = read_shape(model("llama-3.1-8b"))


def test_two_sums_a_layer_go_around_the_ring_nearly_twice() -> None:
    state = 4096 * 2
    assert traffic(SHAPE, 1, 1) == {"bytes_per_token": 0, "all_reduces": 0}
    assert traffic(SHAPE, 2, 1) == {"bytes_per_token": 64 * state, "all_reduces": 64}
    assert traffic(SHAPE, 4, 1) == {"bytes_per_token": 64 * state * 3 // 2, "all_reduces": 64}
    # stages pass a state on once, and sum their own layers
    assert traffic(SHAPE, 1, 2) == {"bytes_per_token": state, "all_reduces": 0}
    assert traffic(SHAPE, 2, 2) == {"bytes_per_token": 33 * state, "all_reduces": 64}


@pytest.mark.parametrize(("tensor", "measured"), [(2, 139), (4, 83)])
def test_over_sockets_an_8b_model_reached_what_is_allowed(tensor: int, measured: int) -> None:
    """36 layers, 202 tokens/s on one GPU."""
    sent = {"bytes_per_token": 0, "all_reduces": 72}
    assert over_tcp(sent, tensor, 202 * tensor, 8192)["tokens_per_second"] == pytest.approx(measured, rel=0.03)


def test_a_prompt_waits_for_an_ethernet() -> None:
    sent = traffic(SHAPE, 2, 1)
    assert over_tcp(sent, 2, 50, 8192)["seconds_of_prompt"] == pytest.approx(8192 * 524288 / 1.25e9, abs=0.05)
    assert over_tcp(sent, 2, 50, 8192)["tokens_per_second"] < 50
