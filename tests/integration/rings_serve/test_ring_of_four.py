# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model served over a ring of four without Ray: what it answers, where its ranks lie, and what a lost host costs."""

from __future__ import annotations

import time

import openai
import yaml

from tests.integration.serve.conftest import Serving
from tests.integration.sites import within

#: as long as a start may take on a busy machine
START = 900.0


def hosts_of_ranks(serving: Serving) -> list[str]:
    """The hosts in the order of the ranks that their engines are given."""
    found = {}
    for host in serving.cluster.hosts:
        given = yaml.safe_load(serving.cluster.run(host, "cat /etc/sparkthor/vllm.yaml"))
        found[given["node-rank"]] = host
    return [found[number] for number in sorted(found)]


def answers(serving: Serving) -> bool:
    try:
        return bool(serving.chat("hello").choices)
    except openai.OpenAIError:
        return False


def test_four_stages_along_the_cables_answer_as_one_host(serving: Serving) -> None:
    assert hosts_of_ranks(serving) == ["spark-01", "spark-02", "spark-03", "spark-04"]
    serving.assert_answers_as_one_host()


def test_no_host_runs_ray(serving: Serving) -> None:
    for host in serving.cluster.hosts:
        assert serving.cluster.run(host, "systemctl is-active sparkthor-ray", check=False).strip() != "active"


def test_a_second_run_changes_nothing(serving: Serving) -> None:
    assert set(serving.site(whole=True).changed.values()) == {0}


def test_a_host_that_loses_its_power_comes_back_without_a_person(serving: Serving) -> None:
    begun = time.monotonic()
    serving.cluster.lab.off("spark-03")
    within(120, lambda: not answers(serving))
    serving.cluster.lab.boot("spark-03")
    within(START, lambda: answers(serving))
    print(f"a lost host: {time.monotonic() - begun:.0f} s until the next answer")
    serving.assert_answers_as_one_host()


def test_two_pairs_divide_each_stage_along_a_cable(serving: Serving) -> None:
    serving.site(vllm_serve_tensor_parallel_size=2, vllm_serve_pipeline_parallel_size=2)
    # the ring closes from the second pair's first host to the first pair's first one
    assert hosts_of_ranks(serving) == ["spark-01", "spark-02", "spark-04", "spark-03"]
    serving.assert_answers_as_one_host()
