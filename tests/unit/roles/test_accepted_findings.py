# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A finding that is accepted in one place stops nothing in the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLES = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists()) / "roles"


def accepted(**given: Any) -> tuple[list[str], list[str]]:
    """What preflight goes on with, and what the change of the network does."""
    loader = DataLoader()
    values: dict[str, Any] = {}
    for file in ("preflight/defaults/main.yml", "preflight/vars/main.yml", "roce_network/defaults/main.yml"):
        values.update(loader.load(trust_as_template((ROLES / file).read_text())))
    templar = Templar(loader=loader, variables={**values, **given})
    tasks = yaml.safe_load((ROLES / "preflight/tasks/main.yml").read_text())
    plans = [task["sparkthor.cluster.cluster_plan"] for task in tasks if "sparkthor.cluster.cluster_plan" in task]
    (check,) = [plan for plan in plans if plan["stage"] == "hosts"]
    return (
        sorted(templar.template(trust_as_template(check["accept"]))),
        sorted(templar.template(trust_as_template("{{ roce_network_accept }}"))),
    )


@pytest.mark.parametrize(
    ("given", "before", "change"),
    [
        ({}, [], []),
        (
            {"preflight_accept": ["parity=6.14", "runtime_address"]},
            ["parity=6.14", "runtime_address"],
            ["runtime_address"],
        ),
        ({"roce_network_accept": ["pending_edit"]}, ["pending_edit"], ["pending_edit"]),
        # as the command line and INI inventories give it; a role of its own makes a list of the other
        ({"preflight_accept": "clock, pending_edit"}, ["clock", "pending_edit"], ["pending_edit"]),
        (
            {"preflight_accept": ["clock", "pending_edit"], "roce_network_accept": ["runtime_address"]},
            ["clock", "pending_edit", "runtime_address"],
            ["runtime_address"],
        ),
    ],
)
def test_a_finding_is_accepted_once(given: dict[str, Any], before: list[str], change: list[str]) -> None:
    assert accepted(**given) == (before, change)
