# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of an engine's options, kept on the controller, and what is wrong with arguments by it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import option_table
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_args import read_table


def kept(engine: str, inventory: Any, host: str) -> str:
    """Where the table of this engine is kept, as this host of the inventory told it; nowhere if the engine has no name.

    The engine's name is the host's word, and so is the table: neither counts for another host.
    """
    if not engine:
        return ""
    told_by = hashlib.sha256(f"{inventory}\0{host}".encode()).hexdigest()[:16]
    return push.user_cache("vllm_options", told_by, re.sub(r"[^0-9A-Za-z.+_-]", "_", engine)[:128] + ".json")


def read(path: str) -> dict[str, Any] | None:
    if not path:
        return None
    try:
        table = read_table(path)
    except (OSError, ValueError, json.JSONDecodeError, SizingError):
        return None  # absent or cut short: asked for again
    return table if table["schema"] == option_table.SCHEMA else None  # so is one of another schema


def known(args: Mapping[str, Any], variables: Mapping[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """Where the table of this host's engine is kept, and the table; None where it has to be asked for."""
    path = kept(str(args.get("engine") or ""), variables.get("inventory_dir"), str(variables["inventory_hostname"]))
    table = read(path)
    name = registry.planned_engine(str(args.get("engine_name") or "")).name
    return path, table if table is not None and name in table else None


def problems(args: Mapping[str, Any], table: Mapping[str, Any]) -> list[Finding]:
    """All that is to be said about the options ``arguments``, ``acknowledged``, ``environment`` and ``needs``."""
    return registry.planned_engine(str(args.get("engine_name") or "")).option_problems(args, table)
