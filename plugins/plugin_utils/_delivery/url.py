# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models behind a URL on the controller, by fsspec and its clients (s3fs for S3, aiohttp for HTTP)."""

from __future__ import annotations

import hashlib
import importlib
import os
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import hash_file

SUMS = "SHA256SUMS"
BLOCK = 8 << 20
#: bytes of a list; that of a model in some 200 files has 20 KB
SUMS_LIMIT = 16 << 20
_LINE = re.compile(r"\A([0-9a-f]{64}) [ *](.+)\Z")


class UrlError(Exception):
    """A sentence for the user."""


def _client(url: str) -> tuple[Any, str]:
    scheme = url.partition("://")[0]
    try:
        core = importlib.import_module("fsspec.core")
    except ImportError as error:
        raise UrlError(
            "models from a URL need the Python package fsspec on the controller: install it into the environment that "
            "runs Ansible, or give a folder as the source"
        ) from error
    try:
        client, path = core.url_to_fs(url)
        return client, str(path)
    except ImportError as error:
        raise UrlError(f"{scheme}:// needs a package more on the controller: {error}") from error
    except ValueError as error:
        raise UrlError(f"{url}: {error}") from error


def check_path(path: str) -> str:
    if not path or path.startswith("/") or "\\" in path or "\0" in path or {"", ".", ".."} & set(path.split("/")):
        raise UrlError(f"{SUMS}: the path {path!r} does not stay inside its folder; nothing was fetched")
    return path


def read_sums(text: str) -> dict[str, str]:
    """Path -> SHA-256 of a list as sha256sum writes it."""
    sums = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if not match:
            raise UrlError(f"{SUMS}: not a line of sha256sum: {line[:80]!r}")
        sums[check_path(match[2].removeprefix("./"))] = match[1]
    if not sums:
        raise UrlError(f"{SUMS}: no file in it")
    return sums


def fetch(url: str, cache: str, fetch: bool) -> str | None:
    """The controller's copy of the folder behind a URL; None if it is not here whole and must not be fetched.

    The folder holds a list SHA256SUMS of its files: it says what belongs to the model and proves each file. What came
    half is continued.
    """
    target = os.path.join(cache, hashlib.sha256(url.encode()).hexdigest()[:24])
    marker = f"{target}.{SUMS}"
    if os.path.isfile(marker):
        with open(marker, encoding="utf-8") as file:
            kept = read_sums(file.read())
        if all(os.path.isfile(os.path.join(target, path)) for path in kept):
            # what was proved once is used without asking again, so a second run works offline
            return target
    if not fetch:
        return None
    files, root = _client(url)
    text = _list(files, f"{root.rstrip('/')}/{SUMS}", url)
    wanted = read_sums(text)
    for path, sha256 in wanted.items():
        _fetch_file(files, f"{root.rstrip('/')}/{path}", os.path.join(target, path), sha256)
    _remove_others(target, wanted)
    write_atomic(marker, text)
    return target


def _list(files: Any, source: str, url: str) -> str:
    text = b""
    try:
        with files.open(source, "rb", block_size=BLOCK) as remote:
            while len(text) <= SUMS_LIMIT and (block := remote.read(BLOCK)):
                text += block
    except Exception as error:
        # for a client of HTTP all is absent that it cannot read
        cause = error.__cause__ if isinstance(error, FileNotFoundError) and error.__cause__ else error
        if isinstance(cause, FileNotFoundError) or getattr(cause, "status", 0) == 404:
            raise UrlError(
                f"{url} has no {SUMS} beside its files (made by: sha256sum * > {SUMS}); without it nothing proves them"
            ) from error
        raise UrlError(f"{url} cannot be read: {type(cause).__name__}: {str(cause)[:300]}") from error
    if len(text) > SUMS_LIMIT:
        raise UrlError(f"{url}: its {SUMS} is larger than {SUMS_LIMIT >> 20} MiB: it is no list of a model's files")
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise UrlError(f"{url}: its {SUMS} is no text: {error}") from error


def _remove_others(folder: str, wanted: Mapping[str, str]) -> None:
    """What a fetch that broke off brought of another version: all that lies in the folder is the model."""
    for parent, _folders, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if os.path.relpath(path, folder) not in wanted:
                os.unlink(path)


def _fetch_file(files: Any, source: str, target: str, sha256: str) -> None:
    if os.path.isfile(target) and hash_file(target) == sha256:
        return  # of a fetch that broke off; it was proved then, but the list may be another one by now
    os.makedirs(os.path.dirname(target), exist_ok=True)
    part = f"{target}.part"
    have = os.path.getsize(part) if os.path.exists(part) else 0
    declared = None
    try:
        # a client of HTTP knows none where the server says none
        declared = files.info(source).get("size")
        with files.open(source, "rb", block_size=BLOCK) as remote, open(part, "ab") as local:
            remote.seek(have)
            while block := remote.read(BLOCK):
                have += len(block)
                if declared is not None and have > declared:
                    break
                local.write(block)
    except Exception as error:
        kept = os.path.getsize(part) if os.path.exists(part) else 0
        raise UrlError(
            f"{source} could not be fetched: {type(error).__name__}: {str(error)[:300]}. {kept} bytes are kept: "
            "run again"
        ) from error
    if declared is not None and have > declared:
        os.unlink(part)
        raise UrlError(f"{source} declares {declared} bytes and sends more: it was discarded")
    found = hash_file(part)
    if found != sha256:
        os.unlink(part)
        raise UrlError(f"{source} has SHA-256 {found[:12]}…, but {SUMS} says {sha256[:12]}…: it was discarded")
    os.replace(part, target)
