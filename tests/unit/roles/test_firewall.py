# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that is found by multicast DNS can still be found when the firewall is up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = (
    next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists()) / "roles/firewall"
)


@pytest.mark.parametrize(
    ("given", "open_"),
    [
        ({}, False),
        ({"ansible_host": "192.168.1.11"}, False),
        ({"ansible_host": "spark-1a2b.local"}, True),
        ({"ansible_host": "spark-1a2b.Local."}, True),
        ({"ansible_host": "spark.local.example.org"}, False),
        ({"ansible_host": "local"}, False),
        ({"inventory_hostname": "spark-1a2b.local"}, True),
        ({"inventory_hostname": "spark-1a2b.local", "ansible_host": "192.168.1.11"}, False),
        ({"ansible_host": "spark-1a2b.local", "firewall_mdns": False}, False),
    ],
)
def test_multicast_dns_is_let_in_where_it_is_the_way_in(given: dict[str, Any], open_: bool) -> None:
    loader = DataLoader()
    values: dict[str, Any] = {"inventory_hostname": "spark-01"}
    values.update(loader.load(trust_as_template((ROLE / "defaults/main.yml").read_text())))
    templar = Templar(loader=loader, variables={**values, **given})
    assert templar.template(trust_as_template("{{ firewall_mdns }}")) is open_
