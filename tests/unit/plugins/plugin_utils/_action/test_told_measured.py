# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements of a host that lies: refused by name, or verify's lines are made of them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._measure import collective
from ansible_collections.sparkthor.cluster.plugins.module_utils._measure.arguments import MEASURING
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import answer, told_measured
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import fabric_plan
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import burn, measurements, verify

from tests.unit.plugins.plugin_utils._action.test_answer import ABSENT, JUNK, mutated, paths

HOSTS = ["a", "b"]
FABRIC: dict[str, Any] = fabric_plan(HOSTS, "direct", "10.100.0.0/16")
TESTS = measurements.link_tests(FABRIC, HOSTS, {})
_STREAM = {"streams": 1, "tokens": 9, "tokens_per_second": 9.0, "decode_tokens_per_second": 9.0}
_STREAM |= {"ttft_seconds": 0.1, "ttft_max_seconds": 0.2}
_GPU = {"name": "NVIDIA GB10", "tflops": 90.0, "readings": 9, "sm_mhz": 2000.0, "watts": 80.0, "celsius": 60.0}
HONEST: dict[str, dict[str, Any]] = {
    "agent": {"started": True, "errors": {}},
    "links": {"tests": [{"id": test["id"], "how": "tcp", "mtu": 9000, "gbits": 90.5} for test in TESTS["a"]]},
    "collective": {
        **{"backend": "nccl", "world": 2, "right": True, "torch": "2.9.0", "nccl": "2.28.3", "sent": {"eth0": 9}},
        **{"rows": [{"bytes": 8, "seconds": 1e-5, "gbytes": 1e-3, "busbw_gbytes": 1e-3}]},
        "log": collective.parse_nccl_log("NCCL INFO Using network IB"),
    },
    "burn": {"device": "cuda", "gpus": [{**_GPU, "slowed": ["thermal"]}]},
    "serving": {
        **{"completion": {"tokens": 5, "seconds": 0.4}, "streams": {"1": _STREAM, "8": _STREAM}},
        "answers": {"asked": 5, "right": 4, "wrong": "'2+2': '5'"},
    },
}


def read(stage: str, found: dict[str, Any]) -> None:
    """What verify makes of one host's measurement, beside an honest one."""
    limits = verify.thresholds(["spark"], {})
    match stage:
        case "links":
            results = measurements.found_by_test(TESTS, {"a": found, "b": {}})
            cluster = {"kinds": {}, "topology": "direct"}
            verify.link_lines(TESTS["a"], results, cluster, {}, {}, FABRIC)
        case "collective":
            results = {"a": found, "b": HONEST[stage]}
            verify.collective_lines(results, HOSTS, "ring", "roce", FABRIC, limits)
            verify.collective_lines({"a": HONEST[stage], "b": found}, HOSTS, "direct", "roce", FABRIC, limits)
        case "burn":
            burn.burn_lines({"a": found, "b": HONEST[stage]}, {"a": {}, "b": {}})
        case "serving":
            verify.serving_lines(found, 40.0, "", limits)


@pytest.mark.parametrize("stage", MEASURING)
def test_no_measurement_of_one_host_is_a_mistake_of_the_controller(stage: str) -> None:
    arguments, refused = {"stage": stage}, 0
    for honest in (HONEST[stage], {"error": "no engine"}):
        assert answer.wrong("sparkthor.cluster.cluster_verify", arguments, {"found": honest}) == ""
        read(stage, honest)
    draw = random.Random(48)
    whole = {"found": HONEST[stage]}
    places = [*paths(whole), ("found", "error")]
    for path in places:
        for junk in draw.sample((ABSENT, *JUNK), 9):
            if path == ("found", "error") and junk is ABSENT:
                continue
            bad = mutated(whole, path, junk)
            if why := answer.wrong("sparkthor.cluster.cluster_verify", arguments, bad):
                refused += 1
                assert "cluster_verify" in why
                continue
            try:
                read(stage, bad["found"])
            except Exception as error:
                raise AssertionError(f"{path}: {str(junk)[:80]!r}") from error
    assert refused > len(places)


def test_every_stage_that_measures_has_its_form() -> None:
    assert set(told_measured.MEASURED) == set(MEASURING)


@pytest.mark.parametrize("other", [stage for stage in MEASURING if stage != "burn"])
def test_an_answer_to_another_question_is_none(other: str) -> None:
    told = {"found": HONEST[other]}
    assert "found" in answer.wrong("sparkthor.cluster.cluster_verify", {"stage": "burn"}, told)
