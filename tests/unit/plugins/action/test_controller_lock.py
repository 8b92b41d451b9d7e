# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What becomes of the lock where the head does not answer; taking it is in the tests of module_utils."""

from __future__ import annotations

import types
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible_collections.sparkthor.cluster.plugins.action import controller_lock


def locking(monkeypatch: pytest.MonkeyPatch, error: AnsibleError, ignored: bool) -> dict[str, Any]:
    def execute(*_arguments: Any) -> dict[str, Any]:
        raise error

    def keep(*_arguments: Any) -> None:
        raise AssertionError("nothing was locked")

    action = controller_lock.ActionModule.__new__(controller_lock.ActionModule)
    action.vars = {"ansible_play_name": "Tear down"}
    action._task = types.SimpleNamespace(ignore_unreachable=ignored, check_mode=False)
    monkeypatch.setattr(action, "execute", execute)
    monkeypatch.setattr(controller_lock.keeper, "keep", keep)
    return action.act({})


def test_a_head_that_is_away_keeps_nobody_from_a_teardown(monkeypatch: pytest.MonkeyPatch) -> None:
    told = locking(monkeypatch, AnsibleConnectionFailure("no route"), ignored=True)
    assert told == {"changed": False, "away": True, "msg": "no route"}


def test_any_other_playbook_ends_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleConnectionFailure):
        locking(monkeypatch, AnsibleConnectionFailure("no route"), ignored=False)


def test_a_head_that_answers_and_cannot_be_locked_is_not_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleActionFail, match="no become"):
        locking(monkeypatch, AnsibleError("no become"), ignored=True)
