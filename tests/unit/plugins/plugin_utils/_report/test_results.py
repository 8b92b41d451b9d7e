# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that status, verify and report keep on the controller, and what they gather of the hosts' variables."""

from __future__ import annotations

import json
import os

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import results


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
