# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which files of the hub a host fetches by itself, because the controller has no room for them, and from where.

What a file has to be, its SHA-256, is the controller's knowledge. A host gets no token: the hub itself turns it into
the address of one file that is good for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import free_bytes
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import fanout, hub
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import model_source

#: values of model_store_fetch: who fetches what neither the controller nor a host has
AUTO, CONTROLLER, HOST = "auto", "controller", "host"
HOW = (AUTO, CONTROLLER, HOST)


class HubFile(NamedTuple):
    """A file of a model on the hub, at the commit that was compared."""

    repo: str
    commit: str
    path: str
    sha256: str
    size: int


def files_for_host(
    how: str,
    models: Iterable[Mapping[str, Any]],
    folders: Mapping[str, tuple[str, list[Entry]]],
    need: Iterable[Mapping[str, Any]],
) -> list[HubFile]:
    """What of ``need`` a host fetches: with ``auto`` all that is not on the controller, where it has no room for that.

    ``folders`` has by name the controller's folder of a model, which holds its small files alone, and all its entries.
    """
    if how == CONTROLLER:
        return []
    wanted = list(need)
    missing = set(fanout.absent(folders.values(), wanted))
    files, free = [], 0
    for model in models:
        folder, entries = folders.get(str(model["name"]), ("", []))
        if not missing or not model.get("commit") or not model_source.on_hub(str(model.get("source") or "")):
            continue
        files += [
            HubFile(str(model["source"]), str(model["commit"]), entry.path, entry.sha256, entry.size)
            for entry in entries
            if entry.sha256 in missing
        ]
        free = free_bytes(folder)
        missing -= {file.sha256 for file in files}
    lacking = sum(item["size"] for item in wanted if item["sha256"] in {file.sha256 for file in files})
    return files if how == HOST or lacking * (1 + hub.RESERVE) > free else []


def address(file: HubFile, client: Any = None) -> str:
    """Where a host gets a file without a token.  Raises HubError."""
    client = client or hub.client()
    with hub.explained(client, file.repo, file.commit):
        url = client.hf_hub_url(file.repo, file.path, revision=file.commit)
        found = client.get_hf_file_metadata(url)
        if found.size not in (None, file.size):
            raise hub.HubError(
                f"{file.repo}: {file.path} has {found.size} bytes on the hub, not {file.size}: run again"
            )
        return str(found.location or url)
