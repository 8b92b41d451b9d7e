# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of a store (module_utils/_store/store.py): what a folder holds, and bringing files to a host.

Files travel by the connection plugin's own ``put_file``, so whatever makes a task reach a host (jump hosts, passwords,
ports, become) makes files reach it too, and no program needs to be installed on either side. Small files go together
in one archive, big ones alone and in pieces, so a broken transfer continues where it stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_json, write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import hash_file, hash_parts, human
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action

#: a piece, and what one delivery holds at most: also the space it takes on the host's temporary folder
PIECE = 512 << 20
#: files below this travel in an archive
SMALL = 16 << 20


def user_cache(*parts: str) -> str:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "sparkthor", *parts)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Forks of one run, and runs side by side, prepare the same thing once."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digests(folder: str, names: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of files in a folder; read again only where size or time changed since they were last asked."""
    folder = os.path.realpath(folder)
    place = user_cache("digests", hashlib.sha256(folder.encode()).hexdigest()[:24] + ".json")
    names = list(names)
    states = {name: os.stat(os.path.join(folder, name)) for name in names}

    def known(name: str, kept: Mapping[str, Any]) -> bool:
        return bool(kept.get(name, [None, None])[:2] == [states[name].st_size, states[name].st_mtime_ns])

    kept = read_json(place)
    if not all(known(name, kept) for name in names):
        with locked(f"{place}.lock"):
            kept = read_json(place)
            for name in names:
                if not known(name, kept):
                    state = states[name]
                    kept[name] = [state.st_size, state.st_mtime_ns, hash_file(os.path.join(folder, name))]
            write_atomic(place, json.dumps(kept))
    return {name: (kept[name][0], kept[name][2]) for name in names}


def part_digests(folder: str, names: Iterable[str], size: int) -> dict[str, list[str]]:
    """SHA-256 of each part of files in a folder, kept like the digests of whole files."""
    folder = os.path.realpath(folder)
    place = user_cache("digests", hashlib.sha256(f"{folder}\0{size}".encode()).hexdigest()[:24] + ".parts.json")
    names = list(names)
    with locked(f"{place}.lock"):
        kept = read_json(place)
        new = False
        for name in names:
            path = os.path.join(folder, name)
            state = os.stat(path)
            if kept.get(name, [None, None])[:2] != [state.st_size, state.st_mtime_ns]:
                kept[name], new = [state.st_size, state.st_mtime_ns, hash_parts(path, size)], True
        if new:
            write_atomic(place, json.dumps(kept))
    return {name: kept[name][2] for name in names}


def hub_model_of(folder: str) -> str:
    """Of a snapshot in the hub's cache the model's own folder; of any other folder itself."""
    parent = os.path.dirname(folder)
    whole = os.path.dirname(parent)
    return whole if os.path.basename(parent) == "snapshots" and os.path.isdir(os.path.join(whole, "blobs")) else folder


def tree_of(folder: str) -> str:
    """The folder that links may lead into: of a snapshot the hub's cache, in which models share their bytes."""
    model = hub_model_of(folder)
    return os.path.dirname(model) if os.path.basename(model).startswith("models--") else model


def folder_files(folder: str, what: str) -> list[str]:
    """Relative paths of the files of a folder. Links count as what they lead to, so a hub cache becomes plain files.

    A link that leads out of the folder is refused: what lies elsewhere was not declared.
    """
    if not os.path.isdir(folder):
        raise AnsibleActionFail(f"{what}: {folder} is not a folder on the controller")
    tree = os.path.realpath(tree_of(folder))
    entries = []
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in [*folders, *names]:
            path = os.path.join(parent, name)
            real = os.path.realpath(path)
            if os.path.islink(path) and not real.startswith(f"{tree}{os.sep}"):
                raise AnsibleActionFail(
                    f"{what}: {path} is a link that leads out of {tree}, to {real}: put the file itself there"
                )
        for name in sorted(names):
            path = os.path.join(parent, name)
            relative = os.path.relpath(path, folder)
            try:
                mode = os.stat(path).st_mode
            except FileNotFoundError:
                raise AnsibleActionFail(
                    f"{what}: {path} is a link to nothing. A hub cache was copied without its blobs: fetch it again, "
                    "or copy the whole cache, since its models share their files"
                ) from None
            if stat.S_ISREG(mode) and not name.startswith("."):
                entries.append(relative)
    if not entries:
        raise AnsibleActionFail(f"{what}: no files in {folder}")
    return entries


