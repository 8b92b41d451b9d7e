# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side of the firewall change, against a host that answers as told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.sparkthor.cluster.plugins.action import firewall_apply
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import deadline
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import base

from tests.unit.clock import Clock


class Host:
    """Answers of the module in order; an exception among them is raised."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.log: list[str] = []
        self.arguments: list[dict[str, Any]] = []

    def module(self, module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        assert module_name == "sparkthor.cluster.firewall_apply"
        self.log.append(module_args["step"])
        self.arguments.append(module_args)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    def reset(self) -> None:
        self.log.append("new connection")


def run(host: Host, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> dict[str, Any]:
    monkeypatch.setattr(deadline, "time", Clock())
    monkeypatch.setattr(base.ActionBase, "run", lambda *_args, **_kwargs: {})
    action = object.__new__(firewall_apply.ActionModule)
    action._loader = DataLoader()
    action._templar = Templar(loader=action._loader, variables={})
    action._task = SimpleNamespace(action="firewall_apply", args=arguments, check_mode=False)
    action._connection = SimpleNamespace(reset=host.reset)
    monkeypatch.setattr(action, "_execute_module", host.module, raising=False)
    return action.run(task_vars={"inventory_hostname": "spark-01"})


def test_nothing_to_do_is_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host([{"changed": False, "diff": []}])
    assert run(host, monkeypatch) == {"changed": False, "diff": []}
    assert host.log == ["start"]


def test_a_change_is_confirmed_over_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host([{"changed": True, "started": True, "diff": ["d"]}, {"changed": True, "confirmed": True}])
    result = run(host, monkeypatch)
    assert result == {"changed": True, "diff": ["d"], "confirmed": True}
    assert host.log == ["start", "new connection", "confirm"]
    assert host.arguments[0]["token"] == host.arguments[1]["token"]


def test_an_unreachable_host_is_asked_again_until_it_says_that_it_took_the_change_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = Host(
        [
            {"changed": True, "started": True},
            AnsibleConnectionFailure("timed out"),
            {"unreachable": True, "msg": "timed out"},
            {"failed": True, "msg": "the host took the change back"},
        ]
    )
    result = run(host, monkeypatch)
    assert result["failed"] is True
    assert result["changed"] is False
    assert result["msg"] == "spark-01: the host took the change back"
    assert host.log == ["start", *["new connection", "confirm"] * 3]


def test_a_host_that_never_answers_fails_after_its_rollback_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host([{"changed": True, "started": True}, AnsibleConnectionFailure("timed out")])
    result = run(host, monkeypatch, rollback_timeout=10)
    assert result["failed"] is True
    assert "spark-01: not reachable since its firewall was changed" in result["msg"]
    assert "timed out" in result["msg"]
    assert host.log.count("confirm") == 10 + firewall_apply.GRACE + 1


def test_a_worker_whose_controller_is_gone_confirms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = [4711, 1]
    monkeypatch.setattr(firewall_apply.os, "getppid", lambda: parents.pop(0))
    host = Host([{"changed": True, "started": True}])
    with pytest.raises(AnsibleError, match="spark-01: the controller process is gone"):
        run(host, monkeypatch)
    assert host.log == ["start"]


def test_a_refused_ruleset_names_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host([{"failed": True, "msg": "nft refuses the ruleset"}])
    assert run(host, monkeypatch)["msg"] == "spark-01: nft refuses the ruleset"
    assert host.log == ["start"]


def test_the_host_is_told_what_is_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host([{"changed": False}])
    files = [{"path": "/etc/x", "content": "x"}, {"path": "/etc/y", "content": "y", "when": False}]
    run(host, monkeypatch, ruleset="/etc/x", files=files)
    assert host.arguments[0]["files"] == files[:1]
    assert host.arguments[0]["state"] == "present"


def test_absent_turns_the_lists_round(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host([{"changed": True}])
    files = [{"path": "/etc/systemd/system/x.service", "content": "x", "when": False}]
    run(host, monkeypatch, state="absent", ruleset="/etc/x", files=files, units=[{"name": "x.service"}])
    told = host.arguments[0]
    assert (told["state"], told["restore"]) == ("absent", ["/etc/systemd/system/x.service"])
    assert [unit["name"] for unit in told["units"]] == ["x.service"]
    assert not {"files", "absent"} & set(told)
