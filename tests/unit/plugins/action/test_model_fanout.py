# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a copy from host to host, as the controller plans them; the host is a list of answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import model_copy, model_fanout
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import (
    fanout,
    hub,
    hub_fetch,
    hub_outline,
    model_action,
    push,
)

from tests.unit.delivery import Courier, act


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


FABRIC = {
    f"spark-0{number}": {"links": [{"address": f"10.100.{half * 128}.{number}/17"} for half in (0, 1)]}
    for number in (1, 2, 3)
}


def fan_out(model: Path, step: str, need: dict[str, list[dict[str, Any]]], **more: Any) -> tuple[dict, dict]:
    """Arguments and variables of a step for spark-01, after all hosts were checked."""
    args = {
        "step": step,
        "models": [{"name": "tiny", "source": str(model)}],
        "fabric": FABRIC,
        "head": "spark-01",
    }
    hostvars: dict[str, Any] = {
        host: {"__model_store_check": {"models": {}, "need": items}} for host, items in need.items()
    }
    for host, values in more.items():
        hostvars[host.replace("_", "-")].update(values)
    return args, {"hostvars": hostvars, "ansible_play_hosts": list(need)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def lacking(model: Path) -> dict[str, Any]:
    entry = push.manifest(str(model), ["config.json"])[0]
    return {"sha256": entry.sha256, "size": 2, "have": 0}


def test_the_seed_alone_gets_something_from_the_controller(
    model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "Courier", Courier)
    everyone = {f"spark-0{number}": [lacking] for number in (1, 2, 3)}
    args, variables = fan_out(model, "seed", everyone)
    result, calls = act(model_fanout, monkeypatch, args, [{"changed": True}, {"changed": True}], **variables)
    assert (result["seed"], result["sent_bytes"], calls.modules) == (
        "spark-01",
        42,
        ["store_receive", "model_copy"],
    )
    assert len(fanout.key(result["run"])) == 64
    # one that has it all is the seed, and then nobody gets anything from here
    args, variables = fan_out(model, "seed", {**everyone, "spark-02": []})
    result, calls = act(model_fanout, monkeypatch, args, [], **variables)
    assert (result, list(calls)) == ({"changed": False, "seed": "spark-02"}, [])


WEIGHTS = Entry("model.safetensors", 7, "7" * 64)


@pytest.fixture
def outlined(model: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The folder has the small file alone; the list grows when the whole is fetched."""
    fetched: list[bool] = []

    def snapshot(repo: str, revision: str, name: str, fetch: bool, say: Any, pattern: str) -> tuple[str, str]:
        assert (repo, revision, fetch) == ("owner/tiny", "c" * 40, True)
        fetched.append(True)
        (model / "model.safetensors").write_bytes(b"weights")
        return str(model), "c" * 40

    monkeypatch.setattr(push, "Courier", Courier)
    monkeypatch.setattr(hub, "snapshot", snapshot)
    monkeypatch.setattr(
        hub_outline, "outline", lambda *_given, **_options: hub_outline.Outline(str(model), "c" * 40, [WEIGHTS], True)
    )
    hashed = push.manifest
    monkeypatch.setattr(
        push,
        "manifest",
        lambda folder, names: [WEIGHTS if entry.path == WEIGHTS.path else entry for entry in hashed(folder, names)],
    )
    return fetched


def outlined_step(step: str, need: dict[str, list[dict[str, Any]]]) -> tuple[dict, dict]:
    args, variables = fan_out(Path("/unused"), step, need)
    return {**args, "models": [{"name": "tiny", "source": "owner/tiny", "revision": "main"}]}, variables


BIG = {"sha256": WEIGHTS.sha256, "size": 7, "have": 0}


def test_what_a_host_has_in_its_own_cache_is_not_downloaded(
    lacking: dict[str, Any], outlined: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    args = {"deliver": "fabric", "models": [{"name": "tiny", "source": "owner/tiny", "revision": "main"}]}
    taken = {"bytes": 7, "caches": ["/home/ada/hub"]}
    answer = {"changed": True, "need": [lacking], "from_caches": taken}
    _result, calls = act(model_copy, monkeypatch, args, [answer])
    assert [row[0] for row in calls[0]["models"][0]["manifest"]] == ["config.json", "model.safetensors"]
    # it lacks least, so it is the seed, and tells the parts of what the controller has never seen
    args, variables = outlined_step("seed", {"spark-01": [lacking], "spark-02": [lacking, BIG]})
    answers = [{"changed": True}, {"changed": True}, {"changed": False, "parts": {WEIGHTS.sha256: ["9" * 64]}}]
    result, calls = act(model_fanout, monkeypatch, args, answers, **variables)
    assert calls.modules == ["store_receive", "model_copy", "model_fanout"]
    # the fabric plan of a big cluster is not for the host
    assert "fabric" not in calls[2]
    assert json.loads(calls[2]["job"])["wanted"] == [WEIGHTS.sha256]
    args, variables = outlined_step("start", {"spark-01": [lacking], "spark-02": [lacking, BIG]})
    variables["hostvars"]["spark-01"]["__model_store_run"] = result
    _result, calls = act(model_fanout, monkeypatch, args, [{"changed": False}], **variables)
    contents = {row[0]: row[2] for row in json.loads(calls[0]["job"])["contents"]}
    assert contents == {WEIGHTS.sha256: ["9" * 64], lacking["sha256"]: [lacking["sha256"]]}
    assert outlined == []


def test_what_no_host_has_is_downloaded_when_it_is_sent(
    lacking: dict[str, Any], outlined: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    everyone = {f"spark-0{number}": [lacking, BIG] for number in (1, 2)}
    args, variables = outlined_step("seed", everyone)
    result, calls = act(model_fanout, monkeypatch, args, [{"changed": True}, {"changed": True}], **variables)
    assert (outlined, calls.modules, "parts" in result) == (
        [True],
        ["store_receive", "model_copy"],
        False,
    )


@pytest.fixture
def addressed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []

    def address(file: hub_fetch.HubFile) -> str:
        asked.append(file.path)
        return f"https://hub/{file.commit}/{file.path}?{len(asked)}"

    monkeypatch.setattr(hub_fetch, "address", address)
    return asked


@pytest.mark.parametrize("how", ["host", "auto"])
def test_what_the_controller_has_no_room_for_the_seed_fetches(
    lacking: dict[str, Any], outlined: list[bool], addressed: list[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(hub_fetch, "free_bytes", lambda _folder: 0)
    args, variables = outlined_step("seed", {f"spark-0{number}": [lacking, BIG] for number in (1, 2)})
    answers = [{"changed": True, "have": 3, "problem": ""}, {"changed": True, "have": 7, "problem": ""}]
    answers += [{"changed": True}, {"changed": True}, {"changed": False, "parts": {WEIGHTS.sha256: ["9" * 64]}}]
    _result, calls = act(model_fanout, monkeypatch, {**args, "fetch": how}, answers, **variables)
    # twice, each time from where the hub says that it is now; the small file comes from here, and nothing is fetched
    assert calls.modules == ["store_fetch", "store_fetch", "store_receive", "model_copy", "model_fanout"]
    assert [call["url"] for call in calls[:2]] == [f"https://hub/{'c' * 40}/{WEIGHTS.path}?{n}" for n in (1, 2)]
    assert (calls[0]["sha256"], calls[0]["size"]) == (WEIGHTS.sha256, 7)
    assert outlined == []
    # the next step tells the others the parts that the seed read of it
    assert json.loads(calls[4]["job"])["wanted"] == [WEIGHTS.sha256]


def test_one_question_that_the_hub_does_not_answer_ends_no_download(
    lacking: dict[str, Any], outlined: list[bool], addressed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_fetch, "free_bytes", lambda _folder: 0)
    monkeypatch.setattr(model_action, "FETCH_PAUSE", 0.0)
    address, asked = hub_fetch.address, []

    def answers_later(file: hub_fetch.HubFile) -> str:
        asked.append(file.path)
        # silent twice after each answer
        if len(asked) % 3:
            raise hub.Unreachable("429 Too Many Requests")
        return address(file)

    monkeypatch.setattr(hub_fetch, "address", answers_later)
    args, variables = outlined_step("seed", {"spark-01": [lacking, BIG]})
    answers = [{"changed": True, "have": 3, "problem": ""}, {"changed": True, "have": 7, "problem": ""}]
    answers += [{"changed": True}, {"changed": True}, {"changed": False, "parts": {WEIGHTS.sha256: ["9" * 64]}}]
    _result, calls = act(model_fanout, monkeypatch, {**args, "fetch": "host"}, answers, **variables)
    assert calls.modules[:2] == ["store_fetch", "store_fetch"]
    assert len(asked) == 6
    # but one that never answers does
    monkeypatch.setattr(hub_fetch, "address", lambda file: answers_later(asked.clear() or file))
    with pytest.raises(AnsibleActionFail, match=r"429 Too Many Requests\. Give the host .* What arrived is kept"):
        act(model_fanout, monkeypatch, {**args, "fetch": "host"}, [], **variables)


def test_a_host_without_a_way_to_the_hub_is_named(
    lacking: dict[str, Any], outlined: list[bool], addressed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    args, variables = outlined_step("seed", {"spark-01": [lacking, BIG]})
    answers = [{"changed": True, "have": 0, "problem": "hub.example: timed out"} for _try in range(3)]
    with pytest.raises(AnsibleActionFail, match=r"host spark-01: model.safetensors of owner/tiny .* timed out\. Give"):
        act(model_fanout, monkeypatch, {**args, "fetch": "host"}, answers, **variables)
    assert (answers, outlined) == ([], [])


def test_a_job_holds_route_parts_and_key(model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run = fanout.new_run()
    args, variables = fan_out(
        model, "start", {"spark-01": [lacking], "spark-02": [], "spark-03": [lacking]},
        spark_02={"__model_store_run": {"seed": "spark-02", "run": run}},
    )  # fmt: skip
    result, calls = act(model_fanout, monkeypatch, args, [{"changed": False}], **variables)
    assert result["changed"] is False
    job = json.loads(calls[0]["job"])
    assert (job["run"], calls[0]["key"], job["node"]) == (run, fanout.key(run), "spark-01")
    assert "key" not in job
    assert [entry["node"] for entry in job["upstreams"]] == ["spark-02"]
    assert (job["behind"], job["listen"]) == (["spark-03"], ["10.100.0.1", "10.100.128.1"])
    assert job["contents"] == [[lacking["sha256"], 2, [lacking["sha256"]]]]
    assert len(job["peers"]) == 6


def test_nothing_starts_where_the_seed_was_the_only_one_that_lacked(
    model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in ("start", "finish"):
        args, variables = fan_out(model, step, {"spark-01": [lacking]})
        result, calls = act(model_fanout, monkeypatch, args, [], **variables)
        assert (result["changed"], list(calls)) == (False, [])


def test_a_host_that_did_not_get_it_is_named(
    model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    args, variables = fan_out(
        model, "finish", {"spark-01": [lacking], "spark-02": []},
        spark_02={"__model_store_run": {"seed": "spark-02", "run": "ab" * 8}},
    )  # fmt: skip
    answer = {"failed": True, "msg": "nothing arrived for 60 s"}
    result, calls = act(model_fanout, monkeypatch, args, [answer], **variables)
    assert (result["failed"], result["msg"]) == (True, "host spark-01: nothing arrived for 60 s")
    assert (calls[0]["step"], json.loads(calls[0]["job"])) == ("finish", {"run": "ab" * 8})


def watch(model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch, nodes: dict[str, Any]) -> dict:
    args, variables = fan_out(
        model, "watch", {"spark-01": [], "spark-02": [lacking]},
        spark_01={"__model_store_run": {"seed": "spark-01", "run": "ab" * 8}},
    )  # fmt: skip
    monkeypatch.setattr(fanout, "follow", lambda board, ask: nodes)
    return act(model_fanout, monkeypatch, args, [], **variables)[0]


def test_the_seeds_own_failure_is_said(model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    said = "cannot listen on 10.100.0.1 port 29870: Address already in use"
    commands: list[str] = []
    monkeypatch.setattr(
        model_fanout.ActionModule, "_low_level_execute_command", lambda self, command: commands.append(command)
    )
    with pytest.raises(AnsibleActionFail, match=f"host spark-01: {said}"):
        watch(model, lacking, monkeypatch, {"spark-01": {"state": "failed", "error": said}})
    assert commands == ["systemctl reset-failed sparkthor-fanout.service"]
    # what others say is for the step after it, host by host
    nodes = {"spark-01": {"state": "done"}, "spark-02": {"state": "failed", "error": "x"}}
    assert watch(model, lacking, monkeypatch, nodes)["nodes"] == nodes


def test_what_a_first_host_answers_decides_over_no_other(
    model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts, above all: the controller has the file, and so the digests of its parts."""
    monkeypatch.setattr(push, "Courier", Courier)
    args, variables = fan_out(model, "seed", {f"spark-0{number}": [lacking] for number in (1, 2, 3)})
    lie = {"changed": True, "parts": {lacking["sha256"]: ["0" * 64]}, "run": "../../x", "seed": "spark-03"}
    result, _calls = act(model_fanout, monkeypatch, args, [{"changed": True}, lie], **variables)
    assert "parts" not in result
    assert (result["seed"], len(result["run"])) == ("spark-01", 16)


@pytest.mark.parametrize("parts", [None, {}, {WEIGHTS.sha256: ["x"]}, {WEIGHTS.sha256: []}, [1]])
def test_parts_that_are_none_stop_the_run_before_it_starts(
    outlined: list[bool], parts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    args, variables = outlined_step("seed", {"spark-01": [], "spark-02": [BIG], "spark-03": [BIG]})
    with pytest.raises(AnsibleActionFail, match="spark-01: what it tells about the parts of 777777777777… are not 1"):
        act(model_fanout, monkeypatch, args, [{"changed": False, "parts": parts}], **variables)


def test_a_host_gets_no_file_of_the_controller_for_one_that_hosts_alone_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wrote an image down, as it says, and nobody has it: the name of that file is not looked up here."""
    secret = tmp_path / "id_rsa"
    secret.write_text("secret")
    (entry,) = push.manifest(str(tmp_path), ["id_rsa"])
    carried: list[str] = []

    class Open(Courier):
        def deliver(self, wanted: Any, receive: Any) -> None:
            carried.extend(content.path for content in wanted)

    monkeypatch.setattr(push, "Courier", Open)
    monkeypatch.chdir(tmp_path)
    lie = {"sha256": entry.sha256, "size": entry.size, "have": 0}
    for path, words in ((str(secret), "is no manifest"), ("id_rsa", "no host has id_rsa any more")):
        args, variables = fan_out(tmp_path, "seed", {"spark-01": [lie], "spark-02": [lie]})
        told = push.hand_over("/opt/sparkthor/images", "archive", "", manifest=[[path, entry.size, entry.sha256]])
        args["models"] = [told["wheels"]["model"]]
        with pytest.raises(AnsibleActionFail, match=words):
            act(model_fanout, monkeypatch, args, [{"changed": True}] * 2, **variables)
    assert carried == []
