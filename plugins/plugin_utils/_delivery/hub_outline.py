# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model of the hub without its large files, which the hub names by their SHA-256: a host may have them already."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_json, write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry, valid_sha256
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import hub
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import model_source

#: in a snapshot: which files the model has, small and large
_LISTED = ".sparkthor-listed"


class Outline(NamedTuple):
    """What is known of a model, and where its small files are."""

    folder: str
    commit: str
    absent: list[Entry]  # large files that the controller has not
    untouched: bool  # none of the large files is here


def outline(repo: str, revision: str, fetch: bool, client: Any = None, pattern: str = "") -> Outline | None:
    """None where the model is here whole, where nothing is known of it, and where it has no large file.

    A commit whose outline was fetched before is known without the hub; ``fetch`` says whether it may be asked.
    Raises HubError.
    """
    client = client or hub.client()
    if not model_source.on_hub(repo) or hub.whole(repo, revision, client, pattern):
        return None
    # a branch may have moved since
    for cache in hub.caches(client) if hub.is_commit(revision) else []:
        listed = hub.found_in(client, repo, revision, hub.note_of(_LISTED, pattern), cache)
        found = _read(listed) if listed else None
        if found:
            return found
    return _fetch(client, repo, revision, pattern) if fetch else None


def _read(note: str) -> Outline | None:
    folder, listed = os.path.dirname(note), read_json(note)
    try:
        large = [Entry(str(path), int(size), str(sha256)) for path, size, sha256 in listed["large"]]
        small_here = all(os.path.exists(os.path.join(folder, name)) for name in listed["small"])
    except (KeyError, TypeError, ValueError):
        return None
    absent = [entry for entry in large if not os.path.exists(os.path.join(folder, entry.path))]
    if not small_here or not absent:
        return None
    return Outline(folder, os.path.basename(folder), absent, len(absent) == len(large))


def _fetch(client: Any, repo: str, revision: str, pattern: str) -> Outline | None:
    commit, files = hub.listing(client, repo, revision, pattern=pattern)
    # what a folder of the controller would give (push.folder_files): no name that begins with a dot
    files = [file for file in files if not any(part.startswith(".") for part in file.path.split("/"))]
    large = [file for file in files if valid_sha256(file.blob)]
    small = [file.path for file in files if not valid_sha256(file.blob)]
    if not large or not small:
        return None
    cache = hub.place_of(client, repo, commit, files, pattern=pattern).cache
    with hub.explained(client, repo, commit):
        for name in small:
            path = client.hf_hub_download(repo, name, revision=commit, cache_dir=cache)
            folder = str(path).removesuffix(f"/{name}")
    rows = [[file.path, file.size, file.blob] for file in large]
    note = os.path.join(folder, hub.note_of(_LISTED, pattern))
    write_atomic(note, json.dumps({"small": small, "large": rows}))
    return _read(note)
