# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible_collections.sparkthor.cluster.plugins.action import node_info
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import clock as _clock

from tests.unit.clock import Clock


@pytest.mark.parametrize(
    ("clock", "offset"), [(99.0, -1.0), (100.0, 0.0), (101.5, 0.0), (102.0, 0.0), (162.5, 60.5), (0.0, -100.0)]
)
def test_only_what_the_call_cannot_explain_counts(clock: float, offset: float) -> None:
    assert _clock.offset(clock, 100.0, 102.0) == offset


@pytest.mark.parametrize(
    ("answer", "offset"),
    [({"ansible_facts": {"sparkthor_node": {"clock": 3600.0}}}, 3600.0), ({"failed": True, "msg": "no python"}, None)],
)
def test_the_facts_say_how_far_it_is_off(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, answer: dict[str, Any], offset: float | None
) -> None:
    monkeypatch.setattr(node_info, "time", clock)
    monkeypatch.setattr(_clock, "time", clock)
    task = MagicMock(async_val=0, check_mode=False, diff=False, args={})
    action = node_info.ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    monkeypatch.setattr(action, "_execute_module", lambda **_given: answer, raising=False)
    node = action.run().get("ansible_facts", {}).get("sparkthor_node", {})
    assert node.get("clock_offset") == offset
