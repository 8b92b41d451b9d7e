# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories, files and links: their content, owner, group and mode."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from functools import partial

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Changes
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.originals import (
    LEDGER,
    Originals,
    keep_original,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import (
    MARKER,
    FileSpec,
    HostStateError,
    Owned,
    Wanted,
    has_marker,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files


class PathPlanner:
    """Plans directories, files and links; what has to be done is added to the changes."""

    def __init__(self, changes: Changes, wanted: Wanted, originals: Originals) -> None:
        self.changes = changes
        self.wanted = wanted
        self.originals = originals
        self._made_dirs: set[str] = set()
        #: what this call takes away
        self.gone: set[str] = set()

    def plan(self) -> None:
        for directory in self.wanted.directories:
            self._plan_directory(directory)
        for spec in self.wanted.files:
            self._plan_file(spec)
        for path, target in self.wanted.links:
            self._plan_link(path, target)
        for path in self.wanted.absent:
            self.plan_absent(path)

    def _ids(self, spec: Owned) -> tuple[int, int]:
        uid = self.changes.host.accounts.uid(spec.owner)
        gid = self.changes.host.accounts.gid(spec.group)
        if uid is None:
            raise HostStateError(f"{spec.path}: user {spec.owner} does not exist on this host")
        if gid is None:
            raise HostStateError(f"{spec.path}: group {spec.group} does not exist on this host")
        return uid, gid

    @staticmethod
    def _content(spec: FileSpec, real: str) -> bytes:
        """What stands in a file; a user's second name of one that is not for him is neither shown nor kept."""
        try:
            return files.read_plain(real)
        except OSError as error:
            if error.errno == errno.EPERM:
                return MARKER.encode() + b"\n(another name of a file elsewhere)\n"
            raise HostStateError(f"{spec.path} cannot be read: {error.strerror}") from None

    def _attributes_differ(self, spec: Owned, info: os.stat_result) -> bool:
        """A user this run is still to create owns nothing yet, so that is a difference, not an error."""
        declared = {u["name"] for u in self.wanted.users}
        groups = {g["name"] for g in self.wanted.groups} | declared
        uid, gid = self.changes.host.accounts.uid(spec.owner), self.changes.host.accounts.gid(spec.group)
        if not self.changes.check:
            if uid is None and spec.owner not in declared:
                raise HostStateError(f"{spec.path}: user {spec.owner} does not exist on this host")
            if gid is None and spec.group not in groups:
                raise HostStateError(f"{spec.path}: group {spec.group} does not exist on this host")
        return info.st_uid != uid or info.st_gid != gid or stat.S_IMODE(info.st_mode) != spec.mode

    def _attributes_text(self, info: os.stat_result) -> str:
        owner = self.changes.host.accounts.user_name(info.st_uid)
        group = self.changes.host.accounts.group_name(info.st_gid)
        return f"owner {owner}\ngroup {group}\nmode {stat.S_IMODE(info.st_mode):04o}\n"

    def _plan_directory(self, spec: Owned) -> None:
        real = self.changes.host.at(spec.path)
        try:
            handle = files.open_checked(real, os.O_RDONLY)
        except FileNotFoundError:
            if os.path.islink(real):
                raise HostStateError(f"{spec.path} is a link that leads nowhere; a directory is wanted") from None
            self._plan_parents(spec.path)
            self._made_dirs.add(spec.path)
            self.changes.note_path(spec.path, "", "directory\n" + _wanted_text(spec))
            self.changes.steps.append(lambda: self._make_directory(spec))
            return
        except NotADirectoryError:
            raise HostStateError(f"{spec.path}: a part of the path is a file") from None
        except OSError as error:
            raise HostStateError(f"{spec.path}: {error.strerror}; remove it") from None
        try:
            info = os.fstat(handle)
        finally:
            os.close(handle)
        if not stat.S_ISDIR(info.st_mode):
            raise HostStateError(f"{spec.path} is not a directory; move it out of the way")
        if self._attributes_differ(spec, info):
            self.changes.note_path(spec.path, self._attributes_text(info), _wanted_text(spec), " (attributes)")
            self.changes.steps.append(lambda: self._own_directory(spec))

    def _plan_parents(self, path: str) -> None:
        parent = os.path.dirname(path)
        if parent in self._made_dirs or os.path.isdir(self.changes.host.at(parent)):
            return
        if os.path.lexists(self.changes.host.at(parent)):
            raise HostStateError(f"{path}: {parent} is not a directory")
        self._plan_parents(parent)
        spec = Owned(parent, "root", "root", 0o755)
        self._made_dirs.add(parent)
        self.changes.note_path(parent, "", "directory\n" + _wanted_text(spec))
        self.changes.steps.append(lambda: self._make_directory(spec))

    def _make_directory(self, spec: Owned) -> None:
        # before it is there: a run that dies in between must not leave a folder that nobody takes away
        self.originals.remember("folders", spec.path, None)
        try:
            if spec.path == os.path.dirname(LEDGER) and os.path.isdir(self.changes.host.at(spec.path)):
                # the record has just made its own folder
                files.own_folder(self.changes.host.at(spec.path), *self._ids(spec), spec.mode)
                return
            files.make_folder(self.changes.host.at(spec.path), *self._ids(spec), spec.mode)
        except OSError as error:
            raise HostStateError(f"{spec.path} cannot be made: {error.strerror}") from error

    def _own_directory(self, spec: Owned) -> None:
        try:
            files.own_folder(self.changes.host.at(spec.path), *self._ids(spec), spec.mode)
        except OSError as error:
            raise HostStateError(f"{spec.path}: owner or mode cannot be set: {error.strerror}") from error

    def _plan_file(self, spec: FileSpec) -> None:
        real = self.changes.host.at(spec.path)
        try:
            info: os.stat_result | None = os.lstat(real)
        except FileNotFoundError:
            info = None
        except NotADirectoryError:
            raise HostStateError(f"{spec.path}: a part of the path is a file") from None
        if info is None:
            self._plan_parents(spec.path)
            self.changes.note_path(spec.path, "", _shown_content(spec, spec.content))
            self.changes.steps.append(lambda: self._write(spec))
            return
        if stat.S_ISLNK(info.st_mode):
            before, same, ours = f"link to {os.readlink(real)}\n".encode(), False, False
        elif stat.S_ISREG(info.st_mode):
            before = self._content(spec, real)
            same = before == spec.content
            # Content that can carry no marker (a key, a program) is judged by its path alone
            ours = has_marker(before) or not has_marker(spec.content)
        else:
            raise HostStateError(f"{spec.path} is not a regular file; move it out of the way")
        if not same and not ours:
            alike = stat.S_ISREG(info.st_mode) and meaning(before) == meaning(spec.content)
            if spec.foreign == "adopt" and alike:
                return
            if spec.foreign in ("refuse", "adopt"):
                raise HostStateError(
                    f"{spec.path} was not written by this collection and differs from what is wanted; nothing was "
                    "changed. Remove it, or allow its replacement (a copy is kept beside it)"
                )
        if not same:
            self.changes.note_path(spec.path, _shown_content(spec, before), _shown_content(spec, spec.content))
            self.changes.steps.append(lambda: self._write(spec, keep=not ours and spec.backup))
            if stat.S_ISLNK(info.st_mode):
                return
        if self._attributes_differ(spec, info):
            text = self._attributes_text(info)
            if same:
                self.changes.note_path(spec.path, text, _wanted_text(spec), " (attributes)")
                # a new file, because this one may have a second name that is somebody else's
                self.changes.steps.append(lambda: self._write(spec))
            else:
                self.changes.note(spec.path, text, _wanted_text(spec), " (attributes)")

    def _write(self, spec: FileSpec, keep: bool = False) -> None:
        uid, gid = self._ids(spec)
        try:
            if keep:
                keep_original(self.changes.host.at(spec.path))
            files.write_atomic(self.changes.host.at(spec.path), spec.content, uid, gid, spec.mode)
        except OSError as error:
            raise HostStateError(f"{spec.path} cannot be written: {error.strerror}") from error

    def _plan_link(self, path: str, target: str) -> None:
        real = self.changes.host.at(path)
        if os.path.islink(real):
            present = os.readlink(real)
            if present == target or self._same_place(path, present, target):
                return
            before = f"link to {present}\n"
            original: str | None = present
        elif os.path.lexists(real):
            raise HostStateError(f"{path} is not a link; move it out of the way (a link to {target} is wanted)")
        else:
            self._plan_parents(path)
            before, original = "", None
        self.changes.note_path(path, before, f"link to {target}\n")

        def apply() -> None:
            self.originals.remember("links", path, original)
            self.set_link(path, target)

        self.changes.steps.append(apply)

    def set_link(self, path: str, target: str) -> None:
        try:
            files.make_link(self.changes.host.at(path), target)
        except OSError as error:
            raise HostStateError(f"link {path} cannot be made: {error.strerror}") from error

    def _same_place(self, path: str, one: str, other: str) -> bool:
        """/lib/systemd/... and /usr/lib/systemd/... are one place; a link that already leads there is right."""
        places = []
        for target in (one, other):
            absolute = target if target.startswith("/") else os.path.join(os.path.dirname(path), target)
            real = self.changes.host.at(os.path.normpath(absolute))
            if not os.path.exists(real):
                return False
            places.append(os.path.realpath(real))
        return places[0] == places[1]

    def plan_absent(self, path: str) -> None:
        real = self.changes.host.at(path)
        if not os.path.lexists(real):
            return
        is_tree = os.path.isdir(real) and not os.path.islink(real)
        # of directories only: on an overlay every file has another device number than the directory it is in
        if is_tree and os.path.ismount(real):
            raise HostStateError(f"absent: {path} is a mount point; unmount it first")
        self.changes.note_path(path, "directory\n" if is_tree else "present\n", "")
        self.gone.add(path)

        def apply() -> None:
            try:
                files.remove(real)
            except OSError as error:
                raise HostStateError(f"{path} cannot be removed: {error.strerror}") from error
            self.originals.forget("folders", path)

        self.changes.steps.append(apply)

    def plan_left_folders(self) -> None:
        """A folder that we made goes with the last thing in it, in a call that only takes away."""
        if self.wanted.files or self.wanted.directories or self.wanted.links:
            return
        waiting = sorted(self.gone)
        while waiting:
            path = os.path.dirname(waiting.pop())
            real = self.changes.host.at(path)
            if path in self.gone or path not in self.originals.entries("folders") or os.path.ismount(real):
                continue
            if all(os.path.join(path, name) in self.gone for name in os.listdir(real)):
                self.gone.add(path)
                waiting.append(path)
                self.changes.note_path(path, "directory\n", "")
                self.changes.steps.append(partial(self._remove_left, path, real))

    def _remove_left(self, path: str, real: str) -> None:
        # somebody may have put something there meanwhile: then it is no longer ours to take
        with contextlib.suppress(OSError):
            os.rmdir(real)
        self.originals.forget("folders", path)


def _wanted_text(spec: Owned) -> str:
    return f"owner {spec.owner}\ngroup {spec.group}\nmode {spec.mode:04o}\n"


def _shown_content(spec: FileSpec, content: bytes) -> str:
    if not content:
        return ""
    if spec.secret:
        # The two sides of a diff must differ to be shown at all, yet tell nothing about the content
        wanted = "new" if content is spec.content else "present"
        return f"({wanted} secret content is not shown)\n"
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"({len(content)} bytes that are not text)\n"


def meaning(content: bytes) -> list[bytes]:
    """What is left of a configuration file without comment lines, blank lines and trailing white space."""
    lines = (line.rstrip() for line in content.splitlines())
    return [line for line in lines if line and not line.lstrip().startswith((b"#", b";"))]
