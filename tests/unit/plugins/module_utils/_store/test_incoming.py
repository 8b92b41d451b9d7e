# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import incoming
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Owner, Store

from tests.unit.stores import FILES, entries, fill, piece, read, sha


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


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "readme"])
def test_a_bundle_with_a_strange_member(store: Store, tmp_path: Path, name: str) -> None:
    path = tmp_path / "bundle"
    with tarfile.open(path, "w") as archive:
        archive.add(__file__, arcname=name)
    with pytest.raises(StoreError, match="unexpected member"):
        store.receive([{"file": str(path), "bundle": True}])


def test_contents_of_a_bundle_lie_on_the_disk_before_they_count(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    with tarfile.open(tmp_path / "bundle", "w") as archive:
        archive.add(source, arcname=sha(b"x"))
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")) or fsync(handle)
    )
    store.receive([{"file": str(tmp_path / "bundle"), "bundle": True}])
    arrived = Path(store.incoming) / sha(b"x")
    assert synced == [str(arrived)]
    assert arrived.stat().st_mode & 0o777 == 0o400


@pytest.mark.parametrize("bundle", [False, True])
def test_a_content_is_not_on_the_disk_twice_after_a_broken_fan_out(store: Store, tmp_path: Path, bundle: bool) -> None:
    data = b"a" * 5000
    left = [Path(store.incoming) / f"{sha(data)}.{end}" for end in ("part", "have")]
    for path in left:
        path.write_bytes(b"?" * 5000)
    part = piece(tmp_path, data)
    if bundle:
        with tarfile.open(tmp_path / "bundle", "w") as archive:
            archive.add(part["file"], arcname=sha(data))
        part = {"file": str(tmp_path / "bundle"), "bundle": True}
    store.receive([part])
    assert not any(path.exists() for path in left)


def test_what_two_runs_send_counts_once(store: Store, tmp_path: Path) -> None:
    data = bytes(range(250)) * 20
    store.receive([piece(tmp_path, data, 0, 3000)])
    store.receive([piece(tmp_path, data, 2000, 2000)])
    assert (Path(store.incoming) / sha(data)).stat().st_size == 4000
    store.receive([piece(tmp_path, data, 3000)])
    store.receive([piece(tmp_path, data, 4000)])  # whole already
    wanted = entries({"w": data})
    assert store.plan("tiny", wanted).need == []
    store.commit("tiny", wanted, ["w"])
    assert read(Path(store.folder("tiny"))) == {"w": data}


def test_a_new_root_can_be_read_whatever_the_umask(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "srv" / "models"), Owner(os.getuid(), os.getgid()))
    before = os.umask(0o077)
    try:
        fill(store, tmp_path, FILES)
        (tmp_path / "own").mkdir(mode=0o700)
        fill(Store(str(tmp_path / "own"), store.owner), tmp_path, FILES)
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "srv", tmp_path / "srv/models", tmp_path / "own")]
    assert modes == [0o755, 0o755, 0o700]  # one that was there is its owner's business


def hold(store: Store) -> int:
    """Somebody else works in the store."""
    store.receive([])
    handle = os.open(os.path.join(store.root, ".records", ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.ftruncate(handle, 0)
    os.pwrite(handle, b"4711", 0)
    return handle


def test_a_run_waits_for_another_one_and_not_for_ever(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, tmp_path, FILES)
    handle = hold(store)
    monkeypatch.setattr(incoming, "LOCK_LIMIT", 0.3)
    for act in (
        lambda: store.receive([]),
        lambda: store.commit("tiny", entries(), []),
        lambda: store.remove("tiny"),
    ):
        with pytest.raises(StoreError, match=r"another run works in .* \(process 4711 .*run again.*kill 4711"):
            act()
    store.clean_incoming()
    assert os.path.isdir(os.path.join(store.root, ".incoming"))  # the other one may need it
    monkeypatch.setattr(incoming, "LOCK_LIMIT", 20.0)
    threading.Timer(0.3, os.close, [handle]).start()
    store.remove("tiny")
    store.clean_incoming()
    assert os.listdir(store.root) == [".records"]


def test_who_waits_for_the_lock_makes_nothing_that_its_holder_may_be_removing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = hold(store)
    os.rmdir(os.path.join(store.root, ".incoming"))
    monkeypatch.setattr(incoming, "LOCK_LIMIT", 0.1)
    with pytest.raises(StoreError, match="another run works"), store.alone():
        raise AssertionError("it is held")
    os.close(handle)
    assert os.listdir(store.root) == [".records"]


@pytest.mark.parametrize("name", [".incoming", ".records"])
def test_a_file_in_the_place_of_a_folder_of_the_store_is_named_with_the_fix(store: Store, name: str) -> None:
    os.makedirs(store.root)
    Path(store.root, name).touch()
    with pytest.raises(StoreError, match=rf"{name} must be a folder of the user who fills the store: remove it"):
        store.receive([])


def test_a_lock_ends_with_the_process_that_holds_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "LOCK_LIMIT", 10.0)
    program = (
        "import sys, time\n"
        "from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Store\n"
        "with Store(sys.argv[1], None)._arrivals.alone():\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, store.root], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with monkeypatch.context() as impatient:
            impatient.setattr(incoming, "LOCK_LIMIT", 0.1)
            with pytest.raises(StoreError, match=f"process {holder.pid}"):
                store.receive([])
        holder.kill()
    store.receive([])
