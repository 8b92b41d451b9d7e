# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side of engine and model_store; the host's side is a function that answers like the module."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import cluster_plan, model_store
from ansible_collections.sparkthor.cluster.plugins.action import engine as engine_action
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry, revision_folder
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import (
    fanout,
    hub,
    hub_outline,
    push,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import (
    url as _url,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.models import declare

NODE = {"python": {"version": "3.12.3"}, "arch": "aarch64", "glibc": "2.39"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def engine(locked_wheels: dict[str, str]) -> dict[str, Any]:
    return {**locked_wheels, "download": False}


class Calls(list):
    def stages(self) -> list[str]:
        return [call.get("stage", "apply") for call in self]


def act(
    module: Any,
    monkeypatch: pytest.MonkeyPatch,
    args: dict[str, Any],
    answers: list[dict[str, Any]],
    check: bool = False,
    **task_vars: Any,
) -> tuple[dict[str, Any], Calls]:
    task = SimpleNamespace(
        args=args, check_mode=check, diff=True, async_val=0, action="x", delegate_to=None, run_once=False
    )
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    action = module.ActionModule(task, connection, SimpleNamespace(), None, None, None)
    calls = Calls()

    def execute(module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        calls.append(module_args)
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


def test_a_right_host_costs_one_call(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = act(engine_action, monkeypatch, engine, [{"changed": False}])
    assert result["changed"] is False
    (call,) = calls
    assert call["target"]["python"] == "3.12"
    assert call["target"]["pins"] == {"ray": "2.60.0", "vllm": "0.32.0", "uv": "0.13.8"}
    assert len(call["target"]["manifest"]) == 3


def test_what_a_host_needs_is_sent_before_it_builds(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "Courier", Courier)
    _result, first = act(engine_action, monkeypatch, engine, [{"changed": False}])
    need = [{"sha256": row[2], "size": row[1], "have": 0} for row in first[0]["target"]["manifest"][:1]]
    answers = [{"changed": True, "need": need, "diff": "d"}] * 2 + [{"changed": True}, {"changed": True}]
    result, calls = act(engine_action, monkeypatch, engine, answers)
    assert calls.stages() == ["apply", "apply", "receive", "apply"]
    assert calls[1]["target"]["unpacked"] == 12
    assert calls[2]["parts"][0]["sha256"] == need[0]["sha256"]
    assert (result["sent_bytes"], result["diff"], result["changed"]) == (42, "d", True)


def test_wheels_that_do_not_arrive_whole(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "Courier", Courier)
    _result, first = act(engine_action, monkeypatch, engine, [{"changed": False}])
    need = {"changed": True, "need": [{"sha256": first[0]["target"]["manifest"][0][2], "size": 1, "have": 0}]}
    with pytest.raises(AnsibleActionFail, match="spark-01: 1 wheels did not arrive whole"):
        act(engine_action, monkeypatch, engine, [need, need, {"changed": True}, need])


def test_an_interpreter_of_its_own_is_asked(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    probed = {"target": {"version": "3.13.5", "machine": "aarch64", "glibc": "2.41"}}
    args = {**engine, "python": "/opt/python3.13/bin/python3"}
    _result, calls = act(engine_action, monkeypatch, args, [probed, {"changed": False}])
    assert calls.stages() == ["probe", "apply"]
    assert calls[1]["target"]["python"] == "3.13"


def test_a_lacking_wheel_names_host_and_target(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    next(Path(engine["wheel_dir"]).glob("vllm*")).unlink()
    for stage in ("apply", "prepare"):
        with pytest.raises(
            AnsibleActionFail, match=r"host spark-01: .*for Python 3\.12 on aarch64 .*: vllm==0\.32\.0\."
        ):
            act(engine_action, monkeypatch, {**engine, "stage": stage}, [])


def test_check_mode_fetches_nothing(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    next(Path(engine["wheel_dir"]).glob("vllm*")).unlink()
    args = {**engine, "download": True}
    result, calls = act(engine_action, monkeypatch, args, [], check=True)
    assert (result["changed"], calls) == (True, [])
    assert "1 of 3 wheels would be fetched" in result["msg"]
    result, _calls = act(engine_action, monkeypatch, {**args, "stage": "prepare"}, [], check=True)
    assert (result["changed"], result["missing"]) == (False, ["vllm==0.32.0"])


def test_wheels_need_to_know_the_host(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleActionFail, match="node_info first"):
        act(engine_action, monkeypatch, {**engine, "stage": "prepare"}, [], facts={})
    result, _calls = act(engine_action, monkeypatch, {**engine, "stage": "prepare"}, [])
    assert (result["target"], result["fetched"]) == ("cp312-aarch64", [])


@pytest.mark.parametrize("check", [False, True])
def test_a_swapped_wheel_is_refused_before_anything_changes(
    engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    Path(engine["wheel_dir"], "uv-0.13.8-py3-none-any.whl").write_bytes(b"#!/bin/sh")
    with pytest.raises(AnsibleActionFail, match=r"^host spark-01: engine_wheel_dir: .* does not name: uv-0\.13\.8"):
        act(engine_action, monkeypatch, {**engine, "stage": "prepare"}, [], check=check)


def parity(monkeypatch: pytest.MonkeyPatch, engines: dict[str, dict[str, Any]]) -> dict[str, Any]:
    hostvars = {host: {"ansible_facts": {"sparkthor_engine": engine}} for host, engine in engines.items()}
    hostvars["spark-09"] = {"ansible_facts": {}}
    return act(
        cluster_plan, monkeypatch, {"stage": "engine"}, [], hostvars=hostvars, ansible_play_hosts=[*engines, "spark-09"]
    )[0]


SAME = {"python": "3.12", "versions": {"ray": "2.60.0", "vllm": "0.32.0+cu130", "torch": "2.13.0"}}


def test_parity_of_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"python": "3.12", "versions": {**SAME["versions"], "vllm": "0.32.0", "transformers": "5"}}
    assert list(parity(monkeypatch, {"spark-01": SAME, "thor-01": other})["engines"]) == ["spark-01", "thor-01"]
    old = {"python": "3.11", "versions": {**SAME["versions"], "ray": "2.59.0"}}
    with pytest.raises(AnsibleActionFail) as caught:
        parity(monkeypatch, {"spark-01": SAME, "thor-01": old})
    assert "host      python  ray\nspark-01  3.12    2.60.0\nthor-01   3.11    2.59.0\n" in str(caught.value)


@pytest.mark.parametrize(
    ("by_host", "table"),
    [
        ({}, ""),
        ({"a": {"ray": "2.60.0"}, "b": {"ray": "2.60.0"}}, ""),
        # another machine's build of the same release, and a host that was not asked
        ({"a": {"torch": "2.13.0+cu130"}, "b": {"torch": "2.13.0+cpu"}, "c": {}}, ""),
        (
            {"a": {"python": "3.12.3", "ray": "2.60.0"}, "b": {"python": "3.12.3", "ray": "2.59.1"}},
            "host  ray\na     2.60.0\nb     2.59.1\n",
        ),
        ({"a": {"vllm": "0.32.0"}, "b": {}, "c": {"vllm": "absent"}}, "host  vllm\na     0.32.0\nc     absent\n"),
        (
            {"a": {"python": "3.12.3", "ray": "2.60.0"}, "b": {"torch": "1"}},
            "host  python  ray     torch\na     3.12.3  2.60.0  -\nb     -       -       1\n",
        ),
    ],
)
def test_versions_before_a_start(
    monkeypatch: pytest.MonkeyPatch, by_host: dict[str, dict[str, str]], table: str
) -> None:
    hostvars: dict[str, Any] = {host: {"__info": {"versions": versions}} for host, versions in by_host.items()}
    hostvars["skipped"] = {"__info": {"skipped": True}}
    arguments = {"stage": "engine", "nodes": "__info"}
    told: dict[str, Any] = {"hostvars": hostvars, "ansible_play_hosts": [*hostvars]}
    if table:
        with pytest.raises(AnsibleActionFail) as caught:
            act(cluster_plan, monkeypatch, arguments, [], **told)
        assert str(caught.value).startswith("Ray was not touched. All nodes of a cluster need the same Python, Ray, ")
        assert f":\n{table}Run the engine role on all hosts." in str(caught.value)
    else:
        engines = act(cluster_plan, monkeypatch, arguments, [], **told)[0]["engines"]
        assert list(engines) == [host for host, versions in by_host.items() if versions]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_models_are_declared_by_their_contents(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "Courier", Courier)
    args = {"models": [{"name": "tiny", "source": str(model)}]}
    result, calls = act(model_store, monkeypatch, args, [{"changed": False, "models": {}}])
    assert result["changed"] is False
    (row,) = calls[0]["models"][0]["manifest"]
    assert row[:2] == ["config.json", 2]
    assert calls[0]["models"][0]["folder"] == revision_folder("tiny", [Entry(*row)])
    need = {"changed": True, "diff": "d", "need": [{"sha256": row[2], "size": 2, "have": 0}]}
    result, calls = act(model_store, monkeypatch, args, [need, {"changed": True}, {"changed": True}])
    assert calls.stages() == ["apply", "receive", "apply"]
    assert calls[1]["parts"] == [{"sha256": row[2], "path": str(model / "config.json")}]
    assert (result["sent_bytes"], result["diff"]) == (42, "d")


def test_a_hub_model_goes_by_its_commit(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        hub, "snapshot", lambda repo, revision, name, fetch, say: (str(model), "c" * 40) if fetch else (None, "")
    )
    monkeypatch.setattr(hub_outline, "outline", lambda repo, revision, fetch: None)
    args = {"models": [{"name": "tiny", "source": "owner/tiny", "revision": "main"}]}
    _result, calls = act(model_store, monkeypatch, args, [{"changed": False}])
    assert calls[0]["models"][0]["commit"] == "c" * 40
    result, calls = act(model_store, monkeypatch, args, [], check=True)
    assert (result["changed"], calls) == (True, [])
    assert "tiny" in result["msg"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"source": "/x"}, "needs a name"),
        ({"name": "../x", "source": "/x"}, "named with letters"),
        ({"name": "tiny", "source": "/nowhere"}, "is not a folder"),
        ({"name": "tiny", "source": "/x", "revision": "main"}, "a folder has no revision"),
        ({"name": "tiny", "source": "tiny"}, "neither a folder"),
    ],
)
def test_bad_declarations_name_the_variable(
    entry: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AnsibleActionFail, match=f"model_store_models: .*{message}"):
        act(model_store, monkeypatch, {"models": [entry]}, [])


FABRIC = {
    f"spark-0{number}": {"links": [{"address": f"10.100.{half * 128}.{number}/17"} for half in (0, 1)]}
    for number in (1, 2, 3)
}


def fan_out(model: Path, stage: str, need: dict[str, list[dict[str, Any]]], **more: Any) -> tuple[dict, dict]:
    """Arguments and variables of a step for spark-01, after all hosts were checked."""
    args = {
        "stage": stage,
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
def lacking(model: Path) -> dict[str, Any]:
    entry = push.manifest(str(model), ["config.json"])[0]
    return {"sha256": entry.sha256, "size": 2, "have": 0}


def test_a_check_reports_what_is_lacking_and_no_change(
    model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    args, variables = fan_out(model, "check", {"spark-01": []})
    result, calls = act(model_store, monkeypatch, args, [{"changed": True, "need": [lacking]}], **variables)
    assert (result["changed"], result["need"]) == (False, [lacking])
    assert result["revisions"] == {"tiny": calls[0]["models"][0]["folder"]}
    # the fabric plan of a big cluster is not for the host
    assert "fabric" not in calls[0]


def test_the_names_are_switched_once_every_host_has_the_revisions(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args, variables = fan_out(model, "switch", {"spark-01": [], "spark-02": []})
    # a worker of Ray loads what the head's configuration names
    variables["hostvars"]["spark-02"]["__model_store_check"]["named"] = ["tiny@" + "0" * 16]
    everywhere = {**variables, "ansible_play_hosts_all": ["spark-01", "spark-02"]}
    result, calls = act(model_store, monkeypatch, args, [{"changed": True}], **everywhere)
    assert (result["changed"], calls[0]["stage"], calls[0]["in_use"]) == (True, "switch", ["tiny@" + "0" * 16])
    one_away = {**variables, "ansible_play_hosts_all": ["spark-01", "spark-02", "spark-03"]}
    with pytest.raises(AnsibleActionFail, match="spark-03 failed or are away, so every host keeps the revisions"):
        act(model_store, monkeypatch, args, [], **one_away)
    unused = {"stage": "list", "models": args["models"], "results": "__model_store_check"}
    _result, calls = act(
        model_store, monkeypatch, {**unused, "remove_unused": True}, [{"changed": False}], **everywhere
    )
    assert calls[0]["in_use"] == ["tiny@" + "0" * 16]
    with pytest.raises(AnsibleActionFail, match="spark-03 failed or are away, so nothing was removed"):
        act(model_store, monkeypatch, {**unused, "remove_unused": True}, [], **one_away)


def test_the_seed_alone_gets_something_from_the_controller(
    model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "Courier", Courier)
    everyone = {f"spark-0{number}": [lacking] for number in (1, 2, 3)}
    args, variables = fan_out(model, "seed", everyone)
    result, calls = act(model_store, monkeypatch, args, [{"changed": True}, {"changed": True}], **variables)
    assert (result["seed"], result["sent_bytes"], calls.stages()) == ("spark-01", 42, ["receive", "check"])
    assert len(fanout.key(result["run"])) == 64
    # one that has it all is the seed, and then nobody gets anything from here
    args, variables = fan_out(model, "seed", {**everyone, "spark-02": []})
    result, calls = act(model_store, monkeypatch, args, [], **variables)
    assert (result, list(calls)) == ({"changed": False, "seed": "spark-02"}, [])


WEIGHTS = Entry("model.safetensors", 7, "7" * 64)


@pytest.fixture
def outlined(model: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The folder has the small file alone; the list grows when the whole is fetched."""
    fetched: list[bool] = []

    def snapshot(repo: str, revision: str, name: str, fetch: bool, say: Any) -> tuple[str, str]:
        assert (repo, revision, fetch) == ("owner/tiny", "c" * 40, True)
        fetched.append(True)
        (model / "model.safetensors").write_bytes(b"weights")
        return str(model), "c" * 40

    monkeypatch.setattr(push, "Courier", Courier)
    monkeypatch.setattr(hub, "snapshot", snapshot)
    monkeypatch.setattr(
        hub_outline, "outline", lambda *_given: hub_outline.Outline(str(model), "c" * 40, [WEIGHTS], True)
    )
    hashed = push.manifest
    monkeypatch.setattr(
        push,
        "manifest",
        lambda folder, names: [WEIGHTS if entry.path == WEIGHTS.path else entry for entry in hashed(folder, names)],
    )
    return fetched


def outlined_step(stage: str, need: dict[str, list[dict[str, Any]]]) -> tuple[dict, dict]:
    args, variables = fan_out(Path("/unused"), stage, need)
    return {**args, "models": [{"name": "tiny", "source": "owner/tiny", "revision": "main"}]}, variables


BIG = {"sha256": WEIGHTS.sha256, "size": 7, "have": 0}


def test_what_a_host_has_in_its_own_cache_is_not_downloaded(
    lacking: dict[str, Any], outlined: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    args, variables = outlined_step("check", {"spark-01": []})
    taken = {"bytes": 7, "caches": ["/home/ada/hub"]}
    answer = {"changed": True, "need": [lacking], "from_caches": taken}
    _result, calls = act(model_store, monkeypatch, args, [answer], **variables)
    assert [row[0] for row in calls[0]["models"][0]["manifest"]] == ["config.json", "model.safetensors"]
    # it lacks least, so it is the seed, and tells the parts of what the controller has never seen
    args, variables = outlined_step("seed", {"spark-01": [lacking], "spark-02": [lacking, BIG]})
    answers = [{"changed": True}, {"changed": True}, {"changed": False, "parts": {WEIGHTS.sha256: ["9" * 64]}}]
    result, calls = act(model_store, monkeypatch, args, answers, **variables)
    assert calls.stages() == ["receive", "check", "parts"]
    assert json.loads(calls[2]["job"])["wanted"] == [WEIGHTS.sha256]
    args, variables = outlined_step("start", {"spark-01": [lacking], "spark-02": [lacking, BIG]})
    variables["hostvars"]["spark-01"]["__model_store_run"] = result
    _result, calls = act(model_store, monkeypatch, args, [{"changed": False}], **variables)
    contents = {row[0]: row[2] for row in json.loads(calls[0]["job"])["contents"]}
    assert contents == {WEIGHTS.sha256: ["9" * 64], lacking["sha256"]: [lacking["sha256"]]}
    assert outlined == []


def test_what_no_host_has_is_downloaded_when_it_is_sent(
    lacking: dict[str, Any], outlined: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    everyone = {f"spark-0{number}": [lacking, BIG] for number in (1, 2)}
    args, variables = outlined_step("seed", everyone)
    result, calls = act(model_store, monkeypatch, args, [{"changed": True}, {"changed": True}], **variables)
    assert (outlined, calls.stages(), "parts" in result) == ([True], ["receive", "check"], False)


def test_a_job_holds_route_parts_and_key(model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run = fanout.new_run()
    args, variables = fan_out(
        model, "start", {"spark-01": [lacking], "spark-02": [], "spark-03": [lacking]},
        spark_02={"__model_store_run": {"seed": "spark-02", "run": run}},
    )  # fmt: skip
    result, calls = act(model_store, monkeypatch, args, [{"changed": False}], **variables)
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
    for stage in ("start", "finish"):
        args, variables = fan_out(model, stage, {"spark-01": [lacking]})
        result, calls = act(model_store, monkeypatch, args, [], **variables)
        assert (result["changed"], list(calls)) == (False, [])


def test_a_host_that_did_not_get_it_is_named(
    model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    args, variables = fan_out(
        model, "finish", {"spark-01": [lacking], "spark-02": []},
        spark_02={"__model_store_run": {"seed": "spark-02", "run": "ab" * 8}},
    )  # fmt: skip
    answer = {"failed": True, "msg": "nothing arrived for 60 s"}
    result, calls = act(model_store, monkeypatch, args, [answer], **variables)
    assert (result["failed"], result["msg"]) == (True, "host spark-01: nothing arrived for 60 s")
    assert (calls[0]["stage"], json.loads(calls[0]["job"])) == ("finish", {"run": "ab" * 8})


def test_wheels_are_handed_over_to_the_fabric(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = push.manifest(engine["wheel_dir"], sorted(path.name for path in Path(engine["wheel_dir"]).iterdir()))[0]
    need = [{"sha256": wheel.sha256, "size": wheel.size, "have": 0}]
    answers = [{"changed": True, "need": need, "diff": {}}] * 2
    result, calls = act(engine_action, monkeypatch, {**engine, "deliver": "fabric"}, answers)
    assert (result["changed"], result["need"], result["models"]) == (False, need, {})
    assert result["wheels"]["root"] == "/opt/sparkthor/wheels"
    model = result["wheels"]["model"]
    assert (model["source"], len(model["files"])) == (engine["wheel_dir"], 3)
    # the engine looks for them by this very name
    (declared,) = declare([model], fetch=False).models
    assert declared["folder"] == declared["name"] == model["name"]
    # the second check knew how much is to be built, so that a disk that is too small stops the run here
    assert calls[1]["target"]["unpacked"] > 0
    result, _calls = act(engine_action, monkeypatch, {**engine, "deliver": "fabric"}, [{"changed": False}])
    assert "wheels" not in result


def test_a_listing_knows_the_declared_names_without_their_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    args = {
        "stage": "list",
        "models": [
            {"name": "tiny", "source": "/nowhere"},
            {"name": "x", "source": "owner/model", "layout": "hub"},
        ],
        "keep": ["old"],
    }
    _result, calls = act(model_store, monkeypatch, args, [{"changed": False, "inventory": []}])
    assert calls[0]["declared"] == ["tiny", "models--owner--model"]
    assert calls[0]["keep"] == ["tiny", "models--owner--model", "old"]


def test_a_url_is_fetched_by_the_controller(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_url, "fetch", lambda url, cache, fetch: str(model) if fetch else None)
    args = {"models": [{"name": "tiny", "source": "s3://bucket/tiny"}]}
    _result, calls = act(model_store, monkeypatch, args, [{"changed": False}])
    assert calls[0]["models"][0]["manifest"][0][0] == "config.json"
    result, calls = act(model_store, monkeypatch, args, [], check=True)
    assert (result["changed"], list(calls)) == (True, [])


def hub_folder(tmp_path: Path, commit: str = "c" * 40) -> Path:
    """A model in a cache of the hub's client."""
    tree = tmp_path / "hub" / "models--o--n"
    (tree / "blobs").mkdir(parents=True, exist_ok=True)
    (tree / "blobs" / commit).write_text(commit)
    snapshot = tree / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").symlink_to(tree / "blobs" / commit)
    return snapshot


def test_a_listing_calls_a_model_by_the_name_under_which_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = hub_folder(tmp_path)
    (tmp_path / "current").symlink_to(snapshot)
    for source in (snapshot, tmp_path / "current", "/not/mounted/models--o--n/snapshots/" + "c" * 40):
        models = [{"name": "n", "source": str(source), "layout": "hub"}]
        _result, calls = act(model_store, monkeypatch, {"stage": "list", "models": models}, [{"changed": False}])
        assert calls[0]["declared"] == ["models--o--n"]
    # the folder's name cannot be known: nothing may be called unused
    models = [{"name": "n", "source": "/not/mounted/current", "layout": "hub"}]
    with pytest.raises(AnsibleActionFail, match="n: layout hub needs a model of the hub's cache"):
        act(model_store, monkeypatch, {"stage": "list", "models": models}, [])


def test_two_models_of_one_name_are_refused(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = hub_folder(tmp_path), hub_folder(tmp_path, "d" * 40)
    for models, message in (
        ([{"name": "tiny", "source": str(model)}, {"name": "tiny", "source": "/other"}], "tiny and tiny .* be tiny in"),
        (
            [{"name": name, "source": str(path), "layout": "hub"} for name, path in (("a", one), ("b", two))],
            "a and b are both to be models--o--n in the store",
        ),
        ([{"name": name, "source": "o/n", "layout": "hub", "revision": name} for name in ("v1", "v2")], "v1 and v2"),
    ):
        with pytest.raises(AnsibleActionFail, match=message):
            act(model_store, monkeypatch, {"models": models}, [])


def watch(model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch, nodes: dict[str, Any]) -> dict:
    args, variables = fan_out(
        model, "watch", {"spark-01": [], "spark-02": [lacking]},
        spark_01={"__model_store_run": {"seed": "spark-01", "run": "ab" * 8}},
    )  # fmt: skip
    monkeypatch.setattr(fanout, "follow", lambda board, ask: nodes)
    return act(model_store, monkeypatch, args, [], **variables)[0]


def test_the_seeds_own_failure_is_said(model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    said = "cannot listen on 10.100.0.1 port 29870: Address already in use"
    commands: list[str] = []
    monkeypatch.setattr(
        model_store.ActionModule, "_low_level_execute_command", lambda self, command: commands.append(command)
    )
    with pytest.raises(AnsibleActionFail, match=f"host spark-01: {said}"):
        watch(model, lacking, monkeypatch, {"spark-01": {"state": "failed", "error": said}})
    assert commands == ["systemctl reset-failed sparkthor-fanout.service"]
    # what others say is for the step after it, host by host
    nodes = {"spark-01": {"state": "done"}, "spark-02": {"state": "failed", "error": "x"}}
    assert watch(model, lacking, monkeypatch, nodes)["nodes"] == nodes


# -- hosts that lie ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["apply", "check"])
@pytest.mark.parametrize("need", [[{"sha256": "9" * 64, "size": 1, "have": 0}], "all", [{"sha256": None}], [5]])
def test_a_host_asks_for_nothing_that_was_not_declared(
    model: Path, stage: str, need: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "Courier", Courier)
    args, variables = fan_out(model, stage, {"spark-01": []})
    with pytest.raises(AnsibleActionFail, match="spark-01: it asks for a content that was not declared for it"):
        act(model_store, monkeypatch, args, [{"changed": True, "need": need}], **variables)


def test_sizes_are_those_that_the_controller_knows(
    model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    args, variables = fan_out(model, "check", {"spark-01": []})
    lie = {**lacking, "size": 10**15, "file": "/etc/shadow"}
    result, _calls = act(model_store, monkeypatch, args, [{"changed": True, "need": [lie]}], **variables)
    assert result["need"] == [lacking]


def test_what_a_first_host_answers_decides_over_no_other(
    model: Path, lacking: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts, above all: the controller has the file, and so the digests of its parts."""
    monkeypatch.setattr(push, "Courier", Courier)
    args, variables = fan_out(model, "seed", {f"spark-0{number}": [lacking] for number in (1, 2, 3)})
    lie = {"changed": True, "parts": {lacking["sha256"]: ["0" * 64]}, "run": "../../x", "seed": "spark-03"}
    result, _calls = act(model_store, monkeypatch, args, [{"changed": True}, lie], **variables)
    assert "parts" not in result
    assert (result["seed"], len(result["run"])) == ("spark-01", 16)


@pytest.mark.parametrize("parts", [None, {}, {WEIGHTS.sha256: ["x"]}, {WEIGHTS.sha256: []}, [1]])
def test_parts_that_are_none_stop_the_run_before_it_starts(
    outlined: list[bool], parts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    args, variables = outlined_step("seed", {"spark-01": [], "spark-02": [BIG], "spark-03": [BIG]})
    with pytest.raises(AnsibleActionFail, match="spark-01: what it tells about the parts of 777777777777… are not 1"):
        act(model_store, monkeypatch, args, [{"changed": False, "parts": parts}], **variables)


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
            act(model_store, monkeypatch, args, [{"changed": True}] * 2, **variables)
    assert carried == []


def test_a_host_does_not_say_what_is_passed_on(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = {"root": "/x", "model": {"name": "x", "source": "/root/.ssh", "files": ["id_rsa"]}}
    result, _calls = act(engine_action, monkeypatch, engine, [{"changed": False, "wheels": wheels}])
    assert "wheels" not in result
    for deliver in ("fabric", "direct"):
        answer = {"changed": True, "need": [{"sha256": "9" * 64, "size": 1, "have": 0}]}
        with pytest.raises(AnsibleActionFail, match="spark-01: it asks for a content that was not declared for it"):
            act(engine_action, monkeypatch, {**engine, "deliver": deliver}, [answer] * 2)
