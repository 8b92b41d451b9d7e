# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import content, models
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry, revision_folder
from ansible_collections.sparkthor.cluster.plugins.modules import (
    model_copy,
    model_fanout,
    model_prune,
    model_switch,
    store_receive,
)

FILES = {"config.json": b"{}", "model.safetensors": b"w" * 1000}


def row(name: str, data: bytes) -> list[Any]:
    return [name, len(data), hashlib.sha256(data).hexdigest()]


class Host:
    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root / "models"
        self._tmp = root
        self._capsys = capsys

    def call(
        self, files: dict[str, dict[str, bytes]], check: bool = False, module: Any = model_copy, **args: Any
    ) -> dict[str, Any]:
        given = [
            {"name": name, "source": "/x", "manifest": [row(*item) for item in contents.items()]}
            for name, contents in files.items()
        ]
        return self._run(module, {"models": given, **args, "_ansible_check_mode": check, "_ansible_diff": True})

    def _run(self, module: Any, args: dict[str, Any]) -> dict[str, Any]:
        with patch_module_args({"root": str(self.root), **args}), pytest.raises(SystemExit):
            module.main()
        return json.loads(self._capsys.readouterr().out)

    def send(self, data: bytes) -> None:
        upload = self._tmp / "upload"
        upload.write_bytes(data)
        part = {"file": str(upload), "sha256": hashlib.sha256(data).hexdigest(), "offset": 0, "size": len(data)}
        assert self._run(store_receive, {"parts": [part]})["changed"] is True


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Host:
    return Host(tmp_path, capsys)


def test_a_model_arrives_and_a_second_run_moves_nothing(host: Host) -> None:
    wanted = {"tiny": FILES}
    prediction = host.call(wanted, check=True)
    assert prediction["changed"] is True
    assert "need" not in prediction
    assert not host.root.exists()
    need = host.call(wanted)["need"]
    assert sorted(item["size"] for item in need) == [2, 1000]
    for data in FILES.values():
        host.send(data)
    result = host.call(wanted)
    assert result["changed"] is True
    assert result["diff"]["before"] == "tiny: 0 of 2 files, 0 owners wrong\n"
    assert result["diff"]["after"] == "tiny: 2 files, 1002 B\n"
    assert result["models"]["tiny"]["path"] == str(host.root / "tiny")
    again = host.call(wanted)
    assert (again["changed"], "need" in again, "diff" in again) == (False, False, False)
    assert sorted(os.listdir(host.root)) == [".records", "tiny"]


def test_second_names_of_a_killed_commit_go_with_the_next_run(host: Host) -> None:
    for data in FILES.values():
        host.send(data)
    host.call({"tiny": FILES})
    incoming = host.root / ".incoming"
    incoming.mkdir(0o700)
    os.link(host.root / "tiny" / "config.json", incoming / hashlib.sha256(FILES["config.json"]).hexdigest())
    assert host.call({"tiny": FILES})["changed"] is False
    assert not incoming.exists()
    host.send(b"of another run")
    host.call({"tiny": FILES})
    assert len(os.listdir(incoming)) == 1
    host.call({}, module=model_prune, declared=["tiny"])
    assert incoming.exists()
    host.call({}, module=model_prune, declared=["tiny"], remove_unused=True)
    assert sorted(os.listdir(host.root)) == [".records", "tiny"]


def test_other_models_are_left_alone_and_named(host: Host) -> None:
    for data in FILES.values():
        host.send(data)
    host.call({"tiny": FILES})
    shared = host.call({"twin": {"weights": FILES["model.safetensors"]}})
    assert shared["changed"] is True  # linked, nothing to send
    assert shared["unlisted"] == ["tiny"]
    assert (host.root / "twin" / "weights").read_bytes() == FILES["model.safetensors"]


