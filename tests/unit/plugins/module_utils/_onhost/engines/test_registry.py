# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry


def test_a_group_whose_files_name_no_engine_has_the_first_one() -> None:
    assert registry.engine_of({}) is registry.engine_of({"engine": None}) is registry.DEFAULT
    assert registry.DEFAULT.name == "vllm"


def test_an_engine_that_is_not_known_here_is_named_with_those_that_are() -> None:
    with pytest.raises(LookupError, match=r"no engine 'flux' is known on this host, only vllm.*site\.yml"):
        registry.engine_of({"engine": "flux"})


def test_metrics_of_nobody_are_the_first_ones() -> None:
    assert registry.engine_that_says("python_info 1\n") is registry.DEFAULT
    assert not registry.any_is_ours("python3")
    assert registry.any_is_ours("VLLM::Worker_TP0")
