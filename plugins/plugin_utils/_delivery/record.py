# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What names that can move meant when they were first used: digests of image tags, commits of models on the hub.

They are kept in one file beside the inventory, to be committed with it: every later run, and every other controller,
gets the same image and the same model. Its name begins with a dot, because Ansible would read any other file in that
folder as an inventory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_json, write_atomic
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import push

FILE = ".sparkthor-lock.json"
IMAGES, MODELS = "images", "models"


class Record:
    """The record of one inventory. Without a folder (an inventory on the command line) there is none."""

    def __init__(self, inventory_dir: Any) -> None:
        self.path = os.path.join(str(inventory_dir), FILE) if inventory_dir else ""

    def of(self, kind: str, name: str) -> str:
        """What a name was recorded as; empty if it never was."""
        document = read_json(self.path) if self.path else {}
        found = document.get(kind)
        return str(found.get(name) or "") if isinstance(found, Mapping) else ""

    def keep(self, kind: str, name: str, value: str) -> str:
        """Record a value unless there is one; what is recorded then. Hosts of one run ask side by side."""
        if not self.path:
            return value
        known = self.of(kind, name)
        if known:
            return known
        with push.locked(push.user_cache("locks", "record.lock")):
            document = read_json(self.path)
            rows = document.setdefault(kind, {})
            if not rows.get(name):
                rows[name] = value
                write_atomic(self.path, json.dumps(document, indent=2, sort_keys=True) + "\n")
            return str(rows[name])


def hub_key(source: str, revision: str) -> str:
    """The name under which a model of the hub is recorded: a branch or tag has a line of its own."""
    return f"{source}@{revision}" if revision else source
