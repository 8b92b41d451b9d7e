# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host had before: a copy beside each replaced file, and a record of everything else."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Host
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files

BACKUP_SUFFIX = ".sparkthor-orig"
LEDGER = "/var/lib/sparkthor/host_state.json"


def keep_original(path: str) -> None:
    """Keep what stood there before us, once: a second foreign edit must not replace the true original."""
    kept = path + BACKUP_SUFFIX
    if os.path.lexists(kept):
        return
    if os.path.islink(path):
        files.make_link(kept, os.readlink(path))
        return
    with os.fdopen(files.open_checked(path, os.O_RDONLY), "rb") as stream:
        info = os.fstat(stream.fileno())
        files.write_atomic(kept, stream.read(), info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode))


class Originals:
    """What was there before us where no file beside it can say, by kind and name.

    ``links``, ``sysctls``, ``masked`` and ``units`` hold what was; ``folders``, ``accounts`` and ``packages`` name what
    we made, which goes again when nothing needs it.
    """

    def __init__(self, host: Host, warn: Callable[[str], None] = lambda _text: None) -> None:
        self._host = host
        self._path = host.at(LEDGER)
        self._warn = warn
        self._entries: dict[str, dict[str, Any]] | None = None

    def entries(self, kind: str) -> dict[str, Any]:
        found: dict[str, Any] = self._known().get(kind, {})
        return found

    def _known(self) -> dict[str, dict[str, Any]]:
        if self._entries is None:
            self._entries = self._read()
        return self._entries

    def recorded(self, kind: str, name: str) -> Any:
        return self.entries(kind).get(name)

    def remember(self, kind: str, name: str, original: Any) -> None:
        if name not in self.entries(kind):
            self._known().setdefault(kind, {})[name] = original
            self._save()

    def forget(self, kind: str, name: str) -> None:
        entries = self.entries(kind)
        # None is an entry as well: of a place where nothing was
        if name in entries:
            del entries[name]
            self._save()

    def _read(self) -> dict[str, dict[str, Any]]:
        """What others can have written says nothing: a link of another user's choice would be made by root."""
        try:
            document = json.loads(files.read_own(self._path))
        except (FileNotFoundError, ValueError):
            return {}
        except OSError as error:
            self._warn(f"{LEDGER}: {error.strerror}, so it is not believed; look at it, then remove it")
            return {}
        return document if isinstance(document, dict) else {}

    def close(self) -> None:
        """A record of nothing but its own folder is none: both go, unless something else lies there."""
        ledger_folder = os.path.dirname(LEDGER)
        # with the folder above it, or by somebody else's hand
        for path in [path for path in self.entries("folders") if not os.path.isdir(self._host.at(path))]:
            self.forget("folders", path)
        entries = {**self._known(), "folders": {path for path in self.entries("folders") if path != ledger_folder}}
        if any(entries.values()) or not os.path.exists(self._path):
            return
        os.unlink(self._path)
        if ledger_folder in self.entries("folders"):
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(self._path))

    def _save(self) -> None:
        folder = os.path.dirname(self._path)
        if not os.path.isdir(folder):
            os.makedirs(folder, mode=0o755)
            self._known().setdefault("folders", {})[os.path.dirname(LEDGER)] = None
        if os.stat(folder).st_uid != os.geteuid():
            # earlier versions gave it to the serving user, who could put another ledger there
            files.own_folder(folder, os.geteuid(), os.getegid(), 0o755)
        files.write_atomic(self._path, json.dumps(self._entries, indent=1, sort_keys=True))
