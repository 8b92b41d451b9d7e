# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader never sees half of a file, and half a file of somebody else's is none."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files


def test_content_and_mode_arrive_together(tmp_path: Path) -> None:
    path = tmp_path / "a"
    files.write_atomic(str(path), "grün\n", mode=0o600)
    assert path.read_text(encoding="utf-8") == "grün\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    files.write_atomic(str(path), b"\xff", os.getuid(), os.getgid(), 0o644)
    assert path.read_bytes() == b"\xff"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(tmp_path) == ["a"]


def test_an_owner_is_not_asked_for_where_none_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd's @privileged refuses fchown to a unit, whatever owner it names."""

    def refused(_descriptor: int, _uid: int, _gid: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(files.os, "fchown", refused)
    path = tmp_path / "a"
    files.write_atomic(str(path), "mine")
    assert path.read_text() == "mine"
    with pytest.raises(PermissionError):
        files.write_atomic(str(path), "theirs", os.getuid(), os.getgid())
    assert path.read_text() == "mine"


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomic(str(path), "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files.write_atomic("a", "x")
    assert (tmp_path / "a").read_text() == "x"


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b'{"a": 1}', {"a": 1}), (b'{"a": 1', {}), (b"[1]", {}), (b"", {}), (b"\xff\xfe", {}), (None, {})],
)
def test_json_of_others(tmp_path: Path, content: bytes | None, expected: dict[str, int]) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    assert files.read_json(str(path)) == expected


NOBODY = 65534
#: only root can make a file of another user's
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")


def link(path: Path, target: Path | str, owner: int = NOBODY) -> Path:
    path.symlink_to(target)
    os.chown(path, owner, owner, follow_symlinks=False)
    return path


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that nothing may reach, with a file in it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("precious")
    return tmp_path / "outside"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of the serving user's."""
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", NOBODY, NOBODY)
    return tmp_path / "theirs"


def untouched(outside: Path) -> bool:
    state = (outside / "file").stat()
    return (
        os.listdir(outside) == ["file"]
        and (outside / "file").read_text() == "precious"
        and (state.st_uid, outside.stat().st_uid) == (os.geteuid(), os.geteuid())
    )


ACTS = {
    "write_atomic": lambda path: files.write_atomic(f"{path}/new", "x"),
    "write_in_place": lambda path: files.write_in_place(f"{path}/file", "x"),
    "read_plain": lambda path: files.read_plain(f"{path}/file"),
    "make_folder": lambda path: files.make_folder(f"{path}/new", NOBODY, NOBODY, 0o755),
    "own_folder": lambda path: files.own_folder(str(path), NOBODY, NOBODY, 0o777),
    "make_link": lambda path: files.make_link(f"{path}/new", "/"),
    "remove": lambda path: files.remove(f"{path}/file"),
}


@as_root
@pytest.mark.parametrize("act", ACTS)
def test_a_link_of_another_user_leads_nowhere(outside: Path, theirs: Path, act: str) -> None:
    planted = link(theirs / "planted", outside)
    with pytest.raises(OSError, match=f"planted is a link of user {NOBODY}"):
        ACTS[act](planted)
    assert untouched(outside)


@as_root
@pytest.mark.parametrize("act", ACTS)
def test_nor_does_one_higher_up(outside: Path, theirs: Path, act: str) -> None:
    (outside.parent / "deep").mkdir()
    link(theirs / "planted", outside.parent)
    with pytest.raises(OSError, match="which is not followed"):
        ACTS[act](theirs / "planted" / "outside")
    assert untouched(outside)


@pytest.mark.parametrize("target", ["{}/outside", "outside", "../{name}/outside", "./outside/../outside"])
def test_a_link_of_ones_own_is_followed(outside: Path, target: str) -> None:
    (outside.parent / "mine").symlink_to(target.format(outside.parent, name=outside.parent.name))
    assert files.read_plain(str(outside.parent / "mine" / "file")) == b"precious"
    files.write_atomic(str(outside.parent / "mine" / "new"), "x")
    assert (outside / "new").read_text() == "x"


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        files.read_plain(str(tmp_path / "a" / "c"))


@as_root
def test_a_link_at_the_end_is_replaced_not_followed(outside: Path, theirs: Path) -> None:
    link(theirs / "state.json", outside / "file")
    assert files.read_json(str(theirs / "state.json")) == {}
    files.write_atomic(str(theirs / "state.json"), "{}")
    assert untouched(outside)
    assert not (theirs / "state.json").is_symlink()
    link(theirs / "tree", outside)
    files.remove(str(theirs / "tree"))
    assert untouched(outside)


