# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which scenario was green at which commit, and which of them is older than its code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import test_full

TOP = Path(__file__).parents[3]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two scenarios, which pass unless a file says otherwise."""
    for path, text in {
        test_full.PAGE: "# Scenarios\n\nWords.\n\n| scenario | last green at | seconds |\n|---|---|---|\n",
        "molecule/one/molecule.yml": "scenario: {}\n",
        "molecule/two/molecule.yml": "ansible: {env: {SPARKLAB_TESTS: one/test_short.py}}\n",
        "tests/integration/one/test_short.py": "",
        "plugins/code.py": "",
        "roles/README.md": "",
        ".gitignore": ".lab\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(test_full, "TOP", tmp_path)
    monkeypatch.setattr(test_full, "CHAOS", ())
    monkeypatch.setattr(test_full, "run", lambda name, folder: {"rc": int((tmp_path / name).exists()), "seconds": 7})
    test_full.git("init", "--quiet")
    commit(tmp_path)
    return tmp_path


def commit(folder: Path) -> str:
    test_full.git("add", "--all")
    test_full.git("-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "--quiet", "--message=x")
    return test_full.git("rev-parse", "--short=8", "HEAD")


def full(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    monkeypatch.setattr(sys, "argv", ["test-full", *words])
    test_full.main()
    return capsys.readouterr().out.splitlines()


def test_the_page_has_every_scenario() -> None:
    text = (TOP / test_full.PAGE).read_text()
    rows = text.partition("|---|---|---|\n")[2].splitlines()
    assert [line.split("|")[1].strip() for line in rows] == list(test_full.commands())


def test_what_every_scenario_covers_is_there() -> None:
    known = subprocess.run(["git", "ls-files"], cwd=TOP, capture_output=True, text=True, check=True).stdout.splitlines()
    for path in {path for name in test_full.commands() for path in test_full.covers(name)}:
        assert path.startswith(":!") or any(one.startswith(f"{path}/") or Path(one).match(path) for one in known), path


def test_a_green_run_is_kept_with_its_commit_and_its_seconds(checkout, monkeypatch, capsys) -> None:
    (checkout / "two").touch()
    head = test_full.git("rev-parse", "--short=8", "HEAD")
    said = full(monkeypatch, capsys)
    assert said[-3:] == ["1 passed, 1 failed", "older than their code:", "  two: never green"]
    assert test_full.read_page() == {"one": (head, 7)}
    assert (checkout / test_full.PAGE).read_text() == (
        "# Scenarios\n\nWords.\n\n| scenario | last green at | seconds |\n|---|---|---|\n"
        f"| one | `{head}` | 7 |\n| two | never | |\n"
    )
    # the page itself is no code: it is committed, and what is green is not run again
    (checkout / "two").unlink()
    commit(checkout)
    said = full(monkeypatch, capsys)
    assert said[0].endswith(f"was green at {head}, and its code is the same")
    assert said[-1] == "  none"
    assert full(monkeypatch, capsys, "--again", "one")[0].startswith("one              running")


def test_a_scenario_whose_code_changed_is_older(checkout, monkeypatch, capsys) -> None:
    full(monkeypatch, capsys)
    head = test_full.read_page()["one"].commit
    (checkout / "roles/README.md").write_text("words for people")
    assert test_full.older() == []
    (checkout / "tests/integration/one/test_short.py").write_text("pass")
    said = full(monkeypatch, capsys, "--older")
    words = f"green at {head}, and 1 of its files changed since (tests/integration/one/test_short.py first)"
    assert said == [f"one: {words}", f"two: {words}"]
    # of what is in no commit nobody could say later what it was
    full(monkeypatch, capsys, "two")
    assert test_full.read_page()["two"].commit == head
    after = commit(checkout)
    full(monkeypatch, capsys, "two")
    assert test_full.read_page()["two"].commit == after
    assert test_full.older() == [f"one: {words}"]


def test_a_commit_that_is_gone_proves_nothing(checkout) -> None:
    test_full.write_page({"one": test_full.Green("0" * 8, 3)})
    assert test_full.older()[0] == "one: green at 00000000, which this repository does not have"


def test_nothing_of_a_scenario_goes_on_beside_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes too long was ended alone, and what it had started lost its lab when the scenario ran again."""
    script = "setsid bash -c 'trap \"\" TERM; echo $$ > inner; sleep 60; sleep 60' & wait"
    monkeypatch.setattr(test_full, "TOP", tmp_path)
    monkeypatch.setattr(test_full, "commands", lambda: {"one": ["bash", "-c", script]})
    monkeypatch.setattr(test_full, "LIMIT_SECONDS", 1)
    monkeypatch.setattr(test_full, "PATIENCE", 0.3)
    found = test_full.run("one", tmp_path)
    assert found["rc"] == 124
    assert int((tmp_path / "inner").read_text()) not in test_full.processes()
