# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# the serving user's program in a session of its own, whose output is limited while it comes:
# pylint: disable=ansible-bad-function
"""What a host's engine compiled, written down for the others, and taken over from another: root's part of it.

To root it is one file of somebody's bytes. The serving user packs it and lays it (``_onhost/compiled.py``); between the
two it lies in a store of root's, where the fan-out finds it, and is gone when all is done.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import IO, Any, cast

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import c_environment, end, exchange
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import location
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.compiled import MOST
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.ray_config import SERVING_USER
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import free_bytes, hash_file
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.incoming import PROVED
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Store, private_store

#: the folder in the store, and the file in it
NAME, TAR = "compiled", "compiled.tar"
#: bytes of that file at most, with names and padding
LARGEST = MOST + (256 << 20)
_BLOCK = 1 << 20


def _started(words: list[str], cache: str, **streams: Any) -> subprocess.Popen[bytes]:
    """A program as the serving user, in a session of its own."""
    user = pwd.getpwnam(SERVING_USER)
    return subprocess.Popen(
        words,
        stderr=subprocess.PIPE,
        env={**c_environment(), "HOME": cache},
        cwd="/",
        start_new_session=True,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
        **streams,
    )


def _ended(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    end(process)


def _written(source: IO[bytes], path: str, most: int, until: float) -> int:
    """Keep what comes, ``most`` bytes and no longer than ``until``; how many came. Raises EngineError."""
    size = 0
    with open(path, "xb") as file:
        while select.select([source], [], [], max(0.0, until - time.monotonic()))[0]:
            block = os.read(source.fileno(), _BLOCK)
            size += len(block)
            if not block:
                return size
            if size > most:
                raise EngineError(f"what was compiled here takes more than {most >> 20} MiB: it is not passed on")
            file.write(block)
    raise EngineError("what was compiled here could not be read in time: it is not passed on")


def give(params: Mapping[str, Any]) -> dict[str, Any]:
    """Write down what this host compiled, as a file of the store."""
    store = private_store(params["root"])
    scratch = os.path.join(store.incoming, f"compiled-{os.getpid()}-{time.monotonic_ns()}")
    until = time.monotonic() + params["timeout"]
    words = location.command("compiled", "pack", params["cache"])
    process = _started(words, params["cache"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        # a file twice as large as what is free would leave no room for anybody
        _written(cast(IO[bytes], process.stdout), scratch, min(LARGEST, free_bytes(store.root) // 2), until)
        _out, said = exchange(process, max(1.0, until - time.monotonic()), most=_BLOCK)
        _check(process, said)
        entry = Entry(TAR, os.path.getsize(scratch), hash_file(scratch))
        os.chmod(scratch, PROVED)
        os.replace(scratch, os.path.join(store.incoming, entry.sha256))
    except subprocess.TimeoutExpired:
        raise EngineError("what was compiled here could not be read in time: it is not passed on") from None
    finally:
        _ended(process)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch)
    _forget(store)
    store.commit(NAME, [entry], [TAR])
    return {"changed": False, "saved": list(entry)}


def take(params: Mapping[str, Any]) -> dict[str, Any]:
    """Have the serving user lay what came into its cache."""
    store = private_store(params["root"])
    path = os.path.join(store.folder(NAME), TAR)
    words = location.command("compiled", "lay", params["cache"])
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            process = _started(words, params["cache"], stdin=file, stdout=subprocess.PIPE)
            try:
                out, said = exchange(process, params["timeout"], most=_BLOCK)
            finally:
                _ended(process)
        _check(process, said)
        laid = foreign.parse_object(out)
        count, size = foreign.whole(laid.get("files")), foreign.whole(laid.get("bytes"))
    except FileNotFoundError:
        raise EngineError("nothing came from the other host") from None
    except subprocess.TimeoutExpired:
        raise EngineError(f"it could not be laid down within {params['timeout']} s") from None
    except foreign.ForeignError as error:
        raise EngineError(f"what the serving user's program said cannot be read: {error}") from error
    finally:
        tidy(params)
    return {"changed": bool(count), "files": count, "bytes": size}


def tidy(params: Mapping[str, Any]) -> dict[str, Any]:
    """Leave nothing of it in the store."""
    if os.path.isdir(params["root"]):
        store = private_store(params["root"])
        _forget(store)
        store.clean_incoming()
    return {"changed": False}


def _forget(store: Store) -> None:
    if os.path.isdir(store.folder(NAME)):
        store.remove(NAME)


def _check(process: subprocess.Popen[bytes], said: bytes) -> None:
    if process.returncode:
        lines = said.decode("utf-8", "replace").strip().splitlines()
        raise EngineError(lines[-1][:500] if lines else f"its program ended with status {process.returncode}")
