# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import (
    Entry,
    Owner,
    Store,
    StoreError,
    free_bytes,
    human,
    parse_links,
    parse_manifest,
    private_store,
)

FILES = {"config.json": b"{}", "sub/weights-1": b"a" * 5000, "sub/weights-2": b"b" * 5000, "twin": b"a" * 5000}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def entries(files: dict[str, bytes] | None = None) -> list[Entry]:
    return [Entry(name, len(data), sha(data)) for name, data in (files or FILES).items()]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"), Owner(os.getuid(), os.getgid()))


def piece(tmp_path: Path, data: bytes, offset: int = 0, length: int | None = None) -> dict[str, Any]:
    path = tmp_path / f"piece-{sha(data)[:8]}-{offset}"
    path.write_bytes(data[offset : None if length is None else offset + length])
    return {"file": str(path), "sha256": sha(data), "offset": offset, "size": len(data)}


def fill(store: Store, tmp_path: Path, files: dict[str, bytes], name: str = "tiny") -> None:
    wanted = entries(files)
    plan = store.plan(name, wanted)
    contents = {sha(data): data for data in files.values()}
    store.receive([piece(tmp_path, contents[item["sha256"]]) for item in plan.need])
    store.commit(name, wanted, plan.wrong)
    store.clean_incoming()


def read(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_arrives_whole_and_is_right_afterwards(store: Store, tmp_path: Path) -> None:
    plan = store.plan("tiny", entries())
    assert plan.wrong == sorted(FILES)
    assert len(plan.need) == 3  # twins are one content
    assert plan.bytes_needed == 10002
    fill(store, tmp_path, FILES)
    assert read(Path(store.folder("tiny"))) == FILES
    after = store.plan("tiny", entries())
    assert after.right
    assert after.need == []
    assert sorted(os.listdir(store.root)) == [".records", "tiny"]
    assert list(tmp_path.glob("piece-*")) == []


def test_an_unchanged_folder_is_not_read_again(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, tmp_path, FILES)

    def refuse(path: str) -> str:
        raise AssertionError(f"read {path}")

    monkeypatch.setattr("ansible_collections.sparkthor.cluster.plugins.module_utils._store.hash_file", refuse)
    assert store.plan("tiny", entries()).right


def test_nothing_is_visible_before_the_commit(store: Store, tmp_path: Path) -> None:
    plan = store.plan("tiny", entries())
    store.receive([piece(tmp_path, FILES["config.json"])])
    assert not os.path.exists(store.folder("tiny"))
    with pytest.raises(StoreError, match="has not arrived"):
        store.commit("tiny", entries(), plan.wrong)
    assert not os.path.exists(store.folder("tiny"))


def test_a_broken_transfer_continues(store: Store, tmp_path: Path) -> None:
    data = FILES["sub/weights-2"]
    store.receive([piece(tmp_path, data, 0, 3000)])
    (item,) = [item for item in store.plan("tiny", entries()).need if item["sha256"] == sha(data)]
    assert item["have"] == 3000
    store.receive([piece(tmp_path, data, 3000)])
    assert sha(data) not in {item["sha256"] for item in store.plan("tiny", entries()).need}


def test_a_piece_out_of_turn_is_refused_and_forgotten(store: Store, tmp_path: Path) -> None:
    data = FILES["sub/weights-2"]
    store.receive([piece(tmp_path, data, 0, 3000)])
    with pytest.raises(StoreError, match="run again"):
        store.receive([piece(tmp_path, data, 4000)])
    (item,) = [item for item in store.plan("tiny", entries()).need if item["sha256"] == sha(data)]
    assert item["have"] == 0
    store.receive([piece(tmp_path, data)])


def test_a_wrong_content_is_discarded(store: Store, tmp_path: Path) -> None:
    part = piece(tmp_path, b"x" * 10)
    Path(part["file"]).write_bytes(b"y" * 10)
    with pytest.raises(StoreError, match="discarded"):
        store.receive([part])
    assert not os.path.exists(os.path.join(store.root, ".incoming", sha(b"x" * 10)))


def test_a_bundle(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    with tarfile.open(path, "w") as archive:
        for data in {*FILES.values()}:
            source = tmp_path / sha(data)
            source.write_bytes(data)
            archive.add(source, arcname=sha(data))
    plan = store.plan("tiny", entries())
    store.receive([{"file": str(path), "bundle": True}])
    store.commit("tiny", entries(), plan.wrong)
    assert read(Path(store.folder("tiny"))) == FILES


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "readme"])
def test_a_bundle_with_a_strange_member(store: Store, tmp_path: Path, name: str) -> None:
    path = tmp_path / "bundle"
    with tarfile.open(path, "w") as archive:
        archive.add(__file__, arcname=name)
    with pytest.raises(StoreError, match="unexpected member"):
        store.receive([{"file": str(path), "bundle": True}])


