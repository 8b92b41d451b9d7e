# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible_collections.sparkthor.cluster.plugins.action import evidence_info

from tests.unit.clock import Clock


def test_evidence_is_stamped_with_the_controllers_clock(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(evidence_info, "time", clock)
    task = MagicMock(async_val=0, check_mode=False, diff=False, args={"since": "-1d"})
    action = evidence_info.ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())

    def answer(module_args: dict[str, Any], **_given: Any) -> dict[str, Any]:
        assert module_args == {"since": "-1d"}
        clock.now += 2
        return {"changed": False, "evidence": {"started": 1.0}}

    monkeypatch.setattr(action, "_execute_module", answer, raising=False)
    result = action.run()
    assert result["after"] - result["before"] == 2
    assert (result["changed"], result["evidence"]) == (False, {"started": 1.0})
