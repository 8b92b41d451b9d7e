# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One dashboard and one alert for all engines: their figures under names of ours."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engine_figures import common_names, common_text
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.base import EngineOnHost
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.sglang import SGLANG
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.vllm import VLLM


@pytest.mark.parametrize("engine", registry.ENGINES.values(), ids=list(registry.ENGINES))
def test_what_alerts_ask_for_is_there_whichever_engine_serves(engine: EngineOnHost) -> None:
    names = common_names(engine.metrics)
    text = "".join(f'{name}{{model_name="m"}} 1.0\n' for name in names)
    made = common_text(text, engine.metrics)
    for name in ("requests_running", "requests_waiting", "tokens_total", "prompt_tokens_total"):
        assert f'sparkthor_engine_{name}{{model_name="m"}} 1.0\n' in made


def test_labels_and_buckets_stay() -> None:
    text = (
        '# TYPE sglang:time_to_first_token_seconds histogram\nsglang:time_to_first_token_seconds_bucket{le="0.1"} 2.0\n'
        'sglang:time_to_first_token_seconds_count{a="b"} 3.0\nsglang:num_running_reqs_offline_batch{a="b"} 4.0\n'
    )
    assert common_text(text, SGLANG.metrics) == (
        'sparkthor_engine_first_token_seconds_bucket{le="0.1"} 2.0\n'
        'sparkthor_engine_first_token_seconds_count{a="b"} 3.0\n'
    )


def test_of_two_names_for_one_thing_one_is_told() -> None:
    both = "vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.5\n"
    assert common_text(both, VLLM.metrics) == "sparkthor_engine_cache_share 0.5\n"


def test_a_page_that_is_nobodys_stays_as_it_is() -> None:
    assert common_text("python_info 1\nbroken\n\n", VLLM.metrics) == ""
