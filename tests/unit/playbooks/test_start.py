# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the playbooks start that end a stop."""

from __future__ import annotations

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import lookup_loader
from ansible.template import Templar, trust_as_template
from ansible_collections.sparkthor.cluster.plugins.lookup import role_value

from tests.unit.playbooks.test_serve_again import tasks


@pytest.mark.parametrize("playbook", ["start", "restart", "rollback"])
@pytest.mark.parametrize(
    ("variables", "started"),
    [({}, True), ({"vllm_serve_executor": "ray"}, True), ({"vllm_serve_executor": "mp"}, False)],
)
def test_ray_is_started_where_the_executor_is_ray(
    monkeypatch: pytest.MonkeyPatch, playbook: str, variables: dict[str, str], started: bool
) -> None:
    """A cluster that was switched to mp still has Ray's unit on disk."""
    # without Ansible's importer of collections, which would stay for all other tests
    monkeypatch.setattr(lookup_loader, "get", lambda name, **given: role_value.LookupModule(**given))
    found = [task["when"] for _hosts, task in tasks(playbook) if "sparkthor-ray.service" in str(task)]
    for host in ("a", "b"):
        given = {**variables, "groups": {"ray_head": ["a"]}, "inventory_hostname": host}
        templar = Templar(loader=DataLoader(), variables=given)
        whole = [when if isinstance(when, list) else [when] for when in found]
        held = [all(templar.evaluate_conditional(trust_as_template(one)) for one in when) for when in whole]
        assert held.count(True) == int(started)