def test_a_link_inside_a_removed_tree_goes_alone(outside: Path, tmp_path: Path) -> None:
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "folder").symlink_to(outside)
    (tmp_path / "tree" / "deep" / "hard").hardlink_to(outside / "file")
    files.remove(str(tmp_path / "tree"))
    assert not (tmp_path / "tree").exists()
    assert untouched(outside)


def test_a_second_name_of_a_file_keeps_its_content(outside: Path, tmp_path: Path) -> None:
    (tmp_path / "hard").hardlink_to(outside / "file")
    with pytest.raises(OSError, match="one name"):
        files.write_in_place(str(tmp_path / "hard"), "x")
    files.write_atomic(str(tmp_path / "hard"), "x", NOBODY if os.geteuid() == 0 else -1, -1, 0o666)
    assert untouched(outside)


def test_who_waits_at_a_file_may_read_it_whatever_the_umask(tmp_path: Path) -> None:
    former = os.umask(0o077)
    try:
        files.write_in_place(str(tmp_path / "file"), "x")
    finally:
        os.umask(former)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert files.read_json(str(tmp_path / "pipe")) == {}
    with pytest.raises(OSError, match=r"No such device|one name"):
        files.write_in_place(str(tmp_path / "pipe"), "x")


@as_root
def test_a_folder_that_becomes_a_link_meanwhile(outside: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user swaps the folder between its opening and the write: the write stays in the folder that was opened."""
    (theirs / "run").mkdir()
    foresee = files._scratch

    def swap(name: str) -> str:
        (theirs / "run").rename(theirs / "away")
        link(theirs / "run", outside)
        return foresee(name)

    monkeypatch.setattr(files, "_scratch", swap)
    files.write_atomic(str(theirs / "run" / "file"), "x")
    assert untouched(outside)
    assert (theirs / "away" / "file").read_text() == "x"


@as_root
def test_a_tree_that_becomes_a_link_while_it_is_removed(
    outside: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (theirs / "tree").mkdir()
    real = files.shutil.rmtree

    def swap(path: str) -> None:
        (theirs / "tree").rename(theirs / "away")
        link(theirs / "tree", outside)
        real(path)

    monkeypatch.setattr(files.shutil, "rmtree", swap)
    with pytest.raises(OSError, match="tree"):
        files.remove(str(theirs / "tree"))
    assert untouched(outside)


@as_root
@pytest.mark.parametrize(
    "kind", ["link", "link of a link", "folder that is a link", "hard link", "fifo", "socket", "folder", "memory"]
)
def test_what_another_user_can_lay_in_the_way_is_not_read(
    tmp_path: Path, outside: Path, theirs: Path, kind: str
) -> None:
    (outside / "file").chmod(0o640)
    path = theirs / "file"
    if kind == "link":
        link(path, outside / "file")
    elif kind == "link of a link":
        link(theirs / "other", outside / "file")
        link(path, "other")
    elif kind == "folder that is a link":
        link(theirs / "below", outside)
        path = theirs / "below" / "file"
    elif kind == "hard link":
        os.link(outside / "file", path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    elif kind == "folder":
        path.mkdir()
    else:
        link(path, "/proc/self/mem")
    with pytest.raises(OSError, match=r"."):
        files.read_plain(str(path))
    assert files.read_json(str(path)) == {}
    with pytest.raises(OSError, match=r"."):
        files.read_beneath(str(theirs), str(path.relative_to(theirs)), NOBODY)


@as_root
def test_a_device_is_no_file(tmp_path: Path) -> None:
    os.mknod(tmp_path / "zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    with pytest.raises(OSError, match="not a plain file"):
        files.read_plain(str(tmp_path / "zero"))


@as_root
def test_second_names_that_take_nothing_from_anybody_are_read(theirs: Path, outside: Path, tmp_path: Path) -> None:
    (theirs / "own").write_text("theirs")
    os.chown(theirs / "own", NOBODY, NOBODY)
    (theirs / "own").chmod(0o600)
    os.link(theirs / "own", theirs / "again")
    assert files.read_plain(str(theirs / "again")) == b"theirs"
    (outside / "file").chmod(0o644)
    os.link(outside / "file", theirs / "public")
    assert files.read_plain(str(theirs / "public")) == b"precious"
    (outside / "file").chmod(0o600)
    os.link(outside / "file", outside / "again")
    assert files.read_plain(str(outside / "again")) == b"precious"
    # a folder of root's where others may give names is no safer than one of theirs
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    os.link(outside / "file", tmp_path / "shared" / "file")
    with pytest.raises(PermissionError):
        files.read_plain(str(tmp_path / "shared" / "file"))


def test_of_a_giant_file_no_more_than_the_limit(tmp_path: Path) -> None:
    with open(tmp_path / "giant", "wb") as stream:
        stream.truncate(1 << 40)
        stream.seek(0)
        stream.write(b"begin")
        stream.seek((1 << 40) - 3)
        stream.write(b"end")
    assert files.read_plain(str(tmp_path / "giant"), 6) == b"begin\0"
    assert files.read_plain(str(tmp_path / "giant"), 6, end=True) == b"\0\0\0end"


def test_too_deep_a_document_is_none(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text('{"a":' * 200_000)
    assert files.read_json(str(tmp_path / "deep.json")) == {}


@as_root
def test_what_a_process_sees_is_read_by_its_users_rights(tmp_path: Path, outside: Path) -> None:
    """In a root folder of his own a user mounts what he likes, a file of root's among it."""
    root = tmp_path / "container"
    (root / "etc").mkdir(parents=True)
    (tmp_path / "root").symlink_to(root)
    (root / "etc/nccl.conf").write_text("NCCL_DEBUG=INFO\n")
    assert files.read_beneath(str(tmp_path / "root"), "etc/nccl.conf", NOBODY) == b"NCCL_DEBUG=INFO\n"
    (root / "etc/nccl.conf").chmod(0o640)
    with pytest.raises(PermissionError, match="may not read it"):
        files.read_beneath(str(tmp_path / "root"), "etc/nccl.conf", NOBODY)
    assert files.read_beneath(str(tmp_path / "root"), "etc/nccl.conf", 0) == b"NCCL_DEBUG=INFO\n"
    # even a link of root's: in the container it is the container's root
    (root / "etc/nccl.conf").unlink()
    (root / "etc/nccl.conf").symlink_to(outside / "file")
    with pytest.raises(OSError, match=r"."):
        files.read_beneath(str(tmp_path / "root"), "etc/nccl.conf", 0)
    (root / "etc/nccl.conf").unlink()
    (root / "etc").rmdir()
    (root / "etc").symlink_to(outside)
    with pytest.raises(OSError, match=r"."):
        files.read_beneath(str(tmp_path / "root"), "etc/file", 0)


@as_root
def test_a_folder_that_a_foreign_link_leads_to_has_no_names(theirs: Path, outside: Path) -> None:
    link(theirs / "there", outside)
    assert files.list_folder(str(outside)) == ["file"]
    assert files.list_folder(str(theirs / "there")) == []
    assert files.list_folder(str(theirs / "nothing")) == []


def of_owner(top: Path, path: str) -> str:
    """What the owner of a folder may read below it; the error's own word where he may not."""
    try:
        with os.fdopen(files.open_of_owner(str(top), path), encoding="utf-8") as stream:
            return stream.read()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def owned(top: Path) -> None:
    for parent, _folders, names in os.walk(top):
        for path in [parent, *(os.path.join(parent, name) for name in names)]:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


@pytest.fixture
def cache(theirs: Path, outside: Path) -> Path:
    """A user's folder with a file in it that has the name of another one outside."""
    (theirs / "blobs").mkdir()
    (theirs / "blobs" / "file").write_text("own")
    (theirs / "model").mkdir()
    owned(theirs)
    return theirs


@as_root
@pytest.mark.parametrize(
    ("target", "read"),
    [
        ("../blobs/file", "own"),
        ("./../model/../blobs/./file", "own"),
        ("../loop/blobs/file", "own"),  # by way of another link of the owner's
        ("../../outside/file", "EXDEV"),
        ("../../theirs/blobs/file", "EXDEV"),  # out, and in again
        ("{top}/blobs/file", "EXDEV"),  # what begins at / is not judged by where it ends
        ("{top}/../outside/file", "EXDEV"),
        ("../away/file", "EXDEV"),
        ("name", "ELOOP"),
        ("../blobs/none", "ENOENT"),
        ("../blobs/file/below", "EINVAL"),  # a file is no folder
    ],
)
def test_a_link_of_the_owners_is_followed_within_his_folder_alone(cache: Path, target: str, read: str) -> None:
    (cache / "loop").symlink_to(".")
    (cache / "away").symlink_to("../outside")
    (cache / "model" / "name").symlink_to(target.format(top=cache))
    owned(cache)
    assert of_owner(cache, "model/name") == read
    assert of_owner(cache, f"model/../{os.path.join('model', 'name')}") == read


@as_root
@pytest.mark.parametrize(
    ("uid", "gid", "mode", "read"),
    [
        (NOBODY, NOBODY, 0o400, "own"),
        (NOBODY, NOBODY, 0o044, "EPERM"),  # the kernel asks the owner's bits alone
        (0, 0, 0o600, "EPERM"),
        (0, 0, 0o644, "own"),  # as a container leaves it
        (0, NOBODY, 0o640, "own"),
        (0, NOBODY, 0o604, "EPERM"),  # and of his group those of the group
        (0, 4242, 0o640, "EPERM"),
    ],
)
def test_root_reads_no_more_than_the_owner_of_the_folder_may(
    cache: Path, uid: int, gid: int, mode: int, read: str
) -> None:
    os.chown(cache / "blobs" / "file", uid, gid)
    (cache / "blobs" / "file").chmod(mode)
    assert of_owner(cache, "blobs/file") == read
    # of a folder on the way he needs the right to pass, of one that is listed the right to read
    os.chown(cache / "blobs" / "file", NOBODY, NOBODY)
    (cache / "blobs" / "file").chmod(0o600)
    os.chown(cache / "blobs", uid, gid)
    passes = {0o400: 0o500, 0o044: 0o055, 0o600: 0o700, 0o644: 0o755, 0o640: 0o750, 0o604: 0o705}[mode]
    (cache / "blobs").chmod(passes)
    assert of_owner(cache, "blobs/file") == read
    assert files.list_of_owner(str(cache), "blobs") == (["file"] if read == "own" else [])
    (cache / "blobs").chmod(passes & ~0o444)
    assert of_owner(cache, "blobs/file") == read
    assert files.list_of_owner(str(cache), "blobs") == []


@as_root
def test_a_second_name_in_his_folder_opens_no_file_of_another_user(cache: Path, outside: Path) -> None:
    (outside / "file").chmod(0o600)
    os.link(outside / "file", cache / "model" / "name")
    assert of_owner(cache, "model/name") == "EPERM"
    # nor one that his own group may read, since the name alone proves no right to it
    os.chown(outside / "file", 0, NOBODY)
    (outside / "file").chmod(0o640)
    assert of_owner(cache, "model/name") == "EPERM"
    (outside / "file").chmod(0o644)
    assert of_owner(cache, "model/name") == "precious"


@as_root
def test_of_a_folder_its_names_and_of_no_folder_none(cache: Path, outside: Path) -> None:
    link(cache / "there", "blobs")
    link(cache / "away", "../outside")
    link(cache / "far", outside)
    link(cache / "model" / "here", ".")
    link(cache / "model" / "up", "..")
    link(cache / "model" / "round", "./../model/./../blobs/.")
    assert files.list_of_owner(str(cache), "") == ["away", "blobs", "far", "model", "there"]
    assert files.list_of_owner(str(cache), "model/up") == ["away", "blobs", "far", "model", "there"]
    assert files.list_of_owner(str(cache), "model/here/..") == ["away", "blobs", "far", "model", "there"]
    assert files.list_of_owner(str(cache), "model/here") == ["here", "round", "up"]
    for path in ("there", "model/round", "model/here/up/there"):
        assert files.list_of_owner(str(cache), path) == ["file"], path
    for path in ("away", "far", "..", "blobs/file", "none"):
        assert files.list_of_owner(str(cache), path) == [], path
    # the folder itself is reached by no link of his
    assert files.list_of_owner(str(link(outside.parent / "planted", cache)), "") == []


def test_a_pipe_in_a_cache_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    handle = files.open_of_owner(str(tmp_path), "pipe")
    assert stat.S_ISFIFO(os.fstat(handle).st_mode)
    os.close(handle)


@as_root
@pytest.mark.parametrize("becomes", ["link", "elsewhere"])
def test_a_cache_that_changes_while_it_is_walked(
    cache: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    """Its owner swaps a folder once it was passed: what is open stays what it was, and up leads where it came from."""
    (cache / "model" / "name").symlink_to("../blobs/file")
    (cache / "deep").mkdir()
    os.rename(cache / "model", cache / "deep" / "model")
    (cache / "deep" / "blobs").mkdir()
    (cache / "deep" / "blobs" / "file").write_text("deep")
    owned(cache)
    (outside / "blobs").mkdir()
    (outside / "blobs" / "file").write_text("precious")
    real, swapped = os.open, []

    def opened(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "name" and not swapped:
            swapped.append(path)
            if becomes == "link":
                os.rename(cache / "deep", cache / "gone")
                (cache / "deep").symlink_to(outside)
            else:
                os.rename(cache / "deep" / "model", outside / "model")
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(files.os, "open", opened)
    assert of_owner(cache, "deep/model/name") == "deep"
    assert swapped == ["name"]
