# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a store has its models, by its own records alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._store import revisions
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import parse_manifest, parse_store_links
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import private_store


def difference(arguments: Mapping[str, Any]) -> str:
    """The first model that is not as the arguments of the module ``model_copy`` want it; nothing is read in full."""
    store = private_store(arguments["root"])
    for model in arguments["models"]:
        name, folder = model["name"], model.get("folder") or model["name"]
        entries = parse_manifest(model["manifest"])
        if not store.as_recorded(folder, entries, parse_store_links(model["links"], entries)):
            return str(name)
        if folder != name and revisions.current(store, name) != folder:
            return f"{name} is not {folder}"
    return ""
