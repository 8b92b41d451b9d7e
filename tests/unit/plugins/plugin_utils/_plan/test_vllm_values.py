# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values that vLLM's parser lets through and its configuration classes refuse."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_args import check, find_table

VERSIONS = ["0.31.0", "0.32.0", "0.33.0"]
REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"compilation-config": {"modee": 3}},
        "compilation-config.modee: 3: vLLM VERSION has no such field; did you mean m",
    ),
    ({"speculative-config": '{"metod": "mtp"}'}, "speculative-config.metod: 'mtp': vLLM VERSION has no such field"),
    ({"kernel-config.moe_backendd": "marlin"}, "kernel-config.moe_backendd"),
    ({"load-format": "fastsafetensor"}, "did you mean fastsafetensors?"),
    ({"cudagraph-capture-sizes": "1 2 4"}, "give a list of whole numbers, such as [1, 2, 4]"),
    ({"cudagraph-capture-sizes": [1, "two"]}, "give a list of whole numbers"),
    ({"max-num-seqs": 0}, "max-num-seqs: 0: is below 1; give at least 1"),
    ({"max-num-batched-tokens": -1}, "is below 1"),
    ({"speculative-config": [1]}, "speculative-config: [1]: is list; give a dictionary"),
    ({"speculative-config": "[1]"}, "give a dictionary"),
    ({"speculative-config": "ngram"}, "give a dictionary or JSON"),
]
TAKEN: list[dict[str, Any]] = [
    {"compilation-config": {"mode": 3}},
    {"speculative-config": {"method": "mtp", "num_speculative_tokens": 2}},
    {"load-format": "instanttensor"},
    {"cudagraph-capture-sizes": [1, 2, 4]},
    {"cudagraph-capture-sizes": "4"},
    {"max-num-seqs": 1, "max-num-batched-tokens": "8k"},
    {"hf-overrides": {"anything": 1}},
    {"moe-backend": "flashinfer-cutlass"},
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("args", "text"), REFUSED, ids=range(len(REFUSED)))
def test_refused_before_the_start(args: dict[str, Any], text: str, version: str) -> None:
    findings = check({"gpu-memory-utilization": 0.8, **args}, find_table(version)[0])
    assert text.replace("VERSION", version) in "\n".join(str(finding) for finding in findings)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("args", TAKEN, ids=range(len(TAKEN)))
def test_taken(args: dict[str, Any], version: str) -> None:
    assert check({"gpu-memory-utilization": 0.8, **args}, find_table(version)[0]) == []


def test_a_table_without_ranges_and_fields_still_serves() -> None:
    args = {"gpu-memory-utilization": 0.8, "max-num-seqs": 0, "compilation-config": {"modee": 3}}
    assert check(args, find_table("0.20.1")[0]) == []
