# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import shutil
import tarfile
import threading
import time
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import content
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import (
    StoreError,
    parse_store_links,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Owner, Store, private_store

from tests.unit.stores import FILES, entries, fill, piece, read, sha


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

    monkeypatch.setattr("ansible_collections.sparkthor.cluster.plugins.module_utils._store.content.hash_file", refuse)
    assert store.plan("tiny", entries()).right


def test_nothing_is_visible_before_the_commit(store: Store, tmp_path: Path) -> None:
    plan = store.plan("tiny", entries())
    store.receive([piece(tmp_path, FILES["config.json"])])
    assert not os.path.exists(store.folder("tiny"))
    with pytest.raises(StoreError, match="has not arrived"):
        store.commit("tiny", entries(), plan.wrong)
    assert not os.path.exists(store.folder("tiny"))


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


def test_modes_are_fixed(store: Store, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", ["..", ".incoming", "a/b", "", "-x", "x" * 200])
def test_bad_names(store: Store, name: str) -> None:
    with pytest.raises(StoreError, match="named with letters"):
        store.folder(name)


def test_links_are_part_of_a_model(store: Store, tmp_path: Path) -> None:
    wanted = entries({"blobs/aa": b"weights"})
    links = parse_store_links([["snapshots/c/model.safetensors", "../../blobs/aa"]], wanted)
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


def test_a_damaged_file_is_known_once_a_full_check_found_it(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, FILES)
    path = Path(store.folder("tiny")) / "sub/weights-1"
    state = path.stat()
    path.write_bytes(b"b" * 5000)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert store.plan("tiny", entries()).right
    found = store.plan("tiny", entries(), full=True)
    wrong = found.wrong
    assert wrong == ["sub/weights-1", "twin"]  # one content under two names
    store.remember("tiny", found.read)
    assert store.plan("tiny", entries()).wrong == wrong
    assert not store.as_recorded("tiny", entries())
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


class Reads(list):
    """Files that were read whole."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        hash_file = content.hash_file

        def noted(path: str) -> str:
            self.append(os.path.basename(path))
            return hash_file(path)

        monkeypatch.setattr(content, "hash_file", noted)


def test_a_file_that_is_another_content_is_not_read_to_find_out_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update in place: same size, same names, other weights; the check before, at the start and at the end."""
    fill(store, tmp_path, {"w": b"a" * 5000})
    reads = Reads(monkeypatch)
    wanted = entries({"w": b"b" * 5000})
    assert [store.plan("tiny", wanted).wrong for _time in range(3)] == [["w"]] * 3
    assert reads == []
    # one that was touched is read once
    os.utime(Path(store.folder("tiny")) / "w", ns=(1, 1))
    plan = store.plan("tiny", wanted)
    store.remember("tiny", plan.read)
    assert store.plan("tiny", wanted).wrong == ["w"]
    assert reads == ["w"]
    fill(store, tmp_path, {"w": b"b" * 5000})
    assert store.plan("tiny", wanted).right


def test_what_is_read_of_a_foreign_folder_is_kept_and_makes_it_no_model_of_ours(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(store.folder("tiny"))
    path.mkdir(parents=True)
    (path / "a").write_bytes(b"a" * 100)
    reads = Reads(monkeypatch)
    wanted = entries({"a": b"a" * 100, "b": b"b" * 100})
    for _time in range(3):
        plan = store.plan("tiny", wanted)
        store.remember("tiny", plan.read)
        assert plan.wrong == ["b"]
    assert reads == ["a"]
    assert store.names() == []
    assert store.inventory()[0]["ours"] is False
    store.receive([piece(tmp_path, b"b" * 100)])
    store.commit("tiny", wanted, plan.wrong)
    assert store.names() == ["tiny"]
    assert sorted(os.listdir(Path(store.root, ".records"))) == [".lock", "tiny.json"]


def test_a_full_file_that_nobody_verified_is_read(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed between the last byte and the verification."""
    data = b"a" * 5000
    arrived = Path(store.incoming) / sha(data)
    arrived.write_bytes(b"?" * 5000)
    (item,) = store.plan("tiny", entries({"w": data})).need
    assert item["have"] == 0
    with pytest.raises(StoreError, match="discarded"):
        store.commit("tiny", entries({"w": data}), ["w"])
    assert not os.path.exists(store.folder("tiny"))
    arrived.write_bytes(b"?" * 5000)
    fill(store, tmp_path, {"w": data})
    assert read(Path(store.folder("tiny"))) == {"w": data}
    # one that was verified is not read again
    store.receive([piece(tmp_path, b"b" * 10)])
    reads = Reads(monkeypatch)
    wanted = entries({"w": b"b" * 10})
    plan = store.plan("other", wanted)
    assert plan.need == []
    store.commit("other", wanted, plan.wrong)
    assert reads == []
    assert (Path(store.folder("other")) / "w").stat().st_mode & 0o777 == 0o644


def test_a_relative_root_is_refused() -> None:
    with pytest.raises(StoreError, match=r"root 'models': .*absolute path"):
        Store("models", Owner(0, 0))


# -- two runs at once ----------------------------------------------------------------------------------------------


def test_two_commits_at_once_make_one_whole_folder(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"f{number}": bytes([number]) * 100 for number in range(20)}
    wanted = entries(files)
    plan = store.plan("tiny", wanted)
    store.receive([piece(tmp_path, data) for data in files.values()])
    link = os.link

    def slow(source: str, target: str) -> None:
        time.sleep(0.01)
        assert not os.path.exists(store.folder("tiny"))  # whole or not at all
        link(source, target)

    monkeypatch.setattr(os, "link", slow)
    failed: list[BaseException] = []

    def commit() -> None:
        try:
            store.commit("tiny", wanted, plan.wrong)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=commit) for _number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert read(Path(store.folder("tiny"))) == files


# -- a commit that is broken off -----------------------------------------------------------------------------------


def test_a_damaged_source_is_found_before_anything_is_moved_and_not_asked_again(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, {"a": b"a" * 100}, "old")
    path = Path(store.folder("old")) / "a"
    state = path.stat()
    path.write_bytes(b"b" * 100)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    files = {"1": b"1" * 100, "2": b"2" * 100, "copy": b"a" * 100}
    plan = store.plan("new", entries(files))
    assert len(plan.need) == 2
    store.receive([piece(tmp_path, files[name]) for name in ("1", "2")])
    with pytest.raises(StoreError, match="used no more: run again"):
        store.commit("new", entries(files), plan.wrong)
    # what arrived is still there, and only what was damaged is asked for
    again = store.plan("new", entries(files))
    assert [item["sha256"] for item in again.need] == [sha(b"a" * 100)]
    store.receive([piece(tmp_path, b"a" * 100)])
    store.commit("new", entries(files), again.wrong)
    assert read(Path(store.folder("new"))) == files
    assert not store.as_recorded("old", entries({"a": b"a" * 100}))


@pytest.mark.parametrize("fresh", [True, False])
def test_a_commit_that_is_killed_loses_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    files = {f"f{number}": bytes([number]) * 100 for number in range(9)}
    if not fresh:
        fill(store, tmp_path, {"f0": b"old"})
    plan = store.plan("tiny", entries(files))
    store.receive([piece(tmp_path, data) for data in files.values()])
    calls = []
    replace = os.replace

    def killed(source: str, target: str) -> None:
        calls.append(target)
        if len(calls) == 5:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        store.commit("tiny", entries(files), plan.wrong)
    monkeypatch.undo()
    assert os.path.exists(store.folder("tiny")) is not fresh
    again = store.plan("tiny", entries(files))
    assert again.need == []
    store.commit("tiny", entries(files), again.wrong)
    store.clean_incoming()
    assert read(Path(store.folder("tiny"))) == files
    assert store.plan("tiny", entries(files)).right


def test_a_file_system_without_second_names(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: str, target: str) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    fill(store, tmp_path, FILES)  # one content under two names
    fill(store, tmp_path, {"w": b"b" * 5000}, "twin")
    assert read(Path(store.folder("tiny"))) == FILES
    assert read(Path(store.folder("twin"))) == {"w": b"b" * 5000}
    assert store.plan("tiny", entries(), full=True).right


def test_half_a_content_is_not_taken_where_another_folder_has_it_whole(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, {"a": b"a" * 100}, "old")
    store.receive([piece(tmp_path, b"a" * 100, 0, 50)])
    wanted = entries({"b": b"a" * 100})
    plan = store.plan("new", wanted)
    assert plan.need == []
    store.commit("new", wanted, plan.wrong)
    assert read(Path(store.folder("new"))) == {"b": b"a" * 100}


def test_a_model_whose_links_are_gone_is_not_whole(store: Store, tmp_path: Path) -> None:
    wanted = entries({"blobs/aa": b"weights"})
    links = parse_store_links([["snapshots/c/model.safetensors", "../../blobs/aa"]], wanted)
    store.receive([piece(tmp_path, b"weights")])
    store.commit("models--o--n", wanted, store.plan("models--o--n", wanted, links=links).wrong, links)
    assert store.inventory()[0]["verdict"] == "whole"
    assert store.refresh_record("models--o--n", wanted, links) is False
    shutil.rmtree(os.path.join(store.folder("models--o--n"), "snapshots"))
    assert store.inventory()[0]["verdict"] == "1 of 2 files changed or lost, snapshots/c/model.safetensors first"


def test_what_another_run_delivers_is_not_taken_away(store: Store, tmp_path: Path) -> None:
    data = b"c" * 3000
    store.receive([piece(tmp_path, data, 0, 1000)])
    half = Path(store.incoming) / sha(data)
    store.receive([piece(tmp_path, b"x" * 100)])
    left = [Path(store.incoming) / f"{sha(b'x' * 100)}{end}" for end in ("", ".part", ".have")]
    for path in left[1:]:
        path.write_bytes(b"")
    store.clean_incoming(entries({"x": b"x" * 100}))
    assert [path.exists() for path in (half, *left)] == [True, False, False, False]
    store.receive([piece(tmp_path, data, 1000)])
    store.clean_incoming(entries({"w": data}))
    assert os.listdir(store.root) == [".records"]


def test_a_check_does_not_make_a_damaged_file_whole(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, {"w": b"a" * 100, "x": b"x" * 100})
    path = Path(store.folder("tiny")) / "w"
    wanted = entries({"w": b"a" * 100, "x": b"x" * 100})
    damaged = "1 of 2 files changed or lost, w first"
    for number, data in enumerate((b"b" * 100, b"c" * 100), 1):
        path.write_bytes(data)
        os.utime(path, ns=(number, number))
        assert store.inventory()[0]["verdict"] == damaged
        for _time in range(2):
            plan = store.plan("tiny", wanted)
            store.remember("tiny", plan.read)
            assert (plan.wrong, store.inventory()[0]["verdict"]) == (["w"], damaged)
        # others may have the content that it is
        assert store.whole("tiny", wanted, [])[sha(data)] == str(path)
    assert not plan.read  # known, and not read again
    # what is wanted by now
    assert store.as_recorded("tiny", entries({"w": b"c" * 100, "x": b"x" * 100}))
    path.write_bytes(b"a" * 100)
    os.utime(path, ns=(9, 9))
    store.remember("tiny", store.plan("tiny", wanted).read)
    assert store.inventory()[0]["verdict"] == "whole"


@pytest.mark.parametrize(
    "text",
    [
        '{"config.json": 5}',
        '{"config.json": [1]}',
        '{"config.json": ["1", 2, "a"]}',
        '{"config.json": [1, 2, {}]}',
        '{"config.json": {"0": 1}}',
        "[]",
        "5",
        '{"a": ' * 100_000 + "1" + "}" * 100_000,
        "{",
        '{"config.json": [1' + "0" * 5_000 + ', 2, "a"]}',
    ],
    ids=range(10),
)
def test_a_record_that_is_none_costs_a_second_reading_alone(store: Store, tmp_path: Path, text: str) -> None:
    fill(store, tmp_path, FILES, "m")
    record = Path(store.root) / ".records/m.json"
    record.write_text(text)
    assert store.read_record("m") == {}
    assert store.plan("m", entries()).wrong == []
    assert store.inventory()[0]["ours"]


def test_a_pipe_or_a_folder_in_the_place_of_a_record_is_none(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, FILES, "m")
    record = Path(store.root) / ".records/m.json"
    record.unlink()
    os.mkfifo(record)
    assert store.read_record("m") == {}
    record.unlink()
    record.mkdir()
    assert store.read_record("m") == {}
