# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugins that bring files to a host, which is a list of answers in these tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

NODE = {"python": {"version": "3.12.3"}, "arch": "aarch64", "glibc": "2.39"}


class Calls(list):
    """The arguments of each module that was run on the host; ``modules`` are their names."""

    def __init__(self) -> None:
        super().__init__()
        self.modules: list[str] = []


def act(
    module: Any,
    monkeypatch: pytest.MonkeyPatch,
    args: dict[str, Any],
    answers: list[dict[str, Any]],
    check: bool = False,
    **task_vars: Any,
) -> tuple[dict[str, Any], Calls]:
    task = SimpleNamespace(
        args=args, check_mode=check, diff=True, async_val=0, action="x", name="", delegate_to=None, run_once=False
    )
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    action = module.ActionModule(task, connection, SimpleNamespace(), None, None, None)
    calls = Calls()

    def execute(module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        calls.append(module_args)
        calls.modules.append(module_name.rpartition(".")[2])
        return dict(action.believed(answers.pop(0)))

    monkeypatch.setattr(action, "_execute_module", execute)
    facts = task_vars.pop("facts", {"sparkthor_node": NODE})
    return action.run(task_vars={"inventory_hostname": "spark-01", "ansible_facts": facts, **task_vars}), calls


class Courier:
    """Carries nothing; hands over one part for each content that was asked for."""

    sent = 42

    def __init__(self, action: Any, what: str, host: str, say: Any) -> None:
        assert host == "spark-01"

    def deliver(self, wanted: Any, receive: Any) -> None:
        receive([{"sha256": content.sha256, "path": content.path} for content in wanted])
