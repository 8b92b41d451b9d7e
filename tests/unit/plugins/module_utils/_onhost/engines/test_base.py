# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.base import MetricNames
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.vllm import VLLM


def test_a_model_comes_where_the_engine_looks_for_it_first() -> None:
    assert VLLM.load(["vllm", "serve", "--config", "c"], "/m") == ["vllm", "serve", "/m", "--config", "c"]
    other = dataclasses.replace(VLLM, model_option="-m", after="")
    assert other.load(["server", "-m", "/old", "-c", "1"], "/m") == ["server", "-m", "/m", "-c", "1"]
    assert other.load(["server", "-c", "1"], "/m") == ["server", "-c", "1", "-m", "/m"]


def test_the_configuration_may_quote_the_model() -> None:
    assert VLLM.named_model('seed: 1\nmodel: "/models/a@1"\n') == "/models/a@1"
    assert VLLM.named_model("served-model-name: model\n") == ""


def test_figures_that_an_engine_has_not_are_left_out() -> None:
    names = MetricNames(moves={"a": 0}, running=("r",), waiting=(), first_token="t")
    assert names.figures() == {"running": "r", "first_token_sum": "t_sum", "first_token_count": "t_count"}
