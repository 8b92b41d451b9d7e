# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a power loss may leave of a folder, before and after every call that a writer makes.

A write reaches the disk for sure with the fsync of its file, a name with the fsync of its folder. Until then any part
of a content, and any number of the names' changes in their order, may be lost.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

#: how the content of a link begins
LINK = b"link to "
#: changes of a name; each takes the names before it
Change = Callable[[dict[str, int]], None]


def held(path: str) -> bytes:
    return LINK + os.readlink(path).encode() if os.path.islink(path) else Path(path).read_bytes()


class Disk:
    """Stands where a writer's modules have ``os``: does what it is asked, and notes what of it is safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.top = str(folder)
        self.calls = 0
        #: the call that fails
        self.fails: int | None = None
        #: content by file, and the paths below the folder of each: as they are now
        self.names: dict[str, int] = {}
        self.opened: dict[int, str] = {}
        #: what no power loss takes
        self.safe: dict[int, bytes] = {}
        self.safe_names: dict[str, int] = {}
        self.pending: list[tuple[str, Change]] = []
        self.states: set[tuple[tuple[str, bytes], ...]] = set()
        for path in sorted(self._files()):
            self.names[path] = len(self.names)
            self.safe[self.names[path]] = held(path)
        self.safe_names = dict(self.names)

    def _files(self) -> set[str]:
        found = (os.path.join(top, name) for top, folders, names in os.walk(self.top) for name in [*folders, *names])
        return {path for path in found if os.path.islink(path) or not os.path.isdir(path)}

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return real if isinstance(real, (ModuleType, int, str, type)) else self._counted(name, real)

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        note = getattr(self, f"_{name}", None)

        def call(*arguments: Any, **options: Any) -> Any:
            self.note_states()
            self.calls += 1
            if self.calls - 1 == self.fails:
                raise OSError(28, "No space left on device")
            result = real(*arguments, **options)
            if note is not None:
                note(result, *arguments, **options)
            self.note_states()
            return result

        return call

    def _at(self, name: Any, place: int | None) -> str:
        base = os.readlink(f"/proc/self/fd/{place}") if place is not None else os.getcwd()
        return os.path.normpath(os.path.join(base, str(name)))

    # -- what calls do ----------------------------------------------------------------------------------------------

    def _open(self, _result: int, name: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        path = self._at(name, dir_fd)
        if flags & os.O_CREAT and path.startswith(self.top) and path not in self.names:
            number = len(self.safe) + len(self.opened) + 1
            self.opened[number] = path
            self._change(path, lambda names: names.update({path: number}))

    def _rename(self, _result: None, source: Any, target: Any, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        here, there = self._at(source, src_dir_fd), self._at(target, dst_dir_fd)
        self._change(there, lambda names: names.update({there: names.pop(here)}))

    def _symlink(self, _result: None, target: str, name: Any, *, dir_fd: int | None = None) -> None:
        path = self._at(name, dir_fd)
        number = len(self.safe) + len(self.opened) + 1
        # a link is its name: it comes with it or not at all
        self.safe[number] = held(path)
        self._change(path, lambda names: names.update({path: number}))

    def _unlink(self, _result: None, name: Any, *, dir_fd: int | None = None) -> None:
        path = self._at(name, dir_fd)
        self._change(path, lambda names: names.pop(path, None))

    def _change(self, path: str, change: Callable[[dict[str, int]], Any]) -> None:
        change(self.names)
        self.pending.append((os.path.dirname(path), change))

    def _fsync(self, _result: None, handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        if path in self.names:
            self.safe[self.names[path]] = Path(path).read_bytes()
            return
        for folder, change in self.pending:
            if folder == path:
                change(self.safe_names)
        self.pending = [item for item in self.pending if item[0] != path]

    # -- what may be left -------------------------------------------------------------------------------------------

    def note_states(self) -> None:
        now = {number: held(path) for path, number in self.names.items() if os.path.lexists(path)}
        for count in range(len(self.pending) + 1):
            names = dict(self.safe_names)
            for _folder, change in self.pending[:count]:
                change(names)
            for share in (0.0, 0.5, 1.0):
                left = {}
                for path, number in names.items():
                    content = now.get(number, self.safe.get(number, b""))
                    safe = self.safe.get(number)
                    left[path] = safe if safe is not None else content[: int(len(content) * share)]
                self.states.add(tuple(sorted(left.items())))

    def left(self) -> Iterator[None]:
        """Lay each possible state into the folder, one after the other."""
        assert self._files() == set(self.names), "a writer went another way than through os"
        for state in sorted(self.states):
            shutil.rmtree(self.top)
            for path, content in state:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                if content.startswith(LINK):
                    os.symlink(content.removeprefix(LINK).decode(), path)
                else:
                    Path(path).write_bytes(content)
            os.makedirs(self.top, exist_ok=True)
            yield


def survives(
    folder: Path,
    patch: pytest.MonkeyPatch,
    modules: tuple[Any, ...],
    write: Callable[[], Any],
    read: Callable[[], Any],
) -> set[str]:
    """What a reader finds after a power loss at any moment of ``write``, as text."""
    disk = Disk(folder)
    with patch.context() as now:
        for module in modules:
            now.setattr(module, "os", disk)
        disk.note_states()
        write()
    return {repr(read()) for _state in disk.left()}


def fails_at_every_call(
    folder: Path,
    patch: pytest.MonkeyPatch,
    modules: tuple[Any, ...],
    write: Callable[[], Any],
    read: Callable[[], Any],
) -> tuple[int, set[str]]:
    """How many calls ``write`` makes, and what a reader finds where one of them fails."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found, number = set(), 0
    while True:
        shutil.rmtree(folder)
        folder.mkdir()
        for path, content in before.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        disk = Disk(folder)
        disk.fails = number
        try:
            with patch.context() as now:
                for module in modules:
                    now.setattr(module, "os", disk)
                write()
        except OSError:
            pass
        found.add(repr(read()))
        if disk.calls <= number:
            return number, found
        number += 1