def test_damage_is_found(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, FILES)
    folder = Path(store.folder("tiny"))
    (folder / "config.json").write_bytes(b"[]")
    (folder / "twin").unlink()
    (folder / "foreign").write_bytes(b"?")
    plan = store.plan("tiny", entries())
    assert plan.wrong == ["config.json", "twin"]
    assert [item["sha256"] for item in plan.need] == [sha(b"{}")]  # the twin's content is still here
    assert plan.extra == ["foreign"]


def test_a_flipped_bit_behind_an_unchanged_time_needs_the_full_check(store: Store, tmp_path: Path) -> None:
    files = {"a": b"a" * 100}
    fill(store, tmp_path, files)
    path = Path(store.folder("tiny")) / "a"
    state = path.stat()
    path.write_bytes(b"a" * 99 + b"b")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert store.plan("tiny", entries(files)).right
    plan = store.plan("tiny", entries(files), full=True)
    assert plan.wrong == ["a"]
    assert len(plan.need) == 1  # the damaged file is not taken for its own replacement
    store.receive([piece(tmp_path, files["a"])])
    store.commit("tiny", entries(files), plan.wrong)
    assert path.read_bytes() == files["a"]


def test_contents_of_another_folder_are_linked_not_sent(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, FILES, "old")
    files = {**FILES, "config.json": b"{new}"}
    plan = store.plan("new", entries(files))
    assert plan.bytes_needed == 5
    fill(store, tmp_path, files, "new")
    one, two = Path(store.folder("old"), "sub/weights-1"), Path(store.folder("new"), "sub/weights-1")
    assert one.stat().st_ino == two.stat().st_ino
    assert store.names() == ["new", "old"]
    store.remove("old")
    assert read(Path(store.folder("new"))) == files
    assert store.names() == ["new"]


def test_a_damaged_source_of_a_link_is_not_spread(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, {"a": b"a" * 100}, "old")
    path = Path(store.folder("old")) / "a"
    state = path.stat()
    path.write_bytes(b"b" * 100)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    wanted = entries({"copy": b"a" * 100})
    with pytest.raises(StoreError, match="damaged"):
        store.commit("new", wanted, store.plan("new", wanted).wrong)
    assert not os.path.exists(store.folder("new"))


def test_files_that_lie_there_already_are_adopted(store: Store) -> None:
    for name, data in FILES.items():
        path = Path(store.folder("tiny")) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    plan = store.plan("tiny", entries())
    assert plan.wrong == []
    assert store.refresh_record("tiny", entries()) is True
    assert store.refresh_record("tiny", entries()) is False


def test_modes_are_mended(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, FILES)
    path = Path(store.folder("tiny")) / "config.json"
    path.chmod(0o666)
    plan = store.plan("tiny", entries())
    assert (plan.modes, plan.wrong, plan.right) == (["config.json"], [], False)
    store.commit("tiny", entries(), plan.wrong)
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_link_in_the_way_is_refused(store: Store, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.makedirs(store.folder("tiny"))
    os.symlink(elsewhere, os.path.join(store.folder("tiny"), "sub"))
    with pytest.raises(StoreError, match="in the way"):
        fill(store, tmp_path, FILES)
    assert list(elsewhere.iterdir()) == []


def test_no_room_is_said_before_a_byte_moves(store: Store) -> None:
    with pytest.raises(StoreError, match=r"tiny needs .* GiB more under .*free .* or choose another place"):
        store.check_space(1 << 60, "tiny")
    assert not os.path.exists(store.root)
    store.check_space(1, "tiny")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../b", "a//b", "", ".", "a/.", "a\0b"])
def test_a_path_may_not_leave_its_folder(path: str) -> None:
    with pytest.raises(StoreError, match="does not stay inside"):
        parse_manifest([[path, 1, "0" * 64]])


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [["a", 1, "0" * 63]],
        [["a", -1, "0" * 64]],
        [["a", 1, "0" * 64]] * 2,
        [["a", 1, "0" * 64], ["a/b", 1, "1" * 64]],
    ],
)
def test_bad_manifests(rows: list[list[Any]]) -> None:
    with pytest.raises(StoreError):
        parse_manifest(rows)


@pytest.mark.parametrize("name", ["..", ".incoming", "a/b", "", "-x", "x" * 200])
def test_bad_names(store: Store, name: str) -> None:
    with pytest.raises(StoreError, match="named with letters"):
        store.folder(name)


@pytest.mark.parametrize(("size", "text"), [(12, "12 B"), (2048, "2.0 KiB"), (379 * 2**30, "379.0 GiB")])
def test_sizes_for_people(size: int, text: str) -> None:
    assert human(size) == text


