# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Owner, Store
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import push

SIZES = {"a": 10, "b": 20, "big-1": 2500, "big-2": 900, "huge": 5000}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(push, "SMALL", 100)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.mkdir()
    for name, size in SIZES.items():
        (path / name).write_bytes((name * size).encode()[:size])
    return path


class Action:
    """The part of an action plugin that carries files; the host is a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.transfers: list[int] = []

    def _make_tmp_path(self) -> str:
        self.root.mkdir()
        return str(self.root)

    def _transfer_file(self, local: str, remote: str) -> None:
        self.transfers.append(os.path.getsize(local))
        shutil.copy(local, remote)

    def _remove_tmp_path(self, path: str, force: bool = False) -> None:
        shutil.rmtree(path)


def test_everything_arrives_in_pieces_and_bundles(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push.deliveries, "__defaults__", (2000,))
    entries = push.manifest(str(folder), push.folder_files(str(folder), "x"))
    store = Store(str(tmp_path / "store"), Owner(os.getuid(), os.getgid()))
    plan = store.plan("tiny", entries)
    said: list[str] = []
    action = Action(tmp_path / "remote")
    calls: list[int] = []

    def receive(parts: list[dict[str, Any]]) -> None:
        calls.append(len(parts))
        store.receive(parts)

    courier = push.Courier(action, "models", "spark-01", said.append)
    courier.deliver(push.contents(str(folder), entries, plan.need), receive, interval=0)
    store.commit("tiny", entries, plan.wrong)
    assert {path.name: path.read_bytes() for path in Path(store.folder("tiny")).iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }
    assert courier.sent == sum(SIZES.values())
    assert max(action.transfers) <= 10240  # tar pads the small ones; no piece is larger than the limit
    assert len(calls) > 3
    assert "spark-01: models: " in said[-1]
    assert any("s left" in line for line in said)
    assert not action.root.exists()


def test_a_transfer_goes_on_where_it_stopped(folder: Path, tmp_path: Path) -> None:
    data = (folder / "huge").read_bytes()
    content = push.Content(str(folder / "huge"), len(data), sha(data), 4000)
    (delivery,) = push.deliveries([content], str(tmp_path))
    ((path, part),) = delivery.uploads
    assert Path(path).read_bytes() == data[4000:]
    assert part == {"sha256": sha(data), "offset": 4000, "size": 5000}
    assert delivery.size == 1000


def test_an_unbroken_file_is_sent_from_where_it_lies(folder: Path, tmp_path: Path) -> None:
    data = (folder / "big-1").read_bytes()
    (delivery,) = push.deliveries([push.Content(str(folder / "big-1"), 2500, sha(data), 0)], str(tmp_path / "none"))
    assert delivery.uploads[0][0] == str(folder / "big-1")
    assert delivery.scratch == []


def test_a_bundle_names_its_members_by_content(folder: Path, tmp_path: Path) -> None:
    small = [push.Content(str(folder / name), SIZES[name], sha((folder / name).read_bytes()), 0) for name in "ab"]
    (delivery,) = push.deliveries(small, str(tmp_path))
    ((path, part),) = delivery.uploads
    assert part == {"bundle": True}
    with tarfile.open(path) as archive:
        assert archive.getnames() == [content.sha256 for content in small]


def test_a_failed_delivery_leaves_nothing_behind(folder: Path, tmp_path: Path) -> None:
    action = Action(tmp_path / "remote")

    def refuse(parts: list[dict[str, Any]]) -> None:
        raise AnsibleActionFail("no")

    courier = push.Courier(action, "models", "spark-01", lambda line: None)
    with pytest.raises(AnsibleActionFail):
        courier.deliver([push.Content(str(folder / "a"), 10, sha((folder / "a").read_bytes()), 0)], refuse)
    assert not action.root.exists()


def test_digests_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = push.digests(str(folder), ["a", "huge"])
    assert first["a"] == (10, sha((folder / "a").read_bytes()))
    asked: list[str] = []

    def hash_file(path: str) -> str:
        asked.append(os.path.basename(path))
        return "0" * 64

    monkeypatch.setattr(push, "hash_file", hash_file)
    assert push.digests(str(folder), ["a", "huge"]) == first
    (folder / "a").write_bytes(b"changed")
    assert push.digests(str(folder), ["a", "huge"])["a"] == (7, "0" * 64)
    assert asked == ["a"]


def test_links_of_a_hub_cache_count_as_files(tmp_path: Path) -> None:
    cache = tmp_path / "hub"
    (cache / "blobs").mkdir(parents=True)
    (cache / "snapshots" / "c" / "sub").mkdir(parents=True)
    (cache / "snapshots" / "c" / ".cache").mkdir()
    (cache / "blobs" / "abc").write_bytes(b"weights")
    os.symlink("../../../blobs/abc", cache / "snapshots" / "c" / "sub" / "model.safetensors")
    (cache / "snapshots" / "c" / ".gitattributes").touch()
    snapshot = str(cache / "snapshots" / "c")
    assert push.folder_files(snapshot, "x") == ["sub/model.safetensors"]
    assert push.manifest(snapshot, ["sub/model.safetensors"]) == [Entry("sub/model.safetensors", 7, sha(b"weights"))]
    (cache / "blobs" / "abc").unlink()
    with pytest.raises(AnsibleActionFail, match="link to nothing"):
        push.folder_files(snapshot, "model_store_models: tiny")


@pytest.mark.parametrize("make", [False, True])
def test_a_source_without_files(tmp_path: Path, make: bool) -> None:
    path = tmp_path / "empty"
    if make:
        path.mkdir()
    with pytest.raises(AnsibleActionFail, match=r"model_store_models: tiny: .*(is not a folder|no files)"):
        push.folder_files(str(path), "model_store_models: tiny")


def hub_cache(root: Path) -> Path:
    """A model as the hub's client leaves it."""
    model = root / "models--owner--tiny"
    snapshot = model / "snapshots" / ("c" * 40)
    snapshot.mkdir(parents=True)
    (model / "blobs").mkdir()
    (model / "refs").mkdir()
    (model / "refs/main").write_text("c" * 40)
    for name, data in (("config.json", b"{}"), ("model.safetensors", b"w" * 100)):
        digest = hashlib.sha256(data).hexdigest()
        (model / "blobs" / digest).write_bytes(data)
        (snapshot / name).symlink_to(f"../../blobs/{digest}")
    return snapshot


