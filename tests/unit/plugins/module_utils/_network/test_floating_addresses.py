# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import floating_addresses

GIVEN = "10.83.0.100/24"


@pytest.mark.parametrize(
    ("given", "declared", "known"),
    [
        ([], None, set()),
        ([""], {}, set()),
        ([GIVEN], None, {"10.83.0.100"}),
        ([GIVEN], {"virtual_address": "10.83.0.100"}, {"10.83.0.100"}),
        # the inventory has another one by now, and keepalived has the former one still
        ([GIVEN], {"virtual_address": "10.83.0.99"}, {"10.83.0.99", "10.83.0.100"}),
        # a teardown whose inventory has lost it
        ([""], {"virtual_address": "10.83.0.99"}, {"10.83.0.99"}),
    ],
)
def test_known_are_those_of_the_inventory_and_of_the_host(
    tmp_path: Path, given: list[str], declared: dict[str, Any] | None, known: set[str]
) -> None:
    path = tmp_path / "cluster.json"
    if declared is not None:
        path.write_text(json.dumps(declared))
    assert floating_addresses.known(given, str(path)) == known
