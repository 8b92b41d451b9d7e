# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that status, verify and report keep on the controller, and what they gather of the hosts' variables."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import results

from tests.unit.plugins.plugin_utils._report import captured_status

HOSTS = captured_status.HOSTS


def test_a_file_is_whole_or_absent(tmp_path):
    path = tmp_path / "new" / "folder" / "a.json"
    results.save(str(path), "one", "output_file")
    results.save(str(path), "two", "output_file")
    assert path.read_text() == "two"
    assert os.listdir(path.parent) == ["a.json"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_failed_write_leaves_the_former_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    results.save(str(path), "one", "output_file")

    def refuse(_source, _target, **_folders):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(AnsibleActionFail, match=r"output_file: .*a\.json cannot be written: No space left"):
        results.save(str(path), "two", "output_file")
    assert path.read_text() == "one"
    assert os.listdir(tmp_path) == ["a.json"]


def test_the_newest_files_oldest_first_and_unreadable_ones_passed_over(tmp_path):
    for number in range(5):
        (tmp_path / f"2026010{number}.json").write_text(str(number))
    (tmp_path / "20260105.json").write_bytes(b"\xff\xfe")
    (tmp_path / "20260106.txt").write_text("no")
    (tmp_path / "20260107.json").mkdir()
    assert results.read_all(str(tmp_path), 5) == ["2", "3", "4"]
    assert results.read_all(str(tmp_path / "absent"), 5) == []


def test_the_folder_of_results():
    assert results.results_folder({"inventory_dir": "/a/b"}) == "/a/b/.results"
    assert results.results_folder({"inventory_dir": "/a/b"}, "~/x") == os.path.expanduser("~/x")


def test_only_what_the_plan_reads_is_gathered():
    everything = {
        "a": {"ansible_host": "10.0.0.1", "fabric_topology": "switch", "password": "x", "__nodes": {"status": {}}},
        "b": {"ansible_host": "10.0.0.2"},
    }
    groups = {"cluster": ["b", "a"], "ray_head": ["a"], "ray_workers": ["b"]}
    found, hostvars, outcomes = results.gather({"groups": groups, "hostvars": everything}, "__nodes")
    assert found == groups
    assert hostvars == {
        "a": {"ansible_host": "10.0.0.1", "fabric_topology": "switch"},
        "b": {"ansible_host": "10.0.0.2"},
    }
    assert outcomes == {"a": {"status": {}}, "b": {}}


def test_no_serving_plan_without_the_facts_of_every_host():
    found, why = results.serving_plan({"a": {}}, {"hosts": ["a", "b"]}, {"a": {}})
    assert (found, why) == ({}, "a host did not answer")
    assert results.decode_bound({"a": {}}, {"hosts": ["a"]}, {"a": {}}) == (None, "no vllm_serve_recipe")


GROUPS = {"cluster": ["a", "b"], "ray_head": ["a"], "ray_workers": ["b"]}
VARIABLES = {"fabric_topology": "switch", "fabric_cidr": "10.100.0.0/24"}


def test_a_cluster_of_which_nobody_answered_has_a_plan_all_the_same():
    everything = {host: {"ansible_host": f"10.0.0.{n}", **VARIABLES} for n, host in enumerate(GROUPS["cluster"], 1)}
    seen = results.see({"groups": GROUPS, "hostvars": everything}, "__nodes")
    assert (seen.facts_by_host, seen.plan_error) == ({}, "")
    assert seen.status["cluster"]["hosts"] == ["a", "b"]
    assert seen.fabric["b"]["control_address"] == "10.100.0.2"


def test_a_plan_that_cannot_be_made_is_said_and_groups_that_make_no_sense_are_an_error():
    everything = {host: {"ansible_host": host, **VARIABLES, "fabric_cidr": "10.0.0.1/24"} for host in ("a", "b")}
    seen = results.see({"groups": GROUPS, "hostvars": everything}, "__nodes")
    assert seen.fabric == {}
    assert "host bits are set" in seen.plan_error
    with pytest.raises(AnsibleActionFail, match="ray_head"):
        results.see({"groups": {"cluster": ["a", "b"]}, "hostvars": everything}, "__nodes")


def test_a_document_is_saved_as_json_and_the_variable_named_where_that_fails(tmp_path):
    path = results.save(str(tmp_path / "new" / "a.json"), {"a": 1}, "output_file")
    assert json.loads((tmp_path / "new" / "a.json").read_text()) == {"a": 1}
    assert path == str(tmp_path / "new" / "a.json")
    with pytest.raises(AnsibleActionFail, match=rf"output_file: {path}/b cannot be written: "):
        results.save(f"{path}/b", "text", "output_file")


# -- a group beside a head's own one -----------------------------------------------------------------------------------

EMBED = {"host": HOSTS[0], "vllm_serve_recipe": "qwen3-embedding-0.6b", "vllm_serve_max_model_len": 8192}


def seen_of(group: str, there: bool = True, **beside: Any) -> results.Seen:
    """What is seen of three hosts that serve a big model, with one beside it on the first of them."""
    everything: dict[str, Any] = {}
    for host, variables in captured_status.variables().items():
        status = captured_status.status_of(host)
        serving = {**status["serving"], "tls": True, "certificate": "AB"}
        if host == HOSTS[0]:
            serving["options"] = {"gpu-memory-utilization": "0.8"}
            small = {**serving, "model": "embed-model", "options": {"kv-cache-memory-bytes": "1024"}}
            serving.update({"beside": {"embed": small}} if there else {})
        given = {"serving_groups": ["big"], "serving_beside": {"embed": {**EMBED, **beside}}}
        everything[host] = {**variables, **given, "__nodes": {"status": {**status, "serving": serving}}}
    groups = {**captured_status.GROUPS, "big": HOSTS}
    return results.see({"groups": groups, "hostvars": everything, "serving_group": group}, "__nodes")


def test_a_group_beside_another_is_chosen_by_its_name() -> None:
    seen = seen_of("embed")
    assert (seen.cluster["group"], seen.cluster["hosts"]) == ("embed", HOSTS[:1])
    assert seen.cluster["given"]["vllm_serve_recipe"] == "qwen3-embedding-0.6b"
    assert seen.status["serving"]["model"] == "embed-model"
    there = results.served(seen.facts_by_host[HOSTS[0]], seen.cluster)
    assert (there["model"], there["tls"], there["certificate"]) == ("embed-model", True, "AB")
    assert results.told(seen) == {"kv-cache-memory-bytes": 1024}
    big = seen_of("big")
    assert (big.cluster["hosts"], big.status["serving"]["model"]) == (HOSTS, "tiny")
    assert results.served(big.facts_by_host[HOSTS[0]], big.cluster)["model"] == "tiny"
    assert results.told(big) == {"gpu-memory-utilization": 0.8}
    # the memory of a host that one group has for itself is planned by the recipe
    assert results.told(seen_of("big", there=False)) == {}


def test_a_group_that_is_not_there_or_cannot_be_is_said() -> None:
    with pytest.raises(AnsibleActionFail, match="serving_group: 'embde' is not one of big, embed; name one"):
        seen_of("embde")
    with pytest.raises(AnsibleActionFail, match=r"serving_group: embed is not on spark-01, .*; run site\.yml"):
        seen_of("embed", there=False)
    with pytest.raises(AnsibleActionFail, match="c is not the head of a serving group"):
        seen_of("embed", host="c")


def test_a_group_of_a_cluster_without_groups_is_refused() -> None:
    everything = {
        host: {**variables, "__nodes": {"status": captured_status.status_of(host)}}
        for host, variables in captured_status.variables().items()
    }
    given = {"groups": captured_status.GROUPS, "hostvars": everything}
    with pytest.raises(AnsibleActionFail, match="serving_group: 'a': no groups are declared; leave it out"):
        results.see({**given, "serving_group": "a"}, "__nodes")
    assert results.see(given, "__nodes").cluster["hosts"] == HOSTS


def test_its_plan_is_made_of_its_own_variables() -> None:
    seen = seen_of("embed")
    nodes = {host: facts["node"] for host, facts in seen.facts_by_host.items()}
    everything = {HOSTS[0]: {"vllm_serve_recipe": "qwen3.5-397b-a17b-nvfp4", **VARIABLES}}
    alone, why = results.serving_plan(everything, seen.cluster, nodes)
    assert (alone["served_model_name"], why) == ("qwen3-embedding-0.6b", "")
    shared, _why = results.serving_plan(everything, seen.cluster, nodes, {"gpu-memory-utilization": 0.05})
    assert shared["args"]["gpu-memory-utilization"] == 0.05 != alone["args"].get("gpu-memory-utilization")


def test_results_of_other_groups_are_left_out() -> None:
    runs = [{"n": 1}, {"n": 2, "group": "big"}, {"n": 3, "group": "embed"}, {"n": 4, "group": ""}]
    chosen = {group: [run["n"] for run in results.runs_of_group(runs, {"group": group})] for group in ("big", "embed")}
    assert chosen == {"big": [1, 2], "embed": [1, 3]}
    assert [run["n"] for run in results.runs_of_group(runs, {"head": "a"})] == [1, 4]
    assert results.runs_of_group(runs, {}) == runs
