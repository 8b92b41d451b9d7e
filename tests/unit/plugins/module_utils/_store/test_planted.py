# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A store that earlier versions gave to the serving user, with what that user planted in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import content
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Store

from tests.unit.stores import FILES, entries, fill, piece, read

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")
NOBODY = 65534


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of root's with a secret in it."""
    (tmp_path / "outside").mkdir(mode=0o700)
    (tmp_path / "outside" / "weights-2").write_bytes(b"secret")
    (tmp_path / "outside" / "weights-2").chmod(0o600)
    return tmp_path / "outside"


@pytest.fixture
def former(store: Store, tmp_path: Path) -> Path:
    """The folder of a model, whose every file and folder is the serving user's."""
    fill(store, tmp_path, FILES)
    folder = Path(store.folder("tiny"))
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    return folder


def untouched(outside: Path) -> bool:
    state = (outside / "weights-2").stat()
    return (state.st_uid, state.st_mode & 0o777, (outside / "weights-2").read_bytes(), os.listdir(outside)) == (
        0,
        0o600,
        b"secret",
        ["weights-2"],
    )


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in [folder, *folder.rglob("*")]}


def test_a_former_store_becomes_roots(store: Store, former: Path) -> None:
    plan = store.plan("tiny", entries())
    assert (plan.wrong, plan.need) == ([], [])
    assert len(plan.modes) == 6
    store.commit("tiny", entries(), plan.wrong)
    assert owners(former) == {0}
    assert store.plan("tiny", entries()).right
    assert read(former) == FILES


def test_a_folder_that_became_a_link(store: Store, former: Path, outside: Path) -> None:
    (former / "sub").rename(former / "away")
    (former / "sub").symlink_to(outside)
    plan = store.plan("tiny", entries())
    with pytest.raises(StoreError, match=r"sub is in the way|has not arrived"):
        store.commit("tiny", entries(), plan.wrong)
    assert untouched(outside)


def test_a_folder_that_becomes_a_link_after_it_was_looked_at(
    store: Store, former: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = store.plan("tiny", entries())
    real = Store._make_folder

    def swap(self: Store, target: str, relative: str) -> None:
        if relative == "sub":
            (former / "sub").rename(former / "away")
            (former / "sub").symlink_to(outside)
        real(self, target, relative)

    monkeypatch.setattr(Store, "_make_folder", swap)
    with pytest.raises(StoreError, match="sub is in the way"):
        store.commit("tiny", entries(), plan.wrong)
    assert untouched(outside)
    assert former.stat().st_uid == 0, "the outer folder is taken first"


def test_a_file_with_a_name_elsewhere_is_copied(store: Store, former: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").hardlink_to(former / "sub" / "weights-1")
    store.commit("tiny", entries(), [])
    assert (tmp_path / "theirs").stat().st_uid == NOBODY
    assert owners(former) == {0}
    assert read(former) == FILES


def test_a_file_that_two_models_share_is_not_copied(store: Store, former: Path, tmp_path: Path) -> None:
    fill(store, tmp_path, {"same": FILES["sub/weights-2"]}, "other")
    for name in ("tiny", "other"):
        os.chown(store.folder(name), NOBODY, NOBODY)
    os.chown(former / "sub" / "weights-2", NOBODY, NOBODY)
    number = (former / "sub" / "weights-2").stat().st_ino
    store.commit("tiny", entries(), [])
    assert (former / "sub" / "weights-2").stat().st_ino == number


def test_a_content_of_another_models_folder_is_what_was_checked(
    store: Store, former: Path, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at a file of a folder that is still the user's and the link to it."""
    real = os.link

    def swap(source: str, target: str) -> None:
        (former / "sub").rename(former / "away")
        (former / "sub").symlink_to(outside)
        os.chown(former / "sub", NOBODY, NOBODY, follow_symlinks=False)
        real(source, target)

    wanted = entries({"new": FILES["sub/weights-2"]})
    wrong = store.plan("second", wanted).wrong
    monkeypatch.setattr(os, "link", swap)
    with pytest.raises(OSError, match="sub is a link of user"):
        store.commit("second", wanted, wrong)
    assert untouched(outside)


def test_a_removed_folder_takes_its_links_alone(store: Store, former: Path, outside: Path) -> None:
    (former / "sub" / "planted").symlink_to(outside)
    store.remove("tiny")
    assert not former.exists()
    assert untouched(outside)


@pytest.mark.parametrize(("owner", "mode"), [(NOBODY, 0o755), (0, 0o775), (0, 0o777)])
def test_a_store_that_others_can_change_is_not_filled(store: Store, tmp_path: Path, owner: int, mode: int) -> None:
    os.makedirs(store.root)
    os.chown(store.root, owner, owner)
    os.chmod(store.root, mode)
    with pytest.raises(StoreError, match="others can change what is in it"):
        store.receive([piece(tmp_path, b"x")])
    assert os.listdir(store.root) == []


def test_a_planted_folder_of_what_is_on_its_way(store: Store, tmp_path: Path, outside: Path) -> None:
    os.makedirs(store.root, 0o755)
    Path(store.root, ".incoming").symlink_to(outside)
    with pytest.raises((StoreError, FileExistsError)):
        store.receive([piece(tmp_path, b"x")])
    assert untouched(outside)
    assert (
        content.state_of(os.path.join(store.root, ".records")) is None
        or os.listdir(os.path.join(store.root, ".records")) == []
    )
