# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A content from a URL into a store, on a host whose controller has no room for it."""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import stat
import time
import urllib.parse
from typing import NamedTuple

from ansible.module_utils.urls import open_url
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import content
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.incoming import PROVED, Incoming
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError, valid_sha256
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Store

#: what a disk says, and no connection does; a write names no file
_OF_DISK = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO))
#: seconds without a byte after which a connection is given up
SILENCE = 30.0


class Fetched(NamedTuple):
    """How far a content is."""

    have: int  # bytes that are here
    problem: str  # why no more came; empty where the time was over or all is here


def fetch(store: Store, sha256: str, size: int, url: str, seconds: float) -> Fetched:
    """Go on with one content for so many seconds; whole, it is verified and waits in ``.incoming``.

    Raises StoreError for what is no content and for one that arrived with another SHA-256.
    """
    if not valid_sha256(sha256):
        raise StoreError(f"{sha256!r} is not a SHA-256")
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise StoreError("url: only http and https are fetched")
    with store.alone():
        target = os.path.join(store.incoming, sha256)
        store.drop_parts(sha256)
        state = content.state_of(target)
        if state and (state.st_size > size or not stat.S_ISREG(state.st_mode)):
            os.unlink(target)
            state = None
        here = state.st_size if state else 0
        if state and here == size and stat.S_IMODE(state.st_mode) == PROVED:
            return Fetched(here, "")
        problem = "" if here == size else _more(target, here, size, url, seconds)
        here = os.path.getsize(target) if os.path.exists(target) else 0
        if here == size:
            Incoming.verify(target, sha256)
        return Fetched(here, problem if here < size else "")


def _more(target: str, here: int, size: int, url: str, seconds: float) -> str:
    """Append what comes; why no more did."""
    end = time.monotonic() + seconds
    headers = {"Range": f"bytes={here}-"} if here else {}
    place = urllib.parse.urlsplit(url).hostname
    try:
        with (
            # the bytes as they are, and no password of root's
            contextlib.closing(
                open_url(url, headers=headers, timeout=SILENCE, decompress=False, use_netrc=False)
            ) as answer,
            open(target, "ab") as file,
        ):
            if here and answer.status != http.client.PARTIAL_CONTENT:
                # who cannot go on sends all of it
                file.truncate(0)
                here = 0
            try:
                while here < size and time.monotonic() < end:
                    # what is there: a whole block of who sends slowly would come long after the time is over
                    block = answer.read1(min(content.BLOCK, size - here))
                    if not block:
                        return f"{place} ended the answer {size - here} bytes early"
                    file.write(block)
                    here += len(block)
            finally:
                file.flush()
                os.fsync(file.fileno())
    except (OSError, http.client.HTTPException) as error:
        # urllib's errors are OSErrors too
        if isinstance(error, OSError) and (error.filename == target or error.errno in _OF_DISK):
            raise
        return f"{place}: {str(error)[:200] or type(error).__name__}"
    return ""