class HubFolder(NamedTuple):
    """A model in the hub's own layout, as its client reads it: blobs, and snapshots of links to them."""

    folder: str
    name: str
    files: list[str]
    links: list[list[str]]  # path, target


def _named_within(folder: str, name: str) -> str:
    """The last name that a link has within a folder; its bytes may be elsewhere."""
    folder = os.path.realpath(folder)
    here = named = os.path.join(folder, name)
    while os.path.islink(here):
        place = os.path.realpath(os.path.dirname(here))
        here = os.path.normpath(os.path.join(place, os.readlink(here)))
        if here.startswith(f"{folder}{os.sep}"):
            named = here
    return os.path.relpath(named, folder)


def hub_folder(snapshot: str, what: str) -> HubFolder:
    """The one snapshot of a model in the hub's cache, with its blobs and the names that stand for it."""
    folder = hub_model_of(snapshot)
    if folder == snapshot:
        raise AnsibleActionFail(f"{what}: layout hub needs a model of the hub's cache, but {snapshot} is not one")
    files: set[str] = set()
    links = []
    for relative in folder_files(snapshot, what):
        path = os.path.join(snapshot, relative)
        here = os.path.relpath(path, folder)
        if os.path.islink(path):
            named = _named_within(folder, here)
            files.add(named)
            if named != here:
                links.append([here, os.path.relpath(named, os.path.dirname(here))])
        else:
            files.add(here)
    for parent, _folders, names in os.walk(os.path.join(folder, "refs")):
        for name in names:
            path = os.path.join(parent, name)
            with open(path, encoding="utf-8") as file:
                if file.read().strip() == os.path.basename(snapshot):
                    files.add(os.path.relpath(path, folder))
    return HubFolder(folder, os.path.basename(folder), sorted(files), sorted(links))


def manifest(folder: str, names: Iterable[str]) -> list[Entry]:
    return [Entry(name, size, sha256) for name, (size, sha256) in sorted(digests(folder, names).items())]


class Content(NamedTuple):
    """One content to bring: where it lies here, what it is, how much of it the host has already."""

    path: str
    size: int
    sha256: str
    have: int


def contents(folder: str, entries: Iterable[Entry], need: Iterable[Mapping[str, Any]]) -> list[Content]:
    by_digest = {entry.sha256: entry for entry in entries}
    found = []
    for item in need:
        entry = by_digest[item["sha256"]]
        found.append(Content(os.path.join(folder, entry.path), entry.size, entry.sha256, int(item["have"])))
    return found


class Delivery(NamedTuple):
    """Files to upload in one go, with what the host is told about each."""

    uploads: list[tuple[str, dict[str, Any]]]  # local path, part without its remote path
    size: int
    scratch: list[str]  # local files to remove afterwards


def deliveries(wanted: Iterable[Content], scratch_folder: str, limit: int = PIECE) -> Iterator[Delivery]:
    """Cut contents into deliveries of about ``limit`` bytes; each is made only when it is asked for."""
    small = [content for content in wanted if content.size < SMALL]
    large = [content for content in wanted if content.size >= SMALL]
    uploads: list[tuple[str, dict[str, Any]]] = []
    scratch: list[str] = []
    size = 0
    for content in large:
        offset = content.have
        while offset < content.size:
            length = min(limit, content.size - offset)
            if size and size + length > limit:
                yield Delivery(uploads, size, scratch)
                uploads, scratch, size = [], [], 0
            path = content.path
            if length != content.size:
                path = _cut(content.path, offset, length, scratch_folder)
                scratch.append(path)
            part = {"sha256": content.sha256, "offset": offset, "size": content.size}
            uploads.append((path, part))
            size += length
            offset += length
    bundle: list[Content] = []
    for content in small:
        bundle.append(content)
        size += content.size
        if size >= limit:
            path = _bundle(bundle, scratch_folder)
            yield Delivery([*uploads, (path, {"bundle": True})], size, [*scratch, path])
            uploads, scratch, bundle, size = [], [], [], 0
    if bundle:
        path = _bundle(bundle, scratch_folder)
        uploads.append((path, {"bundle": True}))
        scratch.append(path)
    if uploads:
        yield Delivery(uploads, size, scratch)


def _cut(path: str, offset: int, length: int, folder: str) -> str:
    descriptor, piece = tempfile.mkstemp(dir=folder, prefix="piece-")
    with open(path, "rb") as source, open(descriptor, "wb") as target:
        source.seek(offset)
        left = length
        while left:
            block = source.read(min(left, 1 << 20))
            if not block:
                raise AnsibleActionFail(f"{path}: became shorter while it was read")
            target.write(block)
            left -= len(block)
    return piece