def test_a_hub_cache_as_plain_files_or_as_it_is(tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path)
    assert push.folder_files(str(snapshot), "x") == ["config.json", "model.safetensors"]
    found = push.hub_folder(str(snapshot), "x")
    assert (found.name, found.folder) == ("models--owner--tiny", str(snapshot.parent.parent))
    assert len([name for name in found.files if name.startswith("blobs/")]) == 2
    assert "refs/main" in found.files
    assert [path for path, _target in found.links] == [
        f"snapshots/{'c' * 40}/config.json", f"snapshots/{'c' * 40}/model.safetensors"
    ]  # fmt: skip
    assert all(target.startswith("../../blobs/") for _path, target in found.links)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "w").write_text("x")
    (model / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(AnsibleActionFail, match=r"model_store_models: tiny: .*/passwd is a link that leads out of"):
        push.folder_files(str(model), "model_store_models: tiny")
    (model / "passwd").unlink()
    (model / "folder").symlink_to(tmp_path)
    with pytest.raises(AnsibleActionFail, match="leads out of"):
        push.folder_files(str(model), "model_store_models: tiny")
    with pytest.raises(AnsibleActionFail, match="is not one"):
        push.hub_folder(str(model), "model_store_models: tiny")


@pytest.mark.parametrize("target", ["{root}/secret", "{cache}/../secret", "../../../../secret"])
def test_a_link_out_of_the_hubs_cache_is_not_pushed(tmp_path: Path, target: str) -> None:
    """Models share their bytes within a cache, by links of the client's; what is beside it was not declared."""
    (tmp_path / "hub").mkdir()
    snapshot = hub_cache(tmp_path / "hub")
    (tmp_path / "hub/blobs").mkdir()
    (tmp_path / "hub/blobs/shared").write_text("of all models")
    (tmp_path / "secret").write_text("not for the hosts")
    name = snapshot / "tokenizer.json"
    name.symlink_to("../../../blobs/shared")
    assert "tokenizer.json" in push.folder_files(str(snapshot), "x")
    name.unlink()
    name.symlink_to(target.format(root=tmp_path, cache=tmp_path / "hub"))
    for pushed in (push.folder_files, push.hub_folder):
        with pytest.raises(AnsibleActionFail, match=rf"m: .*tokenizer.json is a link that leads out of {tmp_path}/hub"):
            pushed(str(snapshot), "m")
    # nor one in the middle: the client's blob, led elsewhere
    name.unlink()
    blob = next((snapshot.parent.parent / "blobs").iterdir())
    blob.unlink()
    blob.symlink_to(tmp_path / "secret")
    with pytest.raises(AnsibleActionFail, match="leads out of"):
        push.folder_files(str(snapshot), "m")


def test_digests_of_parts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w").write_bytes(b"w" * 2500)
    first = push.part_digests(str(folder), ["w"], 1000)
    assert [len(first["w"]), first["w"][0]] == [3, hashlib.sha256(b"w" * 1000).hexdigest()]
    monkeypatch.setattr(push, "hash_parts", lambda path, size: pytest.fail("read again"))
    assert push.part_digests(str(folder), ["w"], 1000) == first
