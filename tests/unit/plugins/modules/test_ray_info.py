# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import re
from pathlib import Path

import jmespath
import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    ray_config,
    ray_health,
    ray_members,
    ray_probe,
)
from ansible_collections.sparkthor.cluster.plugins.modules import ray_info

FIXTURES = Path(__file__).parents[3] / "fixtures" / "ray"
ADDRESSES = ("10.89.0.10", "10.89.0.11", "10.89.0.12")
OK = ray_probe.RayProbe("x", ray_probe.OK, 1.0)


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    path = tmp_path / "ray.json"
    path.write_text(
        json.dumps(
            {
                "nodes": [
                    {"name": f"rx-h{i}", "address": a, "role": "worker" if i else "head"}
                    for i, a in enumerate(ADDRESSES)
                ]
            }
        )
    )

    def call(answers=None, **params):
        if answers is not None:
            monkeypatch.setattr(ray_health, "collect", lambda *_args, **_kwargs: answers)
        with patch_module_args({"config": str(path), **params}), pytest.raises(SystemExit) as ended:
            ray_info.main()
        result = json.loads(capsys.readouterr().out)
        assert ended.value.code == 0
        assert result["changed"] is False
        return result

    return call


def captured(case):
    view = ray_members.read_engine_view(json.loads((FIXTURES / f"{case}.engine.json").read_text()))
    return ray_health.Answers(OK, (OK,), view, dict.fromkeys(ADDRESSES, OK))


def test_healthy(run):
    result = run(captured("healthy"))
    assert result["healthy"] is True
    assert result["final"] is False
    assert result["present_gpus"] == result["expected_gpus"] == 3
    assert result["source"] == "engine"
    assert set(result["probes"]) == {"gcs", "sources", "raylets"}


def test_the_fix_of_a_problem_keeps_its_former_name(run, tmp_path):
    [problem] = run(config=str(tmp_path / "none"))["problems"]
    assert problem["mend"] == problem["fix"] == "run the ray roles on this host"


def test_every_returned_key_is_documented_and_every_answer_has_them_all(run, tmp_path, monkeypatch):
    always = set(yaml.safe_load(ray_info.RETURN)) - {"journal", "obstacles", "versions"}
    # where a cluster is configured the answer comes with the time that the questions took
    monkeypatch.setattr(ray_health, "collect", lambda *_args, **_kwargs: captured("healthy"))
    config = ray_config.load_config(str(tmp_path / "ray.json"))
    assert set(ray_health.wait_healthy(config, 0.0)) | {"final"} == always
    assert set(run(config=str(tmp_path / "none"))) - {"changed", "invocation"} == always


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("alive[].address", list(ADDRESSES)),
        ("alive[].{node: name, gpus: resources_available.GPU}[1]", {"node": "rx-h1", "gpus": 1.0}),
        ("problems[].[cause, fix]", []),
        ("dead[?rejoined].address", ["10.89.0.12"]),
    ],
)
def test_the_answer_can_be_queried(run, query, found):
    assert jmespath.search(query, run(captured("rejoined"))) == found


def test_every_query_of_the_examples_finds_something(run):
    queries = re.findall(r"json_query\('([^']+)'\)", ray_info.EXAMPLES)
    assert len(queries) >= 5
    healthy, rejoined, alone = run(captured("healthy")), run(captured("rejoined")), run(captured("headonly"))
    for query in queries:
        found = [jmespath.search(query, answer) for answer in (healthy, rejoined, alone)]
        assert all(isinstance(one, list) for one in found), query
        # a death that was made good is no death any more, so one query finds nothing in what was captured
        assert any(found) or "dead[?!rejoined]" in query, query


def test_a_death_that_was_not_made_good_is_found(run):
    answer = run(captured("rejoined"))
    gone = {**answer["dead"][0], "rejoined": False}
    found = jmespath.search("dead[?!rejoined].{node: name, reason: reason, at: ended}", {"dead": [gone]})
    assert found == [{"node": gone["name"], "reason": gone["reason"], "at": gone["ended"]}]
    assert gone["reason"]


def test_a_cluster_that_is_not_there_is_data(run):
    result = run(ray_health.Answers(ray_probe.RayProbe("gcs", ray_probe.REFUSED), (), None, {}))
    assert result["healthy"] is False
    assert [problem["code"] for problem in result["problems"]] == ["gcs_refused"]
    assert result["alive"] == []


def test_a_refused_token_is_final(run):
    refused = ray_probe.RayProbe("engine", ray_probe.UNAUTHORIZED, 300.0, "AuthenticationError: InvalidAuthToken")
    result = run(ray_health.Answers(OK, (refused,), None, {}), wait=600)
    assert result["final"] is True
    assert result["waited_seconds"] < 5


def test_a_host_without_ray(run, tmp_path):
    result = run(config=str(tmp_path / "none"))
    assert result["healthy"] is False
    assert result["final"] is True
    assert "was not set up as a Ray node" in result["reason"]


def test_the_journal_comes_only_with_trouble(run, monkeypatch):
    calls = []

    def run_limited(argv, timeout):
        assert timeout == 10
        calls.append(argv)
        return 0, "the head refuses this host's token\n" + "x" * 500 + "\nRAY_AUTH_TOKEN=of-this-cluster\n", ""

    monkeypatch.setattr(ray_info, "run_limited", run_limited)
    assert "journal" not in run(captured("healthy"), journal_lines=5)
    assert calls == []
    result = run(captured("headonly"), journal_lines=5)
    assert result["journal"].splitlines()[0] == "the head refuses this host's token"
    assert len(result["journal"].splitlines()[1]) == 300
    assert result["journal"].splitlines()[2] == "RAY_AUTH_TOKEN=********"
    assert {"--unit=sparkthor-ray.service", "--lines=5"} < set(calls[0])
