# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import base

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())


class Failing(base.Action):
    ARGUMENTS = {"kind": {"type": "str", "choices": ["known", "unknown"], "required": True}}
    ERRORS = (LookupError,)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        raise LookupError("no wheel") if arguments["kind"] == "known" else ArithmeticError("a bug")


def run(action: type[base.Action], **arguments: Any) -> dict[str, Any]:
    task = MagicMock(async_val=0, check_mode=False, diff=False, args=arguments)
    plugin = action(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    return plugin.run(task_vars={"inventory_hostname": "spark-01"})


def test_an_error_for_the_user_names_the_host_and_a_bug_stays_one() -> None:
    with pytest.raises(AnsibleActionFail, match=r"^host spark-01: no wheel$") as caught:
        run(Failing, kind="known")
    assert caught.value.__cause__ is None, "Ansible shows causes as well, and the text would be there twice"
    assert caught.value.__suppress_context__
    with pytest.raises(ArithmeticError):
        run(Failing, kind="unknown")


HOSTILE = "\x1b]52;c;eA==\x07\x1b[?1049hspark\u202e-1\x9b2J\nnext"
SHOWN = "spark\ufffd-1\nnext"


class Hostile(base.Action):
    """Everything that it says came from a host."""

    ERRORS = (LookupError,)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        match arguments["how"]:
            case "error":
                raise LookupError(HOSTILE)
            case "failure":
                raise AnsibleActionFail(HOSTILE) from ValueError(HOSTILE)
            case "connection":
                raise AnsibleConnectionFailure(HOSTILE)
        self.tell(HOSTILE)
        return {"msg": HOSTILE, "warnings": [HOSTILE], "diff": {"before": HOSTILE}, "data": HOSTILE}


@pytest.mark.parametrize(
    ("how", "kind"),
    [("error", AnsibleActionFail), ("failure", AnsibleActionFail), ("connection", AnsibleConnectionFailure)],
)
def test_a_message_with_a_hosts_words_is_text_and_nothing_else(how: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        run(Hostile, how=how)
    assert caught.value.__class__ is kind
    assert str(caught.value).endswith(SHOWN)
    # Ansible would show what led to it as well
    assert caught.value.__cause__ is None


def test_what_ansible_shows_of_a_result_is_text_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    result = run(Hostile, how="result")
    assert {key: result[key] for key in ("msg", "warnings", "diff")} == {
        "msg": SHOWN,
        "warnings": [SHOWN],
        "diff": {"before": SHOWN},
    }
    # what others compute with is as it came
    assert result["data"] == HOSTILE
    assert capsys.readouterr().out == f"{SHOWN}\n"


#: who speaks without the base's filter, and why that is safe
SPEAKERS = {
    "plugin_utils/_action/base.py": "it is the filter",
    "action/model_fanout.py": "the board of the fan-out, whose lines the board filters",
    "action/vllm_service.py": "filters itself: tests put their own in its place",
    "action/controller_lock.py": "says nothing, and makes the connection say nothing",
    "action/cluster_plan.py": "a warning, filtered where it is given",
    "action/inventory_check.py": "a warning, filtered where it is given",
}


def test_every_line_goes_through_the_one_filter() -> None:
    plugins = TOP / "plugins"
    found = {
        str(path.relative_to(plugins))
        for path in plugins.rglob("*.py")
        if re.search(r"(?<!_)\bDisplay\(\)|\.display\(|\.warning\(|\.v+\(", path.read_text(encoding="utf-8"))
    }
    assert found == set(SPEAKERS)


def test_arguments_are_validated() -> None:
    with pytest.raises(AnsibleActionFail, match="kind"):
        run(Failing, kind="other")


@pytest.mark.parametrize(
    ("version", "works"), [("2.18.19", False), ("2.19.0", True), ("2.19.0rc1", True), ("2.21.5", True), ("3.0.0", True)]
)
def test_an_older_core_is_told_in_one_sentence(monkeypatch: pytest.MonkeyPatch, version: str, works: bool) -> None:
    assert (base.too_old(version) == "") is works
    monkeypatch.setattr(base, "core_version", version)
    if not works:
        result = run(Failing, kind="known")
        assert result["failed"] is True
        assert result["msg"].startswith(f"sparkthor.cluster needs ansible-core 2.19 or newer; this is {version}: pip ")


def test_the_collections_metadata_says_the_same() -> None:
    runtime = yaml.safe_load((TOP / "meta" / "runtime.yml").read_text(encoding="utf-8"))
    assert runtime["requires_ansible"] == f">={'.'.join(map(str, base.OLDEST_CORE))}.0"
