# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers as vLLM writes them."""

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import parse_length


def test_lengths_as_vllm_writes_them() -> None:
    assert parse_length("max_model_len", "32k") == 32_000
    assert parse_length("max_model_len", "32K") == 32_768
    assert parse_length("max_model_len", "25.6k") == 25_600
    assert parse_length("max_model_len", "4096") == 4_096
