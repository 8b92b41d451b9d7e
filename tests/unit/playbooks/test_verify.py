# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long verify.yml waits for what it asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())


@pytest.mark.parametrize(("given", "times"), [({}, 1), ({"verify_seconds": "0.2"}, 1), ({"verify_seconds": "30"}, 30)])
def test_longer_measurements_of_links_have_a_longer_limit(given: dict[str, Any], times: int) -> None:
    """An agent that ends, or a task that is given up, while the user's own seconds are measured looks like a fault."""
    [_inventory, play] = yaml.safe_load((TOP / "playbooks/verify.yml").read_text(encoding="utf-8"))
    tasks = {task["name"]: task for task in play["tasks"]}
    templar = Templar(loader=DataLoader(), variables={**given, "__verify": {"plan": {"reached": ["a", "b", "c"]}}})

    def value(text: str) -> float:
        return float(templar.template(trust_as_template(text)))

    assert value(tasks["Measure every link"]["timeout"]) == 240 * times
    assert (
        value(tasks["Start the measurement agents"]["sparkthor.cluster.cluster_verify"]["seconds"]) == 60 + 90 * times
    )
