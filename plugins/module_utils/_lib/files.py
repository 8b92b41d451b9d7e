# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that other programs read while we write them, or write while we read them."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from typing import Any


def write_atomic(path: str, content: bytes | str, uid: int = -1, gid: int = -1, mode: int = 0o644) -> None:
    """Replace ``path`` in one step: no reader ever sees half of the content, or all of it with another owner or mode.

    The folder must exist.  ``uid`` and ``gid`` of -1 leave the owner to the kernel.  Raises ``OSError``; what stood
    at ``path`` is then still there, and nothing else is left behind.
    """
    folder, name = os.path.split(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as stream:
            os.fchown(stream.fileno(), uid, gid)
            os.fchmod(stream.fileno(), mode)
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    # the new name must survive a power loss as well as the content
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_json(path: str) -> dict[str, Any]:
    """The object in a JSON file; empty where the file is absent, unreadable, torn or holds something else."""
    try:
        with open(path, encoding="utf-8") as stream:
            document = json.load(stream)
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
