# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder for each revision, one link, and the way there from a plain folder."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files as _files
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import revisions
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import store as _store
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError, revision_folder
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Owner, Store

from tests.unit.power import survives
from tests.unit.stores import FILES, entries, fill, read

CHANGED = {**FILES, "config.json": b'{"new": true}'}
OLD, NEW = revision_folder("tiny", entries()), revision_folder("tiny", entries(CHANGED))


def names(store: Store) -> list[str]:
    return sorted(name for name in os.listdir(store.root) if not name.startswith("."))


def inodes(folder: str) -> dict[str, int]:
    return {path: os.stat(os.path.join(folder, path)).st_ino for path in FILES}


def test_the_name_of_a_revision_follows_its_content_alone() -> None:
    assert OLD != NEW
    assert revision_folder("tiny", reversed(entries())) == OLD
    assert revision_folder("other", entries()).partition("@")[2] == OLD.partition("@")[2]
    with pytest.raises(StoreError, match="named with letters"):
        revision_folder("tiny@x", entries())


def test_a_new_revision_shares_what_is_equal_and_changes_nothing_of_the_old_one(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, FILES, OLD)
    revisions.lead_to(store, OLD)
    before = inodes(store.folder(OLD))
    plan = store.plan(NEW, entries(CHANGED))
    assert [item["size"] for item in plan.need] == [len(CHANGED["config.json"])]
    fill(store, tmp_path, CHANGED, NEW)
    assert (read(Path(store.folder(OLD))), inodes(store.folder(OLD))) == (FILES, before)
    assert read(Path(store.folder(NEW))) == CHANGED
    assert {path for path, inode in inodes(store.folder(NEW)).items() if inode == before[path]} == {*FILES} - {
        "config.json"
    }
    assert revisions.current(store, "tiny") == OLD, "nobody said that all hosts have it"
    assert revisions.switch(store, NEW, entries(CHANGED), (), dry=False) is True
    assert revisions.switch(store, NEW, entries(CHANGED), (), dry=False) is False
    assert read(Path(store.root) / "tiny") == CHANGED


def test_an_incomplete_revision_does_not_get_the_name(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, FILES, OLD)
    revisions.lead_to(store, OLD)
    fill(store, tmp_path, CHANGED, NEW)
    os.truncate(os.path.join(store.folder(NEW), "config.json"), 3)
    with pytest.raises(StoreError, match="is not whole, so tiny keeps its revision"):
        revisions.switch(store, NEW, entries(CHANGED), (), dry=False)
    assert revisions.current(store, "tiny") == OLD


