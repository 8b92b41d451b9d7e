# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import watchdog_report
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.vllm import VLLM


def test_what_its_api_server_counts_alone_is_no_sign_of_life() -> None:
    text = (
        'vllm:prompt_tokens_total{engine="0"} 3.0\nvllm:prompt_tokens_total{engine="1"} 2.0\n'
        'vllm:request_success_total{engine="0"} 9.0\nhttp_requests_total 7\nvllm:kv_cache_usage_perc{engine="0"} 0.5\n'
    )
    assert watchdog_report.engine_counters(text, VLLM.metrics) == (5.0, 0.0, 0.0, 0.0, 0.5)


def test_it_says_once_that_it_serves() -> None:
    assert VLLM.log.serves.search("INFO:     Application startup complete.")
    assert not VLLM.log.serves.search("INFO:     Waiting for application startup.")
