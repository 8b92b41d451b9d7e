# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What proves a new engine."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.playbooks.test_serve_again import tasks

REFUSED = "the front proxy answered 400: the model does not support chats"
LATE = "the front proxy: timed out"
WHOLE = {"streams": {"1": {"decode_tokens_per_second": 10.0}}}


def right(number: int) -> dict[str, Any]:
    """A measurement with so many simple tasks answered rightly."""
    return {**WHOLE, "answers": {"asked": 4, "right": number, "wrong": "'2 + 2': '5'"}}


def deed(name: str) -> dict[str, Any]:
    """A task of the change to the new engine."""
    blocks = [inner for _hosts, one in tasks("upgrade") for inner in one.get("block", ())]
    [found] = [one for inner in blocks for one in inner.get("block", ()) if one["name"] == name]
    assert isinstance(found, dict)
    return found


def proven(before: dict[str, Any], after: dict[str, Any], group: str = "") -> bool:
    """Of the host's own group, or of one beside it."""
    compare = deed("Compare the new engine with the former one")
    given = {name: trust_as_template(text) for name, text in compare["vars"].items()}
    known: dict[str, Any] = {"item": group, "__upgrade_before": before, "__upgrade_after": {"found": after}}
    if group:
        # the host's own one proves nothing for it
        known = {"item": group, "__upgrade_before": {"found": WHOLE}, "__upgrade_after": {"found": WHOLE}}
        known["__upgrade_before_beside"] = {"results": [{"item": "other", "found": WHOLE}, {"item": group, **before}]}
        known["__upgrade_after_beside"] = {"results": [{"item": "other"}, {"item": group, "found": after}]}
    templar = Templar(loader=DataLoader(), variables={**given, **known})
    conditions = compare["ansible.builtin.assert"]["that"]
    return all(templar.template(trust_as_template("{{ " + words + " }}")) is True for words in conditions)


@pytest.mark.parametrize("group", ["", "embed"])
@pytest.mark.parametrize(
    ("before", "after", "well"),
    [
        ({"found": WHOLE}, WHOLE, True),
        ({"found": WHOLE}, {"error": LATE}, False),
        ({"found": {"error": REFUSED}}, {"error": REFUSED}, True),
        # neither answered in time
        ({"found": {"error": LATE}}, {"error": LATE}, False),
        ({"found": {"error": REFUSED}}, {"error": LATE}, False),
        # nothing was served before
        ({"skipped": True}, WHOLE, True),
        ({"skipped": True}, {"error": LATE}, False),
        # a small model need not answer more rightly than before, and no other one less
        ({"found": right(1)}, right(1), True),
        ({"found": right(2)}, right(1), False),
        ({"found": right(4)}, right(3), True),
        ({"found": right(4)}, right(2), False),
        ({"found": WHOLE}, right(2), False),
        ({"skipped": True}, right(2), False),
    ],
)
def test_what_proves_an_engine(before: dict[str, Any], after: dict[str, Any], well: bool, group: str) -> None:
    assert proven(before, after, group) is well


def test_all_groups_of_a_host_prove_the_engine_that_they_share() -> None:
    loop = trust_as_template(deed("Compare the new engine with the former one")["loop"])
    for cluster, groups in (({}, [""]), ({"beside": {"embed": {}, "rerank": {}}}, ["", "embed", "rerank"])):
        templar = Templar(loader=DataLoader(), variables={"sparkthor_cluster": cluster})
        assert templar.template(loop) == groups


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"msg": "it does not start"}, "it does not start"),
        ({"unreachable": True}, ""),
        ({"msg": "One or more items failed", "results": [{"msg": "fine"}, {"failed": True, "msg": "why"}]}, "why"),
        # what a package manager says is a list of lines
        ({"msg": "apt failed", "results": ["a line"]}, "apt failed"),
    ],
)
def test_the_reason_of_a_failure_is_kept(result: dict[str, Any], words: str) -> None:
    [outer] = [task for _hosts, task in tasks("upgrade") if "rescue" in task]
    text = outer["rescue"][0]["ansible.builtin.set_fact"]["__upgrade_failed"]
    templar = Templar(loader=DataLoader(), variables={"ansible_failed_result": result})
    assert templar.template(trust_as_template(text)) == words


def test_groups_beside_let_their_requests_end_before_they_restart() -> None:
    serve = deed("Serve the model")
    assert "upgrade_drain_timeout" in serve["vars"]["__vllm_serve_beside_drain"]


@pytest.mark.parametrize(
    ("then", "now", "known"),
    [
        ({"a": "m1", "b": "m2"}, {"a": "m1", "b": "m2"}, True),
        ({"a": "m1", "b": "m2"}, {"x": "m2", "y": "m1"}, True),
        ({"a": "m1", "b": "m2"}, {"x": "m2", "y": "m3"}, False),
        ({"a": "m1", "b": "m2"}, {"x": "m2"}, False),
        # without a machine-id names have to do
        ({"a": "", "b": ""}, {"a": "", "b": ""}, True),
        ({"a": "", "b": ""}, {"x": "", "y": ""}, False),
    ],
)
def test_a_rename_is_no_change_of_hosts(then: dict[str, str], now: dict[str, str], known: bool) -> None:
    [task] = [task for _hosts, task in tasks("upgrade") if task["name"] == "Fail if there would be no way back"]
    about = {"executor": "ray", "hosts": sorted(then), "machines": then}
    given = {
        "__upgrade_now": about,
        "sparkthor_cluster": {"hosts": list(now), "machines": now, "executor": "ray"},
    }
    templar = Templar(loader=DataLoader(), variables=given)
    conditions = task["ansible.builtin.assert"]["that"]
    assert all(templar.evaluate_conditional(trust_as_template(words)) for words in conditions) is known
