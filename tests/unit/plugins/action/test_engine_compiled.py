# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which host is asked for what it compiled, and what of its answer steers the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import engine_compiled
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.compiled import LARGEST

from tests.unit.delivery import Calls, act

FABRIC = {f"spark-0{number}": {"links": [{"address": f"10.100.0.{number}/17"}]} for number in (1, 2, 3)}
FACTS = {"sparkthor_node": {"kind": "spark", "os": {}}, "sparkthor_engine": {"digest": "3f6f"}}
ENTRY = ["compiled.tar", 7, "7" * 64]
NEED = {"sha256": "7" * 64, "size": 7, "have": 0}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def step(
    monkeypatch: pytest.MonkeyPatch, name: str, here: bool, answers: list[dict[str, Any]], **more: Any
) -> tuple[dict[str, Any], Calls]:
    """A step on spark-01, which has compiled something or not; spark-02 has if it has not, spark-03 has not."""
    states = {"spark-01": here, "spark-02": not here, "spark-03": False}
    known = {host: {"__preflight_probe": {"compiled": state}, "ansible_facts": FACTS} for host, state in states.items()}
    for host, values in more.pop("values", {}).items():
        known[host].update(values)
    variables = {"hostvars": known, "ansible_play_hosts": list(states), "facts": FACTS, **more}
    args = {"step": name, "cache": "/c", "fabric": FABRIC}
    return act(engine_compiled, monkeypatch, args, answers, **variables)


def test_the_one_that_has_it_writes_it_down(monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = step(monkeypatch, "give", True, [{"changed": False, "saved": ENTRY, "giver": "spark-03"}])
    assert calls == [{"step": "give", "cache": "/c", "root": "/opt/sparkthor/compiled"}]
    model = {"name": "compiled", "source": "/opt/sparkthor/compiled", "revisions": False, "manifest": [ENTRY]}
    assert (result["giver"], result["model"]) == ("spark-01", model)
    result, calls = step(monkeypatch, "give", False, [])
    assert (result["giver"], list(calls)) == ("spark-02", [])
    # check mode has nothing written
    result, calls = step(monkeypatch, "give", True, [], check=True)
    assert (result["giver"], list(calls)) == ("spark-01", [])


@pytest.mark.parametrize(
    "saved",
    [None, [], "x", ["../x", 7, "7" * 64], ["other.tar", 7, "7" * 64], ["compiled.tar", LARGEST + 1, "7" * 64]],
)
def test_a_host_that_tells_of_another_file_is_not_believed(monkeypatch: pytest.MonkeyPatch, saved: Any) -> None:
    with pytest.raises(AnsibleActionFail, match="host spark-01: what it says"):
        step(monkeypatch, "give", True, [{"changed": False, "saved": saved}])


def test_what_the_host_says_of_itself_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleActionFail, match="host spark-01: disk on fire"):
        step(monkeypatch, "give", True, [{"failed": True, "msg": "disk on fire"}])


def test_the_others_are_compared_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given, _calls = step(monkeypatch, "give", True, [{"changed": False, "saved": ENTRY}])
    giver = {"spark-02": {"__engine_given": given}}
    answer = {"changed": True, "models": {}, "need": [NEED]}
    result, calls = step(monkeypatch, "compare", False, [answer], values=giver)
    assert calls.modules == ["model_copy"]
    assert calls[0]["root"] == "/opt/sparkthor/compiled"
    assert (result["changed"], result["need"], result["model"]) == (False, [NEED], given["model"])
    # where the giver failed nothing more is asked
    result, calls = step(monkeypatch, "compare", False, [])
    assert (result, list(calls)) == ({"changed": False}, [])


def test_who_lacks_it_takes_it_and_the_giver_tidies_up(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {"changed": True, "files": 3, "bytes": 7}
    result, calls = step(monkeypatch, "take", False, [taken])
    assert (result["changed"], calls[0]["step"]) == (True, "take")
    _result, calls = step(monkeypatch, "take", True, [{"changed": False}])
    assert calls[0]["step"] == "tidy"
    result, calls = step(monkeypatch, "take", False, [], check=True)
    assert (result["changed"], result["msg"]) == (True, "would take what spark-02 compiled")
    assert list(calls) == []


def test_a_step_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleActionFail, match="'bogus' is not one of give, compare, take, tidy"):
        step(monkeypatch, "bogus", True, [])