def test_links_are_part_of_a_model(store: Store, tmp_path: Path) -> None:
    wanted = entries({"blobs/aa": b"weights"})
    links = parse_links([["snapshots/c/model.safetensors", "../../blobs/aa"]], wanted)
    plan = store.plan("models--o--n", wanted, links=links)
    assert plan.links == ["snapshots/c/model.safetensors"]
    store.receive([piece(tmp_path, b"weights")])
    store.commit("models--o--n", wanted, plan.wrong, links)
    path = Path(store.folder("models--o--n")) / "snapshots/c/model.safetensors"
    assert (os.readlink(path), path.read_bytes()) == ("../../blobs/aa", b"weights")
    after = store.plan("models--o--n", wanted, links=links)
    assert (after.right, after.extra) == (True, [])
    path.unlink()
    path.symlink_to("/etc/passwd")
    again = store.plan("models--o--n", wanted, links=links)
    assert (again.wrong, again.links) == ([], ["snapshots/c/model.safetensors"])
    store.commit("models--o--n", wanted, again.wrong, links)
    assert os.readlink(path) == "../../blobs/aa"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["x", "/etc/passwd"], "no file of the same folder"),
        (["x", "../other/y"], "no file of the same folder"),
        (["x", "nowhere"], "no file of the same folder"),
        (["../x", "config.json"], "does not stay inside"),
        (["/x", "config.json"], "does not stay inside"),
        (["config.json", "sub/weights-1"], "occurs twice"),
        (["config.json/x", "../config.json"], "both a file and a folder"),
    ],
)
def test_links_that_lead_elsewhere_are_refused(row: list[str], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        parse_links([row], entries())


def test_a_damaged_file_is_known_once_a_full_look_found_it(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, FILES)
    path = Path(store.folder("tiny")) / "sub/weights-1"
    state = path.stat()
    path.write_bytes(b"b" * 5000)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert store.plan("tiny", entries()).right
    wrong = store.plan("tiny", entries(), full=True).wrong
    assert wrong == ["sub/weights-1", "twin"]  # one content under two names
    store.forget("tiny", wrong)
    assert store.plan("tiny", entries()).wrong == wrong
    assert set(store.whole("tiny", entries(), wrong)) == {sha(b"{}"), sha(b"b" * 5000)}


def test_what_a_fan_out_took_of_the_disk_is_not_asked_for_again(store: Store) -> None:
    part = Path(store.incoming) / f"{sha(b'a' * 5000)}.part"
    with part.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 5000)
    plan = store.plan("tiny", entries())
    assert plan.bytes_needed == 10002 - 5000


def test_an_inventory_tells_size_and_verdict_and_counts_a_content_once(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, FILES)
    fill(store, tmp_path, {"w": b"b" * 5000}, "twin")  # a second name for a content of tiny
    Path(store.root, "stranger").mkdir()
    (Path(store.folder("twin")) / "w").unlink()
    (Path(store.folder("twin")) / "w").write_bytes(b"?")
    rows = {row["name"]: row for row in store.inventory()}
    # four files, two of them one content under two names
    assert (rows["tiny"]["files"], rows["tiny"]["bytes"], rows["tiny"]["verdict"]) == (4, 10002, "whole")
    assert rows["stranger"] == {
        "name": "stranger",
        "bytes": 0,
        "files": 0,
        "ours": False,
        "verdict": "not of this store",
    }
    assert rows["twin"]["verdict"] == "1 of 1 files changed or lost, w first"


def test_removing_follows_no_link_and_leaves_other_names_alone(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, FILES)
    fill(store, tmp_path, {"w": b"b" * 5000}, "twin")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    (Path(store.folder("twin")) / "link").symlink_to(outside)
    store.remove("twin")
    assert (outside / "precious").read_text() == "x"
    assert store.plan("tiny", entries(), full=True).right
    assert store.names() == ["tiny"]
    Path(store.folder("twin")).symlink_to(outside)
    with pytest.raises(StoreError, match="is a link"):
        store.remove("twin")
    assert (outside / "precious").exists()


def test_a_private_store_is_of_whoever_makes_it(tmp_path: Path) -> None:
    store = private_store(str(tmp_path / "wheels"))
    assert (store.root, store.owner) == (str(tmp_path / "wheels"), Owner(os.geteuid(), os.getegid()))


def test_room_is_known_before_a_folder_is_there(tmp_path: Path) -> None:
    usage = os.statvfs(tmp_path)
    assert free_bytes(str(tmp_path / "not" / "yet")) == pytest.approx(usage.f_bavail * usage.f_frsize, rel=0.05)
