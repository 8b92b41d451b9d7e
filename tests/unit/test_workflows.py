# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forge's workflows call what the Makefile has, and all of it; their schema is checked by ``make lint``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tools import turn

TOP = Path(__file__).resolve().parents[2]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (TOP / ".github/workflows").glob("*.yml")}
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (TOP / "Makefile").read_text(), re.MULTILINE))


def jobs() -> list[tuple[str, str, dict[str, Any]]]:
    return [(name, job, found) for name, whole in WORKFLOWS.items() for job, found in whole["jobs"].items()]


def commands() -> list[str]:
    return [step["run"] for _name, _job, job in jobs() for step in job["steps"] if "run" in step]


def test_every_make_target_of_a_workflow_exists() -> None:
    called = {target for command in commands() for target in re.findall(r"\bmake ([a-z-]+)", command)}
    assert {"lint", "docs", "matrix", "molecule", "installed", "release"} <= called
    assert called <= TARGETS


def of_make_test() -> list[str]:
    listed = re.search(r'^CI_SCENARIOS="([^"]*)"', (TOP / "tools/test.sh").read_text(), re.MULTILINE)
    assert listed
    return listed[1].split()


def test_the_forge_runs_the_stages_of_make_test() -> None:
    """Each stage is a target of the same name; the matrix runs three of them with each ansible-core."""
    whole = (TOP / "tools/test.sh").read_text().partition("\n  all)")[2].partition("\n    ;;")[0]
    stages = set(re.findall(r"\b(lint|docs|sanity|unit|border|nginx|scenario)\b", re.sub(r"#.*", "", whole)))
    called = {target for command in commands() for target in re.findall(r"\bmake ([a-z-]+)", command)}
    of_matrix = set(re.findall(r'^  stage "\$core" (\w+)', (TOP / "tools/matrix.sh").read_text(), re.MULTILINE))
    assert {"unit", "border", "sanity"} <= of_matrix
    assert stages == {"lint", "docs", "nginx", "scenario"} | {"unit", "border", "sanity"}
    assert {"lint", "docs", "nginx", "molecule", "matrix"} <= called


def test_the_lab_runs_the_scenarios_of_make_test() -> None:
    assert WORKFLOWS["ci"]["jobs"]["lab"]["strategy"]["matrix"]["scenario"] == of_make_test()


def test_every_other_scenario_runs_each_night_and_has_its_turn() -> None:
    others = {path.parent.name for path in TOP.glob("molecule/*/molecule.yml")} - set(of_make_test())
    assert set(WORKFLOWS["nightly"]["jobs"]["lab"]["strategy"]["matrix"]["scenario"]) == others
    in_turn = [name for line in turn.TURNS for name in line]
    assert sorted([*in_turn, *turn.NIGHTLY]) == sorted(others)
    assert len(turn.TURNS) <= 12


def test_each_turn_comes_within_a_dozen_commits() -> None:
    for begin in (0, 7, 1000):
        assert {turn.turn(begin + count) for count in range(12)} == set(turn.TURNS)


def test_the_matrix_has_every_supported_core_and_the_next_one() -> None:
    listed = re.search(r"SPARKTHOR_CORES:-([^}]*)}", (TOP / "tools/matrix.sh").read_text())
    assert listed
    cores = WORKFLOWS["ci"]["jobs"]["matrix"]["strategy"]["matrix"]["core"]
    assert cores == [*listed[1].split(), "devel"]


def test_every_job_ends_and_asks_for_no_more_than_it_needs() -> None:
    for name, job, found in jobs():
        assert 0 < found["timeout-minutes"] <= (350 if name == "nightly" else 60), f"{name}: {job}"
        assert WORKFLOWS[name]["permissions"] == {"contents": "read"}, name