def _bundle(bundle: Iterable[Content], folder: str) -> str:
    descriptor, path = tempfile.mkstemp(dir=folder, prefix="bundle-")
    with open(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for content in bundle:
            member = tarfile.TarInfo(content.sha256)
            with open(content.path, "rb") as source:
                # the size as it is now: an archive must be whole even if the host will refuse the content
                member.size = os.fstat(source.fileno()).st_size
                archive.addfile(member, source)
    return path


class Courier:
    """Uploads deliveries through an action's connection and reports how far it is."""

    def __init__(self, action: Any, what: str, host: str, say: Callable[[str], None]) -> None:
        self._action = action
        self._what = what
        self._host = host
        self._say = say
        self.sent = 0

    def deliver(
        self, wanted: Iterable[Content], receive: Callable[[list[dict[str, Any]]], None], interval: float = 5.0
    ) -> None:
        """Bring everything; ``receive`` is called with the parts of each delivery once they lie on the host."""
        wanted = list(wanted)
        total = sum(content.size - content.have for content in wanted)
        began = told = time.monotonic()
        action = self._action
        remote = action._make_tmp_path()
        try:
            with tempfile.TemporaryDirectory(prefix="sparkthor-") as folder:
                for delivery in deliveries(wanted, folder):
                    parts = []
                    for number, (path, part) in enumerate(delivery.uploads):
                        place = os.path.join(remote, f"part-{number}")
                        action._transfer_file(path, place)
                        parts.append({**part, "file": place})
                    receive(parts)
                    for path in delivery.scratch:
                        os.unlink(path)
                    self.sent += delivery.size
                    now = time.monotonic()
                    if now - told >= interval and self.sent < total:
                        told = now
                        rate = self.sent / (now - began)
                        self._say(
                            f"{self._host}: {self._what}: {human(self.sent)} of {human(total)}, {human(rate)}/s, "
                            f"{(total - self.sent) / rate:.0f} s left"
                        )
        finally:
            action._remove_tmp_path(remote, force=True)
        seconds = max(time.monotonic() - began, 0.001)
        self._say(f"{self._host}: {self._what}: {human(self.sent)} in {seconds:.0f} s ({human(self.sent / seconds)}/s)")


class StoreAction(Action):
    """The controller side of a module that keeps a store on its host and says what it needs for it.

    A folder on the host is made when something is sent, not in every run.
    """

    #: the module's name without the collection's
    MODULE = ""

    @property
    def _node(self) -> dict[str, Any]:
        """What the host's facts say of it."""
        return (self.vars.get("ansible_facts") or {}).get("sparkthor_node") or {}

    def _module(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return self.execute(self.MODULE, dict(args))

    def _bring(self, what: str, wanted: Iterable[Content], root: str) -> int:
        """Bring contents into the store ``root`` of the host; the number of bytes sent."""

        def receive(parts: list[dict[str, Any]]) -> None:
            got = self.execute("store_receive", {"root": root, "parts": parts})
            if got.get("failed"):
                raise AnsibleActionFail(f"host {self.host}: {got.get('msg', got)}")

        courier = Courier(self, what, self.host, self.tell)
        courier.deliver(wanted, receive)
        return courier.sent

    def _arrived(self, what: str, first: Mapping[str, Any], last: dict[str, Any], sent: int) -> dict[str, Any]:
        """The result of the call after a delivery, seen together with the one before it."""
        last["sent_bytes"] = sent
        # the state before is what the first check found: the diff shows the whole change
        if "diff" in first:
            last["diff"] = first["diff"]
        if last.get("need"):
            raise AnsibleActionFail(f"host {self.host}: {len(last['need'])} {what} did not arrive whole: run again")
        return last


def hand_over(
    root: str, name: str, source: str, files: Iterable[str] = (), manifest: Iterable[Any] = ()
) -> dict[str, Any]:
    """What the fan-out of the role model_store asks of a registered result, to bring a folder to all hosts.

    A ``manifest`` stands for files that a host has and the controller has not. Nothing has changed yet; the step that
    comes when the files are there will say so.
    """
    # what is looked for by its digest, or replaced in one step, has no revisions
    model: dict[str, Any] = {"name": name, "source": source, "revisions": False}
    model |= {"manifest": list(manifest)} if manifest else {"files": list(files)}
    return {"changed": False, "models": {}, "wheels": {"root": root, "model": model}}
