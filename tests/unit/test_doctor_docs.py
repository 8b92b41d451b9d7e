# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/developers.md says what the rules are, and which of them covers what the guides warn of."""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.checks import CHECKS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.logs import load_rules

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
TEXT = (TOP / "docs" / "developers.md").read_text()
RULES = {rule.id: rule for rule in load_rules(CHECKS)}


def rows(heading: str) -> list[list[str]]:
    section = TEXT.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_warning_of_a_guide_has_rules_that_exist() -> None:
    table = rows("What the guides warn of")
    assert len({row[0] for row in table}) == 5
    for guide, entry, names in table:
        found = re.findall(r"`([a-z0-9-]+)`", names)
        assert found, (guide, entry)
        assert set(found) <= set(RULES), (guide, entry)


def test_the_list_of_rules_is_that_of_the_rules() -> None:
    listed = {row[0].strip("`"): tuple(row[1:]) for row in rows("Rules")}
    seen = {
        name: " and ".join([*(["check"] if rule.check else []), *(["log"] if rule.log else [])])
        for name, rule in RULES.items()
    }
    assert listed == {name: (rule.area, rule.severity, rule.title, seen[name]) for name, rule in RULES.items()}
    assert f"judges by {len(RULES)} rules" in TEXT.replace("\n", " ")
