# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.systemd import down, parse_show


def test_a_block_for_each_unit() -> None:
    text = "Id=a.service\nEnvironment=X=1 Y=2\nnone\n\nId=b.service\nResult=\n\n\n"
    assert parse_show(text) == [
        {"Id": "a.service", "Environment": "X=1 Y=2"},
        {"Id": "b.service", "Result": ""},
    ]
    assert parse_show("\n") == []


@pytest.mark.parametrize(
    ("active", "sub", "enabled", "restarts", "told"),
    [
        ("active", "running", "enabled", 9, False),
        ("failed", "failed", "enabled", 0, True),
        ("inactive", "dead", "static", 0, True),
        ("inactive", "dead", "disabled", 0, False),
        ("activating", "start-pre", "enabled", 2, False),
        ("activating", "start-pre", "enabled", 3, True),
        ("activating", "auto-restart", "enabled", 0, True),
    ],
)
def test_a_unit_that_should_run(active: str, sub: str, enabled: str, restarts: int, told: bool) -> None:
    assert bool(down(active, sub, enabled, "exit-code", restarts)) is told
