# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller asks a host once for each engine, and checks arguments against what it said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action.vllm_options import ActionModule
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import option_tables
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_args

TABLE, _EXACT = vllm_args.find_table("0.32.0")


class Action(ActionModule):
    """Without a play: what would be asked of the host is answered here."""

    def __init__(self, args: dict[str, Any], answer: dict[str, Any], check_mode: bool = False, name: str = "a") -> None:
        self._task = SimpleNamespace(
            action="vllm_options", args=args, check_mode=check_mode, async_val=0, environment=None, run_once=True
        )
        self.answer = answer
        self.name = name
        self.asked: list[dict[str, Any]] = []

    def _execute_module(self, module_args: Any = None, task_vars: Any = None, **_more: Any) -> dict[str, Any]:
        self.asked.append(module_args)
        return self.answer

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        return super().run(None, {"inventory_hostname": self.name, "inventory_dir": "/inventory"})


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("ansible.plugins.action.ActionBase.run", lambda self, tmp=None, task_vars=None: {})
    return tmp_path


HOST = {"changed": False, "table": TABLE, "cached": False, "path": "/var/x.json"}


def test_a_host_is_asked_once_for_each_engine() -> None:
    first = Action({"engine": "abc", "version": "0.32.0"}, HOST)
    assert first.run()["cached"] is False
    assert first.asked == [{"version": "0.32.0"}]
    second = Action({"engine": "abc", "arguments": {"max-num-seqs": 4}}, HOST)
    found = second.run()
    assert (second.asked, found["cached"], found["table"]) == ([], True, TABLE)
    # its digest is what a host says, and so is the table
    other = Action({"engine": "abc"}, {**HOST, "table": {**TABLE, "vllm": "0.31.0"}}, name="b")
    assert (other.run()["table"]["vllm"], len(other.asked)) == ("0.31.0", 1)
    assert Action({"engine": "abc"}, HOST).run()["table"] == TABLE
    third = Action({"engine": "another"}, HOST)
    third.run()
    assert len(third.asked) == 1


def test_a_spoilt_copy_is_asked_for_again(own_cache: Path) -> None:
    path = Path(option_tables.kept("abc", "/inventory", "a"))
    assert own_cache in path.parents
    path.parent.mkdir(parents=True)
    path.write_text('{"schema"')
    action = Action({"engine": "abc"}, HOST)
    assert action.run()["table"] == TABLE
    assert len(action.asked) == 1
    assert vllm_args.read_table(str(path))["vllm"] == TABLE["vllm"]


def test_bad_arguments_are_one_message() -> None:
    args = {"engine": "abc", "arguments": {"swap-space": 4, "max-num-seq": 2}}
    with pytest.raises(AnsibleActionFail, match=r"No service was touched.*swap-space.*did you mean max-num-seqs"):
        Action(args, HOST).run()
    dangerous = {"engine": "abc", "arguments": {"trust-remote-code": True}}
    with pytest.raises(AnsibleActionFail, match=r"write vllm_serve_acknowledged: \[trust-remote-code\]"):
        Action(dangerous, HOST).run()
    assert "table" in Action({**dangerous, "acknowledged": ["trust-remote-code"]}, HOST).run()


def test_secrets_in_the_environment_are_refused() -> None:
    with pytest.raises(AnsibleActionFail, match="VLLM_API_KEY"):
        Action({"engine": "abc", "arguments": {}, "environment": {"VLLM_API_KEY": "x"}}, HOST).run()


def test_a_host_that_cannot_be_asked_fails_as_it_said() -> None:
    outcome = Action({"version": "0.32.0"}, {"failed": True, "msg": "no engine"}).run()
    assert outcome["failed"] is True
    assert outcome["msg"] == "no engine"


def test_check_mode_before_the_first_run_takes_the_shipped_table(own_cache: Path) -> None:
    action = Action({"engine": "new", "version": "0.32.0+cpu"}, {"failed": True, "msg": "no engine"}, check_mode=True)
    assert action.run()["table"]["vllm"] == TABLE["vllm"]
    assert not (own_cache / "sparkthor").exists()


@pytest.mark.parametrize("version", [{}, {"version": "99.1.0"}], ids=["an image that is not there", "not shipped"])
def test_check_mode_before_the_first_run_goes_on_without_a_table(own_cache: Path, version: dict[str, str]) -> None:
    args = {"engine": "", "arguments": {"max-num-seqs": 4}, **version}
    answer = {"failed": True, "msg": "sparkthor_host: No such file or directory"}
    outcome = Action(args, answer, check_mode=True).run()
    assert not outcome.get("failed")
    assert "without --check" in outcome["msg"]
    assert Action(args, answer).run()["failed"] is True


def test_check_mode_believes_no_engine_of_another_version(own_cache: Path) -> None:
    """Before an upgrade the former engine answers; its options would be refused or passed in the new one's name."""
    args = {"engine": "new", "version": "0.33.0", "arguments": {"max-num-seqs": 4}}
    assert Action(args, HOST, check_mode=True).run()["table"]["vllm"] == "0.33.0"
    unknown = Action({**args, "version": "99.1.0"}, HOST, check_mode=True).run()
    assert "without --check" in unknown["msg"]
    # what check mode learns is not kept, whosever it is
    Action({**args, "version": "0.32.0"}, HOST, check_mode=True).run()
    assert not (own_cache / "sparkthor").exists()
