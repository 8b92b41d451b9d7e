# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host kept of its ranks before a hung engine was ended (``_onhost/hang``).  Standard library only."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files, foreign
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import hang

#: records that are told on, and bytes of each file
TOLD, LIMIT = 2, 1_500_000
#: characters told of one stack, and of NCCL's report
STACK, REPORT = 3000, 4000


def told(record: dict[str, Any]) -> dict[str, Any]:
    """What the doctor needs of a record.  Raises ValueError, KeyError or TypeError for what is none."""
    processes = [
        {
            "title": str(entry["title"])[:100],
            "state": str(entry["state"])[:1],
            "waits_in": sorted({str(one["waits_in"])[:60] for one in entry["threads"] if one.get("waits_in")})[:6],
            "stack": str(entry.get("stack") or "")[:STACK],
        }
        for entry in record["processes"][: hang.PROCESSES]
    ]
    return {
        "taken": float(record["taken"]),
        "reason": str(record.get("reason") or "")[:300],
        "processes": processes,
        "nccl": str(record.get("nccl") or "")[-REPORT:],
        "gpus": list(record.get("gpus") or [])[:8],
        "late": [str(name)[:60] for name in record.get("late") or []][:20],
    }


def read(folder: str = hang.FOLDER, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """The newest records of this host, newest first; a file that is none is left out."""
    listed = files.list_folder(folder) if names is None else names
    records = []
    for name in sorted((name for name in listed if name.endswith(".json")), reverse=True)[:TOLD]:
        try:
            records.append(told(foreign.parse_object(files.read_plain(os.path.join(folder, name), LIMIT), LIMIT)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return records
