# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The forge's workflows call what the Makefile has, and all of it; their schema is checked by ``make lint``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

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


def test_the_lab_runs_the_scenarios_of_make_test() -> None:
    listed = re.search(r'^CI_SCENARIOS="([^"]*)"', (TOP / "tools/test.sh").read_text(), re.MULTILINE)
    assert listed
    assert WORKFLOWS["ci"]["jobs"]["lab"]["strategy"]["matrix"]["scenario"] == listed[1].split()


def test_the_matrix_has_every_supported_core_and_the_next_one() -> None:
    listed = re.search(r"SPARKTHOR_CORES:-([^}]*)}", (TOP / "tools/matrix.sh").read_text())
    assert listed
    cores = WORKFLOWS["ci"]["jobs"]["matrix"]["strategy"]["matrix"]["core"]
    assert cores == [*listed[1].split(), "devel"]


def test_every_job_ends_and_asks_for_no_more_than_it_needs() -> None:
    for name, job, found in jobs():
        assert 0 < found["timeout-minutes"] <= 60, f"{name}: {job}"
        assert WORKFLOWS[name]["permissions"] == {"contents": "read"}, name
