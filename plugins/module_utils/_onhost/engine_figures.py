# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""The engine's ``/metrics`` under names that every engine shares, for dashboards and alerts."""

from __future__ import annotations

from .engines.base import MetricNames

_HISTOGRAM = ("_bucket", "_sum", "_count")


def common_names(names: MetricNames) -> dict[str, str]:
    """Ours by the engine's names; what an engine does not count is left out."""
    common = dict.fromkeys(names.running, "sparkthor_engine_requests_running")
    common |= dict.fromkeys(names.waiting, "sparkthor_engine_requests_waiting")
    common |= dict.fromkeys(names.cache_share, "sparkthor_engine_cache_share")
    common[names.prompt_tokens] = "sparkthor_engine_prompt_tokens_total"
    common[names.tokens] = "sparkthor_engine_tokens_total"
    for theirs, ours in (
        (names.first_token, "sparkthor_engine_first_token_seconds"),
        (names.token_time, "sparkthor_engine_token_seconds"),
    ):
        common |= {f"{theirs}{end}": f"{ours}{end}" for end in _HISTOGRAM if theirs}
    return {theirs: ours for theirs, ours in common.items() if theirs}


def common_text(text: str, names: MetricNames) -> str:
    """These samples once more, in Prometheus' format, with the engine's own labels and values."""
    ours, groups = common_names(names), dict[str, list[str]]()
    by: dict[str, str] = {}
    for line in text.splitlines():
        theirs = line.split("{", 1)[0].split(" ", 1)[0]
        if theirs not in ours:
            continue
        name = ours[theirs]
        # of two names that mean the same, the one that comes first
        if by.setdefault(name, theirs) == theirs:
            groups.setdefault(name, []).append(f"{name}{line[len(theirs) :]}\n")
    return "".join("".join(lines) for lines in groups.values())
