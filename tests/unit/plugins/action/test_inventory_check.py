# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which inventories a playbook takes that needs one, and one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.utils.context_objects import CLIArgs
from ansible_collections.sparkthor.cluster.plugins.action.inventory_check import ActionModule

SOUND = "cluster: {children: {ray_head: {hosts: {a: {ansible_host: 192.168.1.11}}}}}\n"
GROUPS = {"all": ["a"], "ungrouped": [], "cluster": ["a"], "ray_head": ["a"]}


def check(
    monkeypatch: pytest.MonkeyPatch, given: list[str], groups: dict[str, list[str]], **arguments: Any
) -> tuple[dict[str, Any], list[str]]:
    """The answer, and what was warned of."""
    monkeypatch.setattr(context, "CLIARGS", CLIArgs({"inventory": given}))
    task = MagicMock(async_val=0, check_mode=False, diff=False, args=arguments)
    action = ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    action._display = MagicMock()
    answer = action.run(task_vars={"groups": groups, "hostvars": {"a": {}}})
    return answer, [call.args[0] for call in action._display.warning.call_args_list]


def test_an_inventory_is_needed_unless_the_playbook_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hosts.yml").write_text(SOUND, encoding="utf-8")
    for optional in (False, True):
        answer, _warned = check(monkeypatch, [str(tmp_path)], GROUPS, optional=optional)
        assert answer["msg"] == "the inventory has 1 host"
        with pytest.raises(AnsibleActionFail, match="there is no such file or folder"):
            check(monkeypatch, [str(tmp_path / "nothere")], {"all": []}, optional=optional)
    (tmp_path / "hosts.yml").write_text("others: {hosts: {b: {}}}\n", encoding="utf-8")
    others = {"all": ["b"], "ungrouped": [], "others": ["b"]}
    assert check(monkeypatch, [str(tmp_path)], others, optional=True)[0]["changed"] is False
    with pytest.raises(AnsibleActionFail, match="no host is in the group cluster"):
        check(monkeypatch, [str(tmp_path)], others)


def test_variables_that_nobody_reads_are_told_before_what_follows_from_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hosts.yml").write_text(SOUND, encoding="utf-8")
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/secrets.yml").write_text("a: 1\n", encoding="utf-8")
    _answer, [warned] = check(monkeypatch, [str(tmp_path)], GROUPS)
    assert "no group of the inventory is called secrets" in warned
    (tmp_path / "group_vars/cluser.yml").write_text("a: 1\n", encoding="utf-8")
    headless = {**GROUPS, "ray_head": []}
    with pytest.raises(
        AnsibleActionFail, match=r"one problem to fix first\.\n.*called cluser \(did you mean 'cluster'"
    ):
        check(monkeypatch, [str(tmp_path)], headless)
