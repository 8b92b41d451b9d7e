# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the doctor names of reports that no rule was written after, or says why it names nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import Case
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.checks import CHECKS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.diagnosis import Log, diagnose
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.logs import load_rules

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
REPORTS = yaml.safe_load((TOP / "tests/fixtures/doctor/reports.yml").read_text(encoding="utf-8"))
PAGE = (TOP / "docs/developers.md").read_text(encoding="utf-8")
RULES = load_rules(CHECKS)


@pytest.mark.parametrize("report", [pytest.param(report, id=report["source"][19:]) for report in REPORTS])
def test_a_report_is_named_or_argued_and_stands_on_the_page(report: dict[str, Any]) -> None:
    found, notes = diagnose(RULES, CHECKS, Case(hosts=[], logs_only=True), [Log("a", "log", report["text"])], "", False)
    assert notes == []
    assert [finding.rule.id for finding in found] == report["now"]
    assert report["now"] or report["why"]
    name = report["source"].removeprefix("https://github.com/").replace("/issues/", "#").replace("/pull/", "#")
    [row] = [line for line in PAGE.splitlines() if line.startswith(f"| {name} |")]
    before, now = row.strip("| ").split(" | ")[2:]
    assert before == (", ".join(f"`{rule}`" for rule in report["before"]) or "nothing")
    assert now == (", ".join(f"`{rule}`" for rule in report["now"]) or f"nothing: {report['why']}")


def test_they_are_thirty_of_different_threads() -> None:
    assert len({report["source"] for report in REPORTS}) >= 30
