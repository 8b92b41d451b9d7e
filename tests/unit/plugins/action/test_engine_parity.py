# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All hosts of a cluster have the same Python, Ray and vLLM."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import cluster_plan

from tests.unit.delivery import act


def parity(monkeypatch: pytest.MonkeyPatch, engines: dict[str, dict[str, Any]]) -> dict[str, Any]:
    hostvars = {host: {"ansible_facts": {"sparkthor_engine": engine}} for host, engine in engines.items()}
    hostvars["spark-09"] = {"ansible_facts": {}}
    return act(
        cluster_plan, monkeypatch, {"stage": "engine"}, [], hostvars=hostvars, ansible_play_hosts=[*engines, "spark-09"]
    )[0]


SAME = {"python": "3.12", "versions": {"ray": "2.60.0", "vllm": "0.32.0+cu130", "torch": "2.13.0"}}


def test_parity_of_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"python": "3.12", "versions": {**SAME["versions"], "vllm": "0.32.0", "transformers": "5"}}
    assert list(parity(monkeypatch, {"spark-01": SAME, "thor-01": other})["engines"]) == ["spark-01", "thor-01"]
    old = {"python": "3.11", "versions": {**SAME["versions"], "ray": "2.59.0"}}
    with pytest.raises(AnsibleActionFail) as caught:
        parity(monkeypatch, {"spark-01": SAME, "thor-01": old})
    assert "host      python  ray\nspark-01  3.12    2.60.0\nthor-01   3.11    2.59.0\n" in str(caught.value)


@pytest.mark.parametrize(
    ("by_host", "table"),
    [
        ({}, ""),
        ({"a": {"ray": "2.60.0"}, "b": {"ray": "2.60.0"}}, ""),
        # another machine's build of the same release, and a host that was not asked
        ({"a": {"torch": "2.13.0+cu130"}, "b": {"torch": "2.13.0+cpu"}, "c": {}}, ""),
        (
            {"a": {"python": "3.12.3", "ray": "2.60.0"}, "b": {"python": "3.12.3", "ray": "2.59.1"}},
            "host  ray\na     2.60.0\nb     2.59.1\n",
        ),
        ({"a": {"vllm": "0.32.0"}, "b": {}, "c": {"vllm": "absent"}}, "host  vllm\na     0.32.0\nc     absent\n"),
        (
            {"a": {"python": "3.12.3", "ray": "2.60.0"}, "b": {"torch": "1"}},
            "host  python  ray     torch\na     3.12.3  2.60.0  -\nb     -       -       1\n",
        ),
    ],
)
def test_versions_before_a_start(
    monkeypatch: pytest.MonkeyPatch, by_host: dict[str, dict[str, str]], table: str
) -> None:
    hostvars: dict[str, Any] = {host: {"__info": {"versions": versions}} for host, versions in by_host.items()}
    hostvars["skipped"] = {"__info": {"skipped": True}}
    arguments = {"stage": "engine", "nodes": "__info"}
    told: dict[str, Any] = {"hostvars": hostvars, "ansible_play_hosts": [*hostvars]}
    if table:
        with pytest.raises(AnsibleActionFail) as caught:
            act(cluster_plan, monkeypatch, arguments, [], **told)
        assert str(caught.value).startswith("Ray was not touched. All nodes of a cluster need the same Python, Ray, ")
        assert f":\n{table}Run the engine role on all hosts." in str(caught.value)
    else:
        engines = act(cluster_plan, monkeypatch, arguments, [], **told)[0]["engines"]
        assert list(engines) == [host for host, versions in by_host.items() if versions]
