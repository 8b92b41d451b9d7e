# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host had before: a copy beside each replaced file, and a record of everything else."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Host
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_json, write_atomic

BACKUP_SUFFIX = ".sparkthor-orig"
LEDGER = "/var/lib/sparkthor/host_state.json"


def keep_original(path: str) -> None:
    """Keep what stood there before us, once: a second foreign edit must not replace the true original."""
    kept = path + BACKUP_SUFFIX
    if os.path.lexists(kept):
        return
    if os.path.islink(path):
        os.symlink(os.readlink(path), kept)
        return
    info = os.stat(path)
    with open(path, "rb") as stream:
        write_atomic(kept, stream.read(), info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode))


class Originals:
    """What was there before us where no file beside it can say: links, sysctls, masked units, by kind and name."""

    def __init__(self, host: Host) -> None:
        self._path = host.at(LEDGER)
        self._entries: dict[str, dict[str, Any]] | None = None

    def entries(self, kind: str) -> dict[str, Any]:
        if self._entries is None:
            self._entries = read_json(self._path)
        found: dict[str, Any] = self._entries.get(kind, {})
        return found

    def recorded(self, kind: str, name: str) -> Any:
        return self.entries(kind).get(name)

    def remember(self, kind: str, name: str, original: Any) -> None:
        if name not in self.entries(kind):
            self._entries = {**(self._entries or {}), kind: {**self.entries(kind), name: original}}
            self._save()

    def forget(self, kind: str, name: str) -> None:
        entries = self.entries(kind)
        # None is an entry as well: of a place where nothing was
        if name in entries:
            del entries[name]
            self._save()

    def _save(self) -> None:
        os.makedirs(os.path.dirname(self._path), mode=0o755, exist_ok=True)
        write_atomic(self._path, json.dumps(self._entries, indent=1, sort_keys=True))
