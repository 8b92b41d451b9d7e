# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of an engine's options: where it is kept, when it is asked for again, what is wrong by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import option_tables
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_args

TABLE = {"schema": 2, "vllm": "0.32.0", "options": {}, "value_lists": {}}


def test_each_engine_has_a_file_of_its_own_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = Path(option_tables.kept("sha256:ab/../c", "/inventory", "a"))
    assert path.name == "sha256_ab_.._c.json"
    assert path.parent.parent.name == "vllm_options"
    assert tmp_path in path.parents
    assert option_tables.kept("other", "/inventory", "a") != str(path)
    assert option_tables.kept("", "/inventory", "a") == ""
    assert len(Path(option_tables.kept("x" * 5000, "/inventory", "a")).name) < 200


def test_what_one_host_tells_is_no_other_hosts_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    places = {option_tables.kept("abc", *told_by) for told_by in (("/one", "a"), ("/one", "b"), ("/two", "a"))}
    assert len(places) == 3


def test_a_table_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(TABLE))
    assert option_tables.read(str(path)) == TABLE


@pytest.mark.parametrize(
    "text", ["", '{"schema": 1, "opt', json.dumps({**TABLE, "schema": 1}), json.dumps({**TABLE, "schema": 3}), "[]"]
)
def test_a_table_that_is_cut_short_or_of_another_schema_is_asked_for_again(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)
    assert option_tables.read(str(path)) is None


def test_without_a_file_there_is_no_table(tmp_path: Path) -> None:
    assert option_tables.read("") is None
    assert option_tables.read(str(tmp_path / "absent.json")) is None


def test_arguments_and_environment_are_judged_together() -> None:
    arguments = {"max-num-seq": 4}
    problems = option_tables.problems({"arguments": arguments, "environment": {"HF_TOKEN": "s3cret"}}, TABLE)
    assert {"max-num-seq", "HF_TOKEN"} <= {problem.where for problem in problems}
    assert "s3cret" not in str(problems)
    without = option_tables.problems({"arguments": arguments}, TABLE)
    assert [problem for problem in problems if problem.where != "HF_TOKEN"] == without


def test_what_is_acknowledged_is_let_through() -> None:
    table, _exact = vllm_args.find_table("0.32.0")
    given = {"arguments": {"trust-remote-code": True}}
    assert "trust-remote-code" in {problem.where for problem in option_tables.problems(given, table)}
    acknowledged = {**given, "acknowledged": ["trust-remote-code"]}
    assert "trust-remote-code" not in {problem.where for problem in option_tables.problems(acknowledged, table)}
