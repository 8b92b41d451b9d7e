# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbooks start that end a stop."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())


@pytest.mark.parametrize("playbook", ["start", "restart", "rollback"])
@pytest.mark.parametrize(
    ("variables", "started"),
    [({}, True), ({"vllm_serve_executor": "ray"}, True), ({"vllm_serve_executor": "mp"}, False)],
)
def test_ray_is_started_where_the_executor_is_ray(playbook: str, variables: dict[str, str], started: bool) -> None:
    """A cluster that was switched to mp still has Ray's unit on disk."""
    plays = yaml.safe_load((TOP / f"playbooks/{playbook}.yml").read_text(encoding="utf-8"))
    (task,) = (task for play in plays for task in play["tasks"] if "sparkthor-ray.service" in str(task))
    templar = Templar(loader=DataLoader(), variables=variables)
    assert templar.evaluate_conditional(trust_as_template(task["when"])) is started