def test_a_check_says_what_would_be_switched(store: Store, tmp_path: Path) -> None:
    fill(store, tmp_path, FILES, OLD)
    revisions.lead_to(store, OLD)
    assert revisions.switch(store, NEW, entries(CHANGED), (), dry=True) is True
    assert revisions.switch(store, OLD, entries(), (), dry=True) is False
    assert revisions.current(store, "tiny") == OLD


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_of_an_earlier_version_becomes_a_revision_without_a_copy(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr(revisions, "_exchange", lambda _one, _other: False)
    fill(store, tmp_path, FILES, "tiny")
    Path(store.folder("tiny"), "adapter").write_bytes(b"a person's")
    before, record = inodes(store.folder("tiny")), store.read_record("tiny")
    monkeypatch.setattr(revisions.content, "hash_file", lambda path: pytest.fail(f"{path} is read"))
    # what is declared is another one by now
    assert revisions.adopt(store, NEW) is True
    assert names(store) == ["tiny", OLD]
    assert (inodes(store.folder(OLD)), store.read_record(OLD)) == (before, record)
    assert read(Path(store.root) / "tiny") == {**FILES, "adapter": b"a person's"}
    assert store.names() == [OLD]
    assert store.as_recorded(OLD, entries())
    assert revisions.adopt(store, NEW) is False
    store.clean_incoming()
    assert not os.path.exists(os.path.join(store.root, ".incoming"))


def test_a_folder_that_a_person_put_there_is_compared_as_the_declared_revision(store: Store) -> None:
    for path, data in {**FILES, "config.json": b"[]"}.items():
        target = Path(store.root) / "tiny" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    assert revisions.adopt(store, OLD) is True
    plan = store.plan(OLD, entries())
    assert plan.wrong == ["config.json"]
    assert [item["size"] for item in plan.need] == [len(FILES["config.json"])]


def test_a_run_that_was_broken_off_in_the_middle_of_it_is_completed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path works at every moment, and the next run comes to the same end."""

    class Cut(Exception):
        pass

    def cut(*_arguments: object, **_options: object) -> None:
        raise Cut

    for place, name in ((store, "publish"), (revisions, "_lead_to"), (revisions, "_clear")):
        fill(store, tmp_path, FILES, "tiny")
        with monkeypatch.context() as now:
            now.setattr(place, name, cut)
            with pytest.raises(Cut):
                revisions.adopt(store, OLD)
        assert read(Path(store.root) / "tiny") == FILES
        revisions.adopt(store, OLD)
        assert (names(store), store.names(), read(Path(store.root) / "tiny")) == (["tiny", OLD], [OLD], FILES)
        store.clean_incoming()
        revisions.part(store, OLD)
        store.remove(OLD)
        assert names(store) == []


def test_old_revisions_go_but_none_that_is_served_or_served_last(store: Store, tmp_path: Path) -> None:
    folders = []
    for number in range(5):
        files = {**FILES, "config.json": str(number).encode()}
        folders.append(revision_folder("tiny", entries(files)))
        fill(store, tmp_path, files, folders[-1])
        os.utime(store.folder(folders[-1]), (number, number))
    fill(store, tmp_path, {"x": b"1"}, "tiny-2")
    revisions.lead_to(store, folders[4])
    assert revisions.superfluous(store, "tiny", 2, []) == [folders[2], folders[1], folders[0]]
    assert revisions.superfluous(store, "tiny", 1, [folders[0], folders[3]]) == [folders[2], folders[1]]
    assert revisions.superfluous(store, "tiny", 0, []) == list(reversed(folders[:4]))
    assert revisions.superfluous(store, "tiny", 5, []) == []
    # back to the oldest: that one is the newest in service
    revisions.lead_to(store, folders[0])
    assert revisions.superfluous(store, "tiny", 2, []) == [folders[3], folders[2], folders[1]]


def test_a_power_loss_leaves_the_old_revision_or_the_new_one(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (OLD, NEW):
        Path(store.folder(folder)).mkdir(parents=True)
        (Path(store.folder(folder)) / "config.json").write_text(folder)
    revisions.lead_to(store, OLD)
    monkeypatch.setattr(store, "alone", contextlib.nullcontext)

    def read_it() -> str:
        return (Path(store.root) / "tiny" / "config.json").read_text()

    found = survives(Path(store.root), monkeypatch, (_files,), lambda: revisions.lead_to(store, NEW), read_it)
    assert found == {repr(OLD), repr(NEW)}


def test_what_is_said_to_be_here_is_on_the_disk(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another host's configuration names it within seconds: a power loss must not take it from this one."""
    done: list[str] = []

    def noted(function: object, word: str) -> object:
        def call(*arguments: str) -> object:
            done.append(f"{word} {os.path.relpath(arguments[-1], store.root)}")
            return function(*arguments)  # type: ignore[operator]  # whichever of os it is

        return call

    monkeypatch.setattr(_files, "sync_folder", noted(_files.sync_folder, "sync"))
    monkeypatch.setattr(_store.os, "rename", noted(os.rename, "rename"))
    fill(store, tmp_path, FILES, OLD)
    scratch = f".incoming/folder-{OLD}"
    assert done == [f"sync {scratch}", f"sync {scratch}/sub", f"rename {OLD}", "sync .", "sync .records"]


def test_at_every_moment_each_host_has_what_the_head_names(tmp_path: Path) -> None:
    """The steps of three hosts in the order of the roles: wherever they end, what boots is one revision."""
    owner = Owner(os.getuid(), os.getgid())
    hosts = [Store(str(tmp_path / name), owner) for name in ("a", "b", "c")]
    contents = [{**FILES, "config.json": str(number).encode()} for number in range(4)]
    declared = [revision_folder("tiny", entries(files)) for files in contents]
    served, former = "", ""

    def check() -> None:
        for host in hosts:
            assert not served or host.as_recorded(served, entries(contents[declared.index(served)]))
            assert not former or host.as_recorded(former, entries(contents[declared.index(former)]))

    for files, folder in zip(contents, declared, strict=True):
        for host in hosts:
            fill(host, tmp_path, files, folder)
            check()
        for host in hosts:
            assert revisions.switch(host, folder, entries(files), (), dry=False)
            check()
            for old in revisions.superfluous(host, "tiny", 1, [name for name in (served, former) if name]):
                host.remove(old)
                check()
        # vllm.yaml, on the head alone
        served, former = folder, served
        check()
    assert [revisions.of(host, "tiny") for host in hosts] == [[declared[3], declared[2], declared[1]]] * 3
