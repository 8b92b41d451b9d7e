# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbooks start that end a stop."""

from __future__ import annotations

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.playbooks.test_serve_again import tasks


@pytest.mark.parametrize("playbook", ["start", "restart", "rollback"])
@pytest.mark.parametrize(
    ("variables", "started"),
    [({}, True), ({"vllm_serve_executor": "ray"}, True), ({"vllm_serve_executor": "mp"}, False)],
)
def test_ray_is_started_where_the_executor_is_ray(playbook: str, variables: dict[str, str], started: bool) -> None:
    """A cluster that was switched to mp still has Ray's unit on disk."""
    found = [task["when"] for _hosts, task in tasks(playbook) if "sparkthor-ray.service" in str(task)]
    for host in ("a", "b"):
        given = {**variables, "groups": {"ray_head": ["a"]}, "inventory_hostname": host}
        templar = Templar(loader=DataLoader(), variables=given)
        assert [templar.evaluate_conditional(trust_as_template(when)) for when in found].count(True) == int(started)
