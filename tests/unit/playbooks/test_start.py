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
@pytest.mark.parametrize(("executor", "started"), [("ray", True), ("mp", False)])
def test_ray_is_started_where_it_starts_the_ranks_now(playbook: str, executor: str, started: bool) -> None:
    """A cluster that was switched to mp has Ray's unit on disk, and the inventory may say something else by now."""
    found = [task["when"] for _hosts, task in tasks(playbook) if "sparkthor-ray.service" in str(task)]
    for host in ("a", "b"):
        said = {name: {"executor": executor} for name in ("__kept", "__roll_back_kept")}
        given = {**said, "groups": {"ray_head": ["a"]}, "inventory_hostname": host}
        templar = Templar(loader=DataLoader(), variables=given)
        whole = [when if isinstance(when, list) else [when] for when in found]
        held = [all(templar.evaluate_conditional(trust_as_template(one)) for one in when) for when in whole]
        assert held.count(True) == int(started)
