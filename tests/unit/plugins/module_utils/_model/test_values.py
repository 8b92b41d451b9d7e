# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers as vLLM writes them."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, as_int, parse_length


def test_lengths_as_vllm_writes_them() -> None:
    assert parse_length("max_model_len", "32k") == 32_000
    assert parse_length("max_model_len", "32K") == 32_768
    assert parse_length("max_model_len", "25.6k") == 25_600
    assert parse_length("max_model_len", "4096") == 4_096


@pytest.mark.parametrize("value", ["9" * 5_000, "9" * 5_000 + "k", "1." + "9" * 5_000 + "k", "\u00b2"])
def test_a_text_that_python_reads_no_number_from_is_refused(value: str) -> None:
    with pytest.raises(SizingError, match="is not an integer"):
        parse_length("max_model_len", value)
    with pytest.raises(SizingError, match="is not an integer"):
        as_int("x", value)