def test_two_models_are_checked_for_room_together(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(models.Store, "check_space", lambda self, size, what: asked.append((size, what)))
    host.call({"tiny": FILES, "other": {"x": b"12345", "y": b"{}"}})
    assert asked == [(1007, "model_store_models: tiny, other")]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"files": {"../up": FILES}}, "named with letters"),
        ({"files": {"tiny": {"../../etc/passwd": b""}}}, "does not stay inside"),
    ],
)
def test_bad_input(host: Host, args: dict[str, Any], message: str) -> None:
    result = host.call(**args)
    assert result["failed"] is True
    assert message in result["msg"]
    assert not host.root.exists()


def test_a_relative_root_is_refused_at_once(host: Host) -> None:
    result = host.call({"tiny": FILES}, root="models")
    assert (result["failed"], "absolute path" in result["msg"]) == (True, True)


def test_the_key_alone_is_hidden_from_what_a_start_says(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[dict[str, Any]] = []

    def start(job: dict[str, Any]) -> None:
        jobs.append(job)
        raise models.StoreError(f"timeout after 62 s on spark-02 with {job['key']}")

    monkeypatch.setattr(models.fanout_job, "start", start)
    job = {"run": "ab" * 8, "node": "spark-02", "patience": 62, "contents": []}
    result = host.call({}, module=model_fanout, step="start", job=json.dumps(job), key="11" * 32)
    assert result["msg"] == "timeout after 62 s on spark-02 with ********"
    assert jobs[0]["key"] == "11" * 32


def test_nothing_is_hidden_where_there_is_no_key(host: Host) -> None:
    result = host.call({"tiny": {"{}": b""}, "../{}": {"x": b"1"}})
    assert "name '../{}'" in result["msg"]


def test_how_a_program_ended_that_said_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(models.fanout_job, "outcome", lambda run, seconds: asked.append(run) or {})
    monkeypatch.setattr(models.fanout_job, "ended", lambda: asked.append("ended") or "it was killed")
    monkeypatch.setattr(models.fanout_job, "tidy", lambda: asked.append("tidy"))
    result = host.call({"tiny": FILES}, module=model_fanout, step="finish", job=json.dumps({"run": "ab" * 8}))
    assert "2 contents (1002 B) did not arrive: it was killed. What arrived is kept" in result["msg"]
    assert asked == ["ab" * 8, "ended", "tidy"]


def test_no_step_of_a_fan_out_reads_what_another_has_read(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update in place of a host whose files were touched: read by the first check alone."""
    for data in FILES.values():
        host.send(data)
    host.call({"tiny": FILES})
    os.utime(host.root / "tiny" / "model.safetensors", ns=(1, 1))
    reads: list[str] = []
    hash_file = content.hash_file
    monkeypatch.setattr(content, "hash_file", lambda path: reads.append(path) or hash_file(path))
    monkeypatch.setattr(models.fanout_job, "start", lambda job: None)
    monkeypatch.setattr(models.fanout_job, "outcome", lambda run, seconds: {"state": "done"})
    monkeypatch.setattr(models.fanout_job, "run", lambda argv: (0, ""))
    wanted = {"tiny": {**FILES, "model.safetensors": b"v" * 1000}}
    assert len(host.call(wanted, deliver="fabric")["need"]) == 1
    contents = [[hashlib.sha256(b"v" * 1000).hexdigest(), 1000, ["0" * 64]]]
    host.call(
        wanted, module=model_fanout, step="start", job=json.dumps({"run": "ab" * 8, "contents": contents}), key="1"
    )
    host.call(wanted, module=model_fanout, step="finish", job=json.dumps({"run": "ab" * 8}))
    assert reads == [str(host.root / "tiny" / "model.safetensors")]


def revised(files: dict[str, bytes], name: str = "tiny") -> dict[str, Any]:
    rows = [row(*item) for item in files.items()]
    folder = revision_folder(name, [Entry(*item) for item in rows])
    return {"name": name, "source": "/x", "manifest": rows, "folder": folder}


def brought(host: Host, model: dict[str, Any], files: dict[str, bytes], deliver: str = "fabric") -> dict[str, Any]:
    need = {item["sha256"] for item in host.call({}, models=[model], deliver="fabric").get("need", [])}
    for data in files.values():
        if hashlib.sha256(data).hexdigest() in need:
            host.send(data)
    return host.call({}, models=[model], deliver=deliver)


NEWER = {**FILES, "config.json": b'{"newer": 1}'}


def test_a_new_revision_is_here_before_its_name_means_it(host: Host) -> None:
    old, new = revised(FILES), revised(NEWER)
    result = brought(host, old, FILES)
    assert (result["behind"], result["models"]["tiny"]["path"]) == (["tiny"], str(host.root / old["folder"]))
    prediction = host.call({}, models=[old], module=model_switch, check=True)
    assert (prediction["changed"], prediction["diff"]["after"]) == (True, f"tiny -> {old['folder']}\n")
    assert host.call({}, models=[old], module=model_switch)["changed"] is True
    assert host.call({}, models=[old], module=model_switch)["changed"] is False
    assert sorted(os.listdir(host.root)) == [".records", "tiny", old["folder"]]
    settled = host.call({}, models=[old], deliver="fabric")
    assert (settled["changed"], "behind" in settled) == (False, False)
    result = brought(host, new, NEWER)
    assert (result["behind"], result["unlisted"]) == (["tiny"], [])
    assert os.readlink(host.root / "tiny") == old["folder"]
    switched = host.call({}, models=[new], module=model_switch, revisions=1, in_use=[old["folder"]])
    assert switched["diff"]["before"] == f"tiny -> {old['folder']}\n"
    assert sorted(os.listdir(host.root)) == [".records", "tiny", *sorted((old["folder"], new["folder"]))]
    back = host.call({}, models=[old], module=model_switch, revisions=1)
    assert back["diff"]["before"].splitlines() == [f"tiny -> {new['folder']}", new["folder"]]
    assert sorted(os.listdir(host.root)) == [".records", "tiny", old["folder"]]


def test_one_host_alone_gets_revision_and_name_in_one_call(host: Host) -> None:
    model = revised(FILES)
    result = brought(host, model, FILES, "direct")
    assert (result["changed"], result["behind"]) == (True, ["tiny"])
    assert (host.root / "tiny" / "config.json").read_bytes() == b"{}"
    settled = host.call({}, models=[model])
    assert (settled["changed"], "behind" in settled) == (False, False)


def test_one_host_alone_keeps_no_more_revisions_than_others(host: Host) -> None:
    old, new = revised(FILES), revised(NEWER)
    for model, files in ((old, FILES), (new, NEWER)):
        assert brought(host, model, files, "direct")["behind"] == ["tiny"]
    assert host.call({}, models=[new], module=model_switch, revisions=2)["changed"] is False
    switched = host.call({}, models=[new], module=model_switch, revisions=1)
    assert (switched["changed"], switched["diff"]["before"]) == (True, f"{old['folder']}\n")
    assert sorted(os.listdir(host.root)) == [".records", "tiny", new["folder"]]
    assert host.call({}, models=[new], module=model_switch, revisions=1)["changed"] is False


def test_a_folder_of_an_earlier_version_is_adopted_once(host: Host) -> None:
    for data in FILES.values():
        host.send(data)
    host.call({"tiny": FILES})
    before = os.stat(host.root / "tiny" / "model.safetensors").st_ino
    prediction = host.call({}, models=[revised(FILES)], check=True)
    assert (prediction["changed"], "need" in prediction, (host.root / "tiny").is_symlink()) == (True, False, False)
    result = host.call({}, models=[revised(FILES)])
    assert (result["changed"], "need" in result) == (True, False)
    assert os.stat(host.root / "tiny" / "model.safetensors").st_ino == before
    assert host.call({}, models=[revised(FILES)])["changed"] is False


def test_a_revision_of_other_contents_is_refused(host: Host) -> None:
    wrong = {**revised(FILES), "folder": "tiny@" + "0" * 16}
    assert "is not a revision of tiny with these contents" in host.call({}, models=[wrong])["msg"]


def test_a_listing_says_which_revision_is_for_what(host: Host) -> None:
    models = [revised({**FILES, "config.json": str(number).encode()}) for number in range(3)]
    for number, model in enumerate(models):
        brought(host, model, {**FILES, "config.json": str(number).encode()})
    host.call({}, models=[models[2]], module=model_switch, revisions=9)
    asked = {"module": model_prune, "declared": ["tiny"], "in_use": [models[0]["folder"]]}
    uses = {item["name"]: item["use"] for item in host.call({}, **asked)["inventory"]}
    assert uses == dict(
        zip([model["folder"] for model in models], ["to go back to", "unused", "declared"], strict=True)
    )
    assert host.call({}, **asked, remove_unused=True)["removed"] == [models[1]["folder"]]
    # nobody declares it any more: it stays as long as somebody may go back to it, then goes with its name
    kept = host.call({}, module=model_prune, remove_unused=True, in_use=[models[2]["folder"]])
    assert (kept["removed"], (host.root / "tiny").exists()) == ([models[0]["folder"]], True)
    assert host.call({}, module=model_prune, remove_unused=True)["changed"] is True
    assert os.listdir(host.root) == [".records"]


def test_what_a_hub_cache_of_the_host_has_is_not_asked_for(host: Host, tmp_path: Path) -> None:
    weights = FILES["model.safetensors"]
    blobs = tmp_path / "home/ada/hub/models--o--tiny/blobs"
    blobs.mkdir(parents=True)
    (blobs / hashlib.sha256(weights).hexdigest()).write_bytes(weights)
    asked = {"hub_caches": [str(tmp_path / "home/*/hub")], "deliver": "fabric"}
    assert "from_caches" not in host.call({"tiny": FILES}, check=True, **asked)
    assert not host.root.exists()
    result = host.call({"tiny": FILES}, **asked)
    assert result["from_caches"] == {"bytes": 1000, "caches": [str(tmp_path / "home/ada/hub")]}
    assert [item["size"] for item in result["need"]] == [2]
    host.send(FILES["config.json"])
    whole = host.call({"tiny": FILES}, **asked)
    assert (whole["changed"], "from_caches" in whole, "need" in whole) == (True, False, False)
    assert (host.root / "tiny/model.safetensors").read_bytes() == weights
    assert host.call({"tiny": FILES}, **asked)["changed"] is False


def test_a_model_that_a_hub_cache_has_whole_appears_at_once(host: Host, tmp_path: Path) -> None:
    blobs = tmp_path / "hub/models--o--tiny/blobs"
    blobs.mkdir(parents=True)
    for data in FILES.values():
        (blobs / hashlib.sha256(data).hexdigest()).write_bytes(data)
    result = host.call({"tiny": FILES}, hub_caches=[str(tmp_path / "hub")])
    assert (result["changed"], "need" in result, result["from_caches"]["bytes"]) == (True, False, 1002)
    assert sorted(os.listdir(host.root)) == [".records", "tiny"]


def test_a_host_tells_the_parts_of_what_it_alone_has(host: Host) -> None:
    weights = FILES["model.safetensors"]
    asked = {
        "module": model_fanout,
        "step": "parts",
        "job": json.dumps({"wanted": [row("w", weights)[2]], "size": 600}),
    }
    assert "is not here whole any more: run again" in host.call({"tiny": FILES}, **asked)["msg"]
    for data in FILES.values():
        host.send(data)
    host.call({"tiny": FILES})
    told = host.call({"tiny": FILES}, **asked)
    digests = [hashlib.sha256(part).hexdigest() for part in (weights[:600], weights[600:])]
    assert (told["changed"], told["parts"]) == (False, {row("w", weights)[2]: digests})
