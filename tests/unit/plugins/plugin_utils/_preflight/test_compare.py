# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of comparing first: what is asked of a host, and when nothing is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import option_tables
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import compare

NODE = {"python": {"version": "3.12.3"}, "arch": "aarch64", "glibc": "2.39", "kind": "spark"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def prepare(calls: list[tuple[str, dict[str, Any]]], **variables: Any) -> list[dict[str, Any]]:
    known = {"inventory_hostname": "a", "ansible_facts": {"sparkthor_node": NODE}, **variables}
    return compare.prepare("role", calls, known)


def test_arguments_go_as_they_are() -> None:
    assert prepare([("host_state", {"files": []}), ("vllm_service", {})]) == [
        {"role": "role", "module": "host_state", "arguments": {"files": []}},
        {"role": "role", "module": "vllm_service", "arguments": {}},
    ]


def test_a_role_that_wants_nothing_is_converged() -> None:
    assert prepare([]) == [{"role": "role"}]


@pytest.fixture
def engine(locked_wheels: dict[str, str]) -> dict[str, Any]:
    """Arguments of the role's task."""
    given = {"path": "/opt/venv", "calls": [], **locked_wheels}
    return {**given, "python": "/usr/bin/python3", "verify": "fast", "download": True}


def test_the_engine_that_is_wanted_is_a_fact_for_the_roles_after_it(engine: dict[str, Any]) -> None:
    variables: dict[str, Any] = {"ansible_facts": {"sparkthor_node": NODE}}
    (comparison,) = compare.prepare("engine", [("engine_venv", engine)], variables)
    target = comparison["arguments"]["target"]
    assert (target["python"], target["kind"], "manifest" in target) == ("3.12", "spark", False)
    fact = variables["ansible_facts"]["sparkthor_engine"]
    assert (fact["path"], fact["digest"]) == ("/opt/venv", target["digest"])
    assert fact["versions"]["vllm"] == "0.32.0"
    assert variables["ansible_facts"]["sparkthor_node"] is NODE


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"verify": "full"}, "every file"),
        ({"python": "/opt/python3.13/bin/python3"}, "asked on the host"),
        ({"wheel_dir": "/nonexistent"}, "wheels are missing"),
    ],
)
def test_an_engine_that_takes_more_than_reading(engine: dict[str, Any], change: dict[str, str], words: str) -> None:
    with pytest.raises(compare.Unknown, match=words):
        prepare([("engine_venv", {**engine, **change})])


def test_an_image_takes_docker(engine: dict[str, Any]) -> None:
    with pytest.raises(compare.Unknown, match="Docker has to be asked"):
        prepare([("engine_image", engine)])


def store(source: str, **more: str) -> list[tuple[str, dict[str, Any]]]:
    arguments = {"root": "/models", "deliver": "fabric", "verify": "fast"}
    return [("model_copy", {**arguments, "models": [{"name": "m", "source": source, **more}]})]


def test_models_are_declared_by_their_contents(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (comparison,) = prepare(store(str(tmp_path)))
    assert set(comparison["arguments"]) == {"root", "models"}
    (model,) = comparison["arguments"]["models"]
    assert [row[:2] for row in model["manifest"]] == [["config.json", 2]]


@pytest.mark.parametrize(
    ("comparisons", "words"),
    [
        (store("owner/model"), "branch may have moved"),
        (store("owner/model", revision="main"), "branch may have moved"),
        (store("s3://bucket/model"), "to be fetched: m"),
    ],
)
def test_models_that_take_more_than_reading(comparisons: list[tuple[str, dict[str, Any]]], words: str) -> None:
    with pytest.raises(compare.Unknown, match=words):
        prepare(comparisons)


def test_arguments_of_the_engine_are_checked_on_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = ("vllm_options", {"engine": "abc", "arguments": {"model": "m"}})
    with pytest.raises(compare.Unknown, match="not known"):
        prepare([comparison])
    monkeypatch.setattr(option_tables, "read", lambda path: {"vllm": "0.32.0"})
    found: list[str] = []
    monkeypatch.setattr(option_tables, "problems", lambda arguments, table: found)
    assert prepare([comparison]) == [{"role": "role"}]
    found.append("a warning that the role gives")
    with pytest.raises(compare.Unknown, match="something to say"):
        prepare([comparison])


def results(**converged: list[str]) -> dict[str, dict[str, Any]]:
    return {host: {"converged": roles} for host, roles in converged.items()}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (results(one=["a", "b", "c"], two=["a", "b", "c"]), ["a", "b", "c"]),
        (results(one=["a", "b", "c"], two=["a"]), ["a"]),
        (results(one=["a", "b", "c"], two=["a", "c"]), ["a"]),
        (results(one=["b", "c"], two=["a", "b", "c"]), []),
        ({"one": {"converged": ["a"]}, "two": {}}, []),
        ({}, []),
    ],
)
def test_a_role_is_converged_if_it_and_all_before_it_are_so_everywhere(
    found: dict[str, dict[str, Any]], expected: list[str]
) -> None:
    assert compare.converged_everywhere(["a", "b", "c"], found) == expected


def test_engines_that_do_not_fit_together_are_not_converged() -> None:
    def engine(ray: str) -> dict[str, Any]:
        fact = {"python": "3.12", "versions": {"ray": ray, "cupy": ray}}
        return {"converged": ["engine", "ray_node"], "ansible_facts": {"sparkthor_engine": fact}}

    wanted = ["engine", "ray_node"]
    assert compare.converged_everywhere(wanted, {"one": engine("2.60.0"), "two": engine("2.60.0+cu13")}) == wanted
    assert compare.converged_everywhere(wanted, {"one": engine("2.60.0"), "two": engine("2.61.0")}) == []
