# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side of the image: what is checked there, and what is sent in which order."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import (
    cluster_plan,
    engine_image,
    engine_image_build,
    engine_image_pull,
    engine_prepare,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.progress_line import ProgressLine
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import images, models, push

from tests.unit.engine_lock import locked, write_wheels

NODE = {"arch": "aarch64", "binaries": {"docker": "/usr/bin/docker"}}
CONFIG = b'{"architecture": "arm64"}'
IMAGE = "sha256:" + hashlib.sha256(CONFIG).hexdigest()
INSIDE = {"version": "3.12.3", "machine": "aarch64", "glibc": "2.39"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(images.registry, "digest_of_tag", lambda _name, _tag: ("", "no route"))


@pytest.fixture
def args(tmp_path: Path) -> dict[str, Any]:
    pins = ("ray==2.60.0", "click==8.5.1", "uv==0.13.8")
    (tmp_path / "lock.txt").write_text(locked(*pins))
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheels(wheels, *pins)
    rows = [{"Config": "config.json", "RepoTags": ["own/vllm:1"], "Layers": []}]
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        for name, data in (("manifest.json", json.dumps(rows).encode()), ("config.json", CONFIG)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return {
        "requirements": str(tmp_path / "lock.txt"),
        "wheel_dir": str(wheels),
        "download": False,
        "archive": str(tmp_path / "image.tar"),
    }


def act(
    monkeypatch: pytest.MonkeyPatch,
    args: dict[str, Any],
    answers: list[dict[str, Any]],
    node: dict[str, Any] | None = None,
    check: bool = False,
    module: Any = engine_image,
    **variables: Any,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    task = SimpleNamespace(
        args=args, check_mode=check, diff=True, async_val=0, action="x", delegate_to=None, run_once=True
    )
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=None))
    action = module.ActionModule(task, connection, SimpleNamespace(), None, None, None)
    calls: list[dict[str, Any]] = []

    def execute(module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        calls.append({**json.loads(json.dumps(module_args)), "module": module_name.rpartition(".")[2]})
        return dict(answers.pop(0))

    monkeypatch.setattr(action, "_execute_module", execute)
    facts = {"sparkthor_node": NODE if node is None else node}
    return action.run(task_vars={"inventory_hostname": "spark-01", "ansible_facts": facts, **variables}), calls


class Courier:
    """Carries nothing; hands over one part for each content that was asked for."""

    carried: list[str] = []

    def __init__(self, action: Any, what: str, host: str, say: Any) -> None:
        self.sent = 21
        self.carried.append(what)

    def deliver(self, wanted: Any, receive: Any) -> None:
        receive([{"sha256": content.sha256, "path": content.path} for content in wanted])


def test_a_right_host_costs_one_call(args: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = act(monkeypatch, args, [{"changed": False, "nccl": ["x"]}])
    assert result["changed"] is False
    assert "warnings" not in result
    target = calls[0]["target"]
    assert (target["image"], target["archive"]["image"]) == ("own/vllm:1", IMAGE)
    assert ["ray", "2.60.0"] in target["pins"]
    assert len(calls) == 1


def test_an_archives_image_may_be_pinned_in_its_name(args: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    _result, calls = act(monkeypatch, {**args, "image": f"own/vllm:1@{IMAGE}"}, [{"changed": False}])
    assert (calls[0]["target"]["image"], calls[0]["target"]["archive"]["others"]) == ("own/vllm:1", [])


def test_archive_then_wheels_then_done(args: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "Courier", Courier)
    Courier.carried.clear()
    data = Path(args["archive"]).read_bytes()
    archive = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "have": 0}
    wheel = Path(args["wheel_dir"], "ray-2.60.0-py3-none-any.whl").read_bytes()
    wheels = {"sha256": hashlib.sha256(wheel).hexdigest(), "size": len(wheel), "have": 0}
    answers = [
        {"changed": True, "need": [archive], "what": "archive"},
        {"changed": True},  # received
        {"changed": True, "wanted": [["ray", "2.60.0"], ["uv", "0.13.8"]], "probe": INSIDE},
        {"changed": True, "need": [wheels], "what": "wheels"},
        {"changed": True},  # received
        {"changed": True, "nccl": ["/etc/nccl.conf: NCCL_IB_DISABLE=1"]},
    ]
    result, calls = act(monkeypatch, args, answers)
    assert Courier.carried == ["image", "Ray's wheels"]
    assert [call["module"] for call in calls] == [
        *("engine_image", "store_receive", "engine_image", "engine_image", "store_receive", "engine_image")
    ]
    # only what the image lacks is chosen, for the image's Python
    assert [row[0] for row in calls[3]["target"]["wheels"]] == [
        *("ray-2.60.0-py3-none-any.whl", "uv-0.13.8-py3-none-any.whl")
    ]
    assert (result["changed"], result["sent_bytes"]) == (True, 42)
    assert "NCCL_IB_DISABLE=1" in result["warnings"][0]


def test_an_archive_is_handed_over_to_the_fabric(args: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    data = Path(args["archive"]).read_bytes()
    need = [{"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "have": 0}]
    answer = {"changed": True, "need": need, "what": "archive"}
    result, calls = act(monkeypatch, {**args, "deliver": "fabric"}, [answer])
    assert (result["changed"], result["need"], result["models"]) == (False, need, {})
    archive = Path(args["archive"])
    assert result["wheels"] == {
        "root": "/opt/sparkthor/images",
        "model": {"name": "archive", "source": str(archive.parent), "files": [archive.name], "revisions": False},
    }
    assert "deliver" not in calls[0]


def test_what_never_arrives_whole_ends(args: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "Courier", Courier)
    data = Path(args["archive"]).read_bytes()
    need = {"need": [{"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "have": 0}], "what": "archive"}
    with pytest.raises(AnsibleActionFail, match="did not arrive whole"):
        act(monkeypatch, args, [need, {"changed": True}] * 6)


def test_a_failure_on_the_host_is_the_result(args: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    result, _calls = act(monkeypatch, args, [{"failed": True, "msg": "disk on fire"}])
    assert (result["failed"], result["msg"]) == (True, "disk on fire")


def test_preflight_speaks_to_no_host(args: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    before = {**args, "runtime": "container"}
    result, calls = act(monkeypatch, dict(before), [], module=engine_prepare)
    assert (result["image"], result["digest"], calls) == ("own/vllm:1", IMAGE, [])
    with pytest.raises(AnsibleActionFail, match=r"spark-01: engine_runtime: container needs Docker"):
        act(monkeypatch, before, [], module=engine_prepare, node={**NODE, "binaries": {"docker": ""}})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"archive": "", "image": ""}, "engine_image is empty"),
        ({"archive": "", "image": "own/vllm:latest"}, "a tag that moves"),
        ({"archive": "/nowhere.tar"}, "nowhere.tar is not on the controller"),
        ({"digest": "sha256:" + "0" * 64}, "engine_image_digest is sha256:000"),
        ({"image": "own/vllm:1@sha256:" + "0" * 64}, "engine_image is sha256:000"),
        ({"requirements": "/nowhere.txt"}, "engine_image_requirements: /nowhere.txt"),
        ({"ray_version": "2.59.0"}, "engine_ray_version is '2.59.0'"),
    ],
)
def test_bad_input(args: dict[str, Any], monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: str) -> None:
    for module, more in ((engine_prepare, {"runtime": "container"}), (engine_image, {})):
        with pytest.raises(AnsibleActionFail) as caught:
            act(monkeypatch, {**args, **changes, **more}, [], module=module)
        assert "host spark-01: " in str(caught.value)
        assert words in str(caught.value)


def test_an_archive_for_another_machine(args: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleActionFail, match="is for aarch64, this host is x86_64"):
        act(monkeypatch, args, [], node={**NODE, "arch": "x86_64"})


def test_two_images_of_one_tag_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    same = {"python": "3.12", "versions": {"ray": "2.60.0"}}
    engines = {"spark-01": {**same, "image_id": "sha256:" + "a" * 64}, "spark-02": {**same, "image_id": "sha256:bbbb"}}
    task = SimpleNamespace(
        args={"stage": "engine"}, check_mode=False, diff=False, async_val=0, action="x", delegate_to=None
    )
    action = cluster_plan.ActionModule(
        task, SimpleNamespace(_shell=SimpleNamespace(tmpdir=None)), SimpleNamespace(), None, None, None
    )
    hostvars = {host: {"ansible_facts": {"sparkthor_engine": engine}} for host, engine in engines.items()}
    with pytest.raises(AnsibleActionFail) as caught:
        action.run(task_vars={"hostvars": hostvars, "ansible_play_hosts": list(engines)})
    assert "engine_image_digest" in str(caught.value)
    assert f"spark-01  {'a' * 12}\nspark-02  bbbb" in str(caught.value)


A, B = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"


@pytest.fixture
def pull(args: dict[str, Any]) -> dict[str, Any]:
    return {**args, "archive": "", "image": "own/vllm:1"}


def test_the_first_pull_is_recorded_and_all_later_ones_follow_it(
    pull: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / ".sparkthor-lock.json"
    act(monkeypatch, pull, [{"changed": True, "pulled": [A]}], check=True, inventory_dir=str(tmp_path))
    assert not file.exists()
    _result, calls = act(monkeypatch, pull, [{"changed": True, "pulled": [A]}], inventory_dir=str(tmp_path))
    assert calls[0]["digest"] == ""
    assert json.loads(file.read_text()) == {"images": {"own/vllm:1": A}}
    _result, calls = act(monkeypatch, pull, [{"changed": False, "pulled": [A, B]}], inventory_dir=str(tmp_path))
    assert calls[0]["digest"] == A
    gone = {"failed": True, "msg": f"docker pull: manifest for own/vllm@{A} not found"}
    result, _calls = act(monkeypatch, pull, [gone], inventory_dir=str(tmp_path))
    assert result["msg"].endswith(f"(this digest of own/vllm:1 is recorded in {file} since its first pull)")


def test_the_registrys_word_comes_before_any_hosts(
    pull: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, where = tmp_path / ".sparkthor-lock.json", {"inventory_dir": str(tmp_path)}
    asked: list[tuple[str, str]] = []

    def answer(name: str, tag: str) -> tuple[str, str]:
        asked.append((name, tag))
        return A, ""

    monkeypatch.setattr(images.registry, "digest_of_tag", answer)
    # a host that has another image under the tag
    with pytest.raises(
        AnsibleActionFail, match=f"^host spark-01: engine_image: .*{B} there, and {A} at its registry.*docker rmi"
    ):
        act(monkeypatch, pull, [{"changed": False, "pulled": [B]}], **where)
    assert not file.exists()
    # whoever pulls is told which
    variables = registered(spark_01=LACKS, spark_02=LACKS)
    answers = [{"changed": True, "pulling": False}, {"changed": False, "pulled": [A], "saved": SAVED}]
    step = {"image": pull["image"]}
    result, calls = act(monkeypatch, step, answers, module=engine_image_pull, **where, **variables)
    assert [call["digest"] for call in calls] == [A, A]
    assert "warnings" not in result
    assert json.loads(file.read_text())["images"] == {"own/vllm:1": A}
    assert asked == [("own/vllm", "1")] * 2
    # what is recorded is asked for no more, and holds for every host
    with pytest.raises(AnsibleActionFail, match=f"is {B} there, but {A} since"):
        act(monkeypatch, pull, [{"changed": False, "pulled": [B]}], **where)
    assert len(asked) == 2


def test_without_the_registry_the_first_hosts_word_is_named(
    pull: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _calls = act(monkeypatch, pull, [{"changed": True, "pulled": [A]}], inventory_dir=str(tmp_path))
    (warning,) = result["warnings"]
    assert [word in warning for word in ("spark-01", A, "(no route)", "engine_image_digest")] == [True] * 4
    result, _calls = act(monkeypatch, pull, [{"changed": True, "pulled": [A]}], inventory_dir=str(tmp_path))
    assert "warnings" not in result
    own = {**pull, "image": "localhost:5000/vllm:1"}
    result, _calls = act(monkeypatch, own, [{"changed": True, "pulled": [B]}], inventory_dir=str(tmp_path))
    assert "each host's own" in result["warnings"][0]


def test_a_tag_that_moved_stops_preflight(
    pull: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".sparkthor-lock.json").write_text(json.dumps({"images": {"own/vllm:1": A}}))

    def preflight(answers: list[dict[str, Any]], **more: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        given = {**pull, "runtime": "container", **more}
        return act(monkeypatch, given, answers, module=engine_prepare, inventory_dir=str(tmp_path))

    for found in ([A], []):
        result, calls = preflight([{"pulled": found}])
        assert (result["changed"], [call["module"] for call in calls]) == (False, ["engine_image"])
    words = rf"^host spark-01: engine_image: 'own/vllm:1': is {B} there, but {A} since its first pull .*docker rmi own/"
    with pytest.raises(AnsibleActionFail, match=words):
        preflight([{"pulled": [B]}])
    # the inventory's own word outranks the record, and then no host is asked
    result, calls = preflight([], digest=B)
    assert calls == []


def test_two_hosts_that_pulled_different_images(
    pull: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    act(monkeypatch, pull, [{"changed": True, "pulled": [A]}], inventory_dir=str(tmp_path))
    with pytest.raises(AnsibleActionFail, match=f"is {B} there, but {A} since"):
        act(monkeypatch, pull, [{"changed": True, "pulled": [B]}], inventory_dir=str(tmp_path))


HOSTS = ("spark-01", "spark-02", "spark-03")
SAVED = {"image": IMAGE, "others": [], "entry": ["image.tar", 5, "e" * 64], "digest": A, "documents": []}


def registered(**results: dict[str, Any]) -> dict[str, Any]:
    """Variables after a task: by host, what it registered."""
    hostvars = {host: {"__engine_installed": results.get(host.replace("-", "_"), {})} for host in HOSTS}
    return {"hostvars": hostvars, "ansible_play_hosts": list(HOSTS), "sparkthor_cluster": {"head": "spark-01"}}


LACKS, HAS = {"lacks": "own/vllm:1"}, {"changed": False, "actions": []}


def test_over_a_fabric_no_host_pulls_before_it_is_known_who_lacks_it(
    pull: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    result, calls = act(monkeypatch, {**pull, "deliver": "fabric"}, [{"changed": True, **LACKS}])
    assert (result["changed"], result["lacks"], calls[0]["target"]["wait"]) == (False, "own/vllm:1", True)
    _result, calls = act(monkeypatch, pull, [{"changed": True}])
    assert calls[0]["target"]["wait"] is False


def test_one_host_pulls_and_says_how_far_it_is(
    pull: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = iter(["0a1b2c3d4e5f: Pulling fs layer\nactive", "", "0a1b2c3d4e5f: Pull complete\nactive", "\ninactive"])
    monkeypatch.setattr(
        engine_image_pull.ActionModule, "_low_level_execute_command", lambda self, command: {"stdout": next(shown)}
    )
    said: list[str] = []
    monkeypatch.setattr(engine_image_pull.ActionModule, "tell", lambda self, line: said.append(line))
    monkeypatch.setattr(engine_image_pull, "ProgressLine", lambda *_given: ProgressLine(False, said.append, sparse=0.0))
    monkeypatch.setattr(engine_image_pull, "ASK_EVERY", 0.0)
    step = {"image": pull["image"]}
    variables = registered(spark_01=LACKS, spark_02=LACKS, spark_03=LACKS)
    answers = [{"changed": True, "pulling": True}, {"changed": False, "pulled": [A], "saved": SAVED}]
    result, calls = act(monkeypatch, step, answers, module=engine_image_pull, inventory_dir=str(tmp_path), **variables)
    assert [(call.get("begun"), call.get("share")) for call in calls] == [(None, None), (True, True)]
    assert (result["changed"], result["saved"]["of"]) == (True, "own/vllm:1")
    assert [line.rpartition(" after ")[0] for line in said[:2]] == [
        "sparkthor: spark-01: own/vllm:1: 0 of 1 layers downloaded, 0 unpacked",
        "sparkthor: spark-01: own/vllm:1: 1 of 1 layers downloaded, 1 unpacked",
    ]
    assert said[2] == "sparkthor: spark-01: own/vllm:1: is being written down for the other hosts"
    assert json.loads((tmp_path / ".sparkthor-lock.json").read_text())["images"] == {"own/vllm:1": A}


def test_the_others_do_not_pull(pull: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    step = {"image": pull["image"]}
    # one that has it passes it on, whatever the head lacks
    for variables in (registered(spark_01=LACKS, spark_02=HAS, spark_03=LACKS), registered(spark_01=HAS)):
        assert act(monkeypatch, step, [], module=engine_image_pull, **variables) == ({"changed": False}, [])
    # and alone it need not write it down
    alone = registered(spark_01=LACKS)
    answers = [{"changed": False, "pulling": False}, {"changed": False, "pulled": [A]}]
    _result, calls = act(monkeypatch, step, answers, module=engine_image_pull, **alone)
    assert calls[1]["share"] is False


def test_what_one_host_wrote_is_handed_over_and_loaded(pull: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    variables = registered()
    variables["hostvars"]["spark-02"]["__engine_pulled"] = {"saved": {**SAVED, "of": "own/vllm:1"}}
    need = [{"sha256": "e" * 64, "size": 5, "have": 0}]
    lacking = {"changed": True, "need": need, "what": "archive"}
    result, calls = act(monkeypatch, {**pull, "deliver": "fabric"}, [lacking], **variables)
    assert calls[0]["target"]["archive"] == {**SAVED, "of": "own/vllm:1", "shared": True}
    assert (calls[0]["digest"], calls[0]["target"]["tidy"]) == (A, False)
    model = {"name": "archive", "source": "/opt/sparkthor/images", "revisions": False, "manifest": [SAVED["entry"]]}
    assert (result["need"], result["models"], result["wheels"]["model"]) == (need, {}, model)
    # the fan-out's own reader takes it as it is
    (declared,) = models.declare([result["wheels"]["model"]], fetch=False).models
    assert (declared["manifest"], declared["folder"]) == ([SAVED["entry"]], "archive")
    # whoever wrote it lacks nothing, and so is the first of the fan-out
    variables["hostvars"]["spark-01"] = variables["hostvars"].pop("spark-02")
    variables["hostvars"]["spark-02"] = {}
    result, _calls = act(monkeypatch, {**pull, "deliver": "fabric"}, [{**HAS, "pulled": [A]}], **variables)
    assert (result["need"], result["wheels"]["model"]) == ([], model)
    _result, calls = act(monkeypatch, pull, [{**HAS, "pulled": [A]}], **variables)
    assert calls[0]["target"]["tidy"] is True
    # no way over the fabric: this host pulls the image itself
    _result, calls = act(monkeypatch, pull, [lacking, {"changed": True, "pulled": [A]}], **variables)
    assert "archive" not in calls[1]["target"]
    # another image than the one that was written
    _result, calls = act(monkeypatch, {**pull, "image": "own/vllm:2"}, [HAS], **variables)
    assert calls[0]["target"]["archive"] == {}


PATCH = b"--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1 +1 @@\n-a\n+b\n"
STEP = {"kind": "patch", "name": "heads", "file": "heads.patch", "sha256": hashlib.sha256(PATCH).hexdigest()}


@pytest.fixture
def build(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "heads.patch").write_bytes(PATCH)
    return {"steps": [STEP], "script": "#!/bin/sh\n", "recipe": "mine", "folder": str(tmp_path)}


def test_an_image_of_steps_that_is_nowhere_is_built_by_one_host(
    args: dict[str, Any], build: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**args, "build": build, "deliver": "fabric"}
    result, calls = act(monkeypatch, dict(given), [{"changed": True, "unbuilt": A}])
    assert result == {"changed": False, "unbuilt": A}
    inputs = calls[0]["target"]["inputs"]
    assert (len(inputs), calls[0]["target"]["built"], calls[0]["target"]["built_everywhere"]) == (64, {}, False)
    monkeypatch.setattr(push, "Courier", Courier)
    Courier.carried.clear()
    need = [{"sha256": STEP["sha256"], "size": len(PATCH), "have": 0}]
    answers: list[dict[str, Any]] = [
        {"changed": True, "need": need},
        {"changed": True},  # received
        {"changed": True, "built": "sparkthor/engine:built-1", "warnings": []},
        {"changed": False, "built": "sparkthor/engine:built-1", "saved": SAVED},
    ]
    step = {**build, "image": "", "archive": args["archive"]}
    unbuilt = registered(spark_01={"unbuilt": A}, spark_02={"unbuilt": B})
    built, calls = act(monkeypatch, dict(step), answers, module=engine_image_build, **unbuilt)
    assert Courier.carried == ["the image's steps"]
    assert built["saved"]["of"] == inputs
    first = calls[0]
    assert (first["base"], first["inputs"], "folder" in first) == (A, inputs, False)
    assert first["files"] == [["00/heads.patch", len(PATCH), STEP["sha256"]]]
    # the others do nothing, and the image goes to them
    others = registered(spark_02={"unbuilt": B}, spark_03={"unbuilt": B})
    assert act(monkeypatch, dict(step), [], module=engine_image_build, **others)[0] == {"changed": False}
    others["hostvars"]["spark-02"]["__engine_built"] = built
    need = [{"sha256": SAVED["entry"][2], "size": 5, "have": 0}]
    result, calls = act(monkeypatch, dict(given), [{"changed": True, "need": need, "what": "archive"}], **others)
    assert (calls[0]["target"]["built"]["image"], "tidy" in calls[0]["target"]) == (IMAGE, False)
    assert result["wheels"]["model"]["manifest"] == [SAVED["entry"]]
    with pytest.raises(AnsibleActionFail, match="the image that spark-02 built did not arrive: run again"):
        act(monkeypatch, {**args, "build": build}, [{"changed": True, "need": need, "what": "archive"}], **others)


def test_a_host_that_has_the_built_image_gives_it_to_a_new_one(
    args: dict[str, Any], build: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = registered(spark_01=HAS, spark_02={"wheels": {}})
    # of an archive that was copied first, the answer after the copy counts
    variables["hostvars"]["spark-02"]["__engine_completed"] = {"unbuilt": B}
    answers = [{"changed": False, "built": "x"}, {"changed": False, "built": "x", "saved": SAVED}]
    step = {**build, "image": "", "archive": args["archive"]}
    result, calls = act(monkeypatch, step, answers, module=engine_image_build, **variables)
    assert (calls[0]["base"], [call["begun"] for call in calls[1:]], result["saved"]["image"]) == ("", [True], IMAGE)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ({"heads.patch": b"another"}, "recipe mine: build: heads: sha256 is"),
        ({"heads.patch": None}, "heads.patch is neither beside the recipe nor in"),
    ],
)
def test_files_of_steps_are_looked_at_before_any_host(
    args: dict[str, Any],
    build: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: dict[str, bytes | None],
    words: str,
) -> None:
    for name, content in spoil.items():
        (tmp_path / name).unlink() if content is None else (tmp_path / name).write_bytes(content)
    for module, more in ((engine_prepare, {"runtime": "container"}), (engine_image, {})):
        with pytest.raises(AnsibleActionFail, match=words):
            act(monkeypatch, {**args, "build": build, **more}, [], module=module)


def test_steps_change_an_image_that_is_known(
    pull: dict[str, Any], build: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = {"inventory_dir": str(tmp_path)}
    with pytest.raises(AnsibleActionFail, match=r"cannot be asked of its registry from here\. Set engine_image_digest"):
        act(monkeypatch, {**pull, "build": build, "runtime": "container"}, [], module=engine_prepare, **where)
    monkeypatch.setattr(images.registry, "digest_of_tag", lambda _name, _tag: (A, ""))
    given = {**pull, "build": build, "runtime": "container"}
    act(monkeypatch, given, [{"pulled": []}], module=engine_prepare, **where)
    _result, calls = act(monkeypatch, {**pull, "build": build}, [{"changed": True, "unbuilt": B}], **where)
    one = calls[0]["target"]["inputs"]
    own = {**pull, "build": build, "digest": B}
    _result, calls = act(monkeypatch, own, [{"changed": True, "unbuilt": B}], **where)
    assert one != calls[0]["target"]["inputs"]
