# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The package that is installed on hosts is whole: nothing but what it brings and Python's own library is needed."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import location, verbs
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import onhost

from tests.unit import role_state

#: the oldest Python of hosts is 3.11 (Debian 12); where none is found here, the one that runs the tests
PYTHON = next((found for found in map(shutil.which, ("/usr/bin/python3.11", "python3.11")) if found), sys.executable)
#: modules are read by Ansible on hosts with this one or newer
OLDEST_SYNTAX = (3, 10)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the package, as on a host but below a temporary one."""
    top = tmp_path_factory.mktemp("host")
    for file in onhost.package_files():
        path = top / file["path"].lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["content"], encoding="utf-8")
    return top / location.PACKAGE.lstrip("/")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """Isolated, without site-packages, in an empty environment."""
    return subprocess.run(
        [PYTHON, "-I", "-S", "-B", *words], env={}, cwd="/", capture_output=True, text=True, check=False
    )


def test_every_module_can_be_imported(installed: Path) -> None:
    names = [
        ".".join(path.relative_to(installed.parent).with_suffix("").parts)
        for path in sorted(installed.rglob("*.py"))
        if path.name != "__main__.py"
    ]
    assert len(names) == len(onhost.sources()) - 1
    program = (
        "import importlib, sys; sys.path.insert(0, sys.argv[1]); [importlib.import_module(n) for n in sys.argv[2:]]"
    )
    done = run("-c", program, str(installed.parent), *names)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("verb", verbs.VERBS)
def test_every_program_says_what_it_does(installed: Path, verb: str) -> None:
    done = run(str(installed), verb, "--help")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.startswith(f"usage: sparkthor_host {verb} ")


def test_the_programs_are_told_where_none_is_named(installed: Path) -> None:
    for words, status in ((["--help"], 0), ([], 2), (["wathcdog"], 2)):
        done = run(str(installed), *words)
        assert done.returncode == status
        assert "ray-gate" in (done.stderr if status else done.stdout)


def test_the_gate_answers(installed: Path, tmp_path: Path) -> None:
    config = tmp_path / "ray.json"
    config.write_text('{"head_address": "127.0.0.1", "nodes": [{"address": "127.0.0.1"}], "ports": {"gcs": 1}}')
    done = run(str(installed), "ray-gate", "--config", str(config), "--timeout", "1")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("0 of 1 nodes")


def test_nothing_is_written_beside_the_package(installed: Path) -> None:
    assert not list(installed.rglob("__pycache__"))


@pytest.mark.parametrize("source", onhost.sources())
def test_the_syntax_is_that_of_the_oldest_python(source: str) -> None:
    ast.parse(onhost.sources()[source], source, feature_version=OLDEST_SYNTAX)


@pytest.mark.parametrize("source", onhost.sources())
def test_imports_are_found_as_python_finds_them(source: str) -> None:
    package = source.split("/")[:-1]
    wanted = set()
    for node in ast.walk(ast.parse(onhost.sources()[source])):
        if isinstance(node, ast.ImportFrom):
            assert "ansible" not in (node.module or ""), "on a host there is no Ansible"
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = "/".join([*package[: len(package) - node.level + 1], *(node.module or "").split(".")]).strip("/")
        named = {f"{base}.py", *(f"{base}/{alias.name}.py" for alias in node.names)}
        assert named & set(onhost.sources()), f"{source} imports what is not installed: {sorted(named)}"
        wanted |= named & set(onhost.sources())
    assert onhost.imported(source) == wanted


def test_a_program_is_made_of_what_it_imports() -> None:
    watchdog, rank = (
        {path.removeprefix(f"{location.PACKAGE}/_onhost/") for path in onhost.program_files(verb)}
        for verb in ("watchdog", "rank")
    )
    assert {"watchdog.py", "watchdog_service.py", "serving.py", "ray_probe.py"} < watchdog
    assert {"rank_group.py", "rank_head.py", "serving.py"} < rank
    assert not rank & {"watchdog.py", "watchdog_service.py"}, "its change must not restart the ranks"
    assert not watchdog & {"rank_head.py", "exporter.py"}
    installed = {file["path"] for file in onhost.package_files()}
    for verb in verbs.VERBS:
        assert set(onhost.program_files(verb)) <= installed
    with pytest.raises(KeyError):
        onhost.program_files("none")


def test_the_digest_follows_the_programs_code_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {verb: onhost.program_digest(verb) for verb in verbs.VERBS}
    assert len(set(before.values())) == len(before)
    changed = {**onhost.sources(), "_onhost/watchdog.py": "# another\n"}
    monkeypatch.setattr(onhost, "sources", lambda: changed)
    onhost.program_digest.cache_clear()
    after = {verb: onhost.program_digest(verb) for verb in verbs.VERBS}
    onhost.program_digest.cache_clear()
    assert [verb for verb in before if before[verb] != after[verb]] == ["console", "on-demand", "watchdog"]


def test_folders_come_before_what_they_hold(variables: dict[str, Any]) -> None:
    state = role_state.state("engine", **variables)
    folders = [item["path"] for item in state["directories"]]
    below = [path for path in folders if path.startswith(location.LIBRARY)]
    assert below == sorted(below, key=len)
    assert below[1] == location.PACKAGE
    assert {str(Path(file["path"]).parent) for file in state["files"]} <= set(folders)
    assert f"{location.PACKAGE}/__main__.py" in {file["path"] for file in state["files"]}
