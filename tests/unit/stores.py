# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model store in a folder, and what is sent to it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Store

FILES = {"config.json": b"{}", "sub/weights-1": b"a" * 5000, "sub/weights-2": b"b" * 5000, "twin": b"a" * 5000}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def entries(files: dict[str, bytes] | None = None) -> list[Entry]:
    return [Entry(name, len(data), sha(data)) for name, data in (files or FILES).items()]


def piece(tmp_path: Path, data: bytes, offset: int = 0, length: int | None = None) -> dict[str, Any]:
    path = tmp_path / f"piece-{sha(data)[:8]}-{offset}"
    path.write_bytes(data[offset : None if length is None else offset + length])
    return {"file": str(path), "sha256": sha(data), "offset": offset, "size": len(data)}


def fill(store: Store, tmp_path: Path, files: dict[str, bytes], name: str = "tiny") -> None:
    wanted = entries(files)
    plan = store.plan(name, wanted)
    contents = {sha(data): data for data in files.values()}
    store.receive([piece(tmp_path, contents[item["sha256"]]) for item in plan.need])
    store.commit(name, wanted, plan.wrong)
    store.clean_incoming()


def read(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
