# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three nodes of Ray, and the answers that were captured from a real Ray 2.60 with token authentication."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import ray_config, ray_members

FIXTURES = Path(__file__).parents[4] / "fixtures" / "ray"

ADDRESSES = ("10.89.0.10", "10.89.0.11", "10.89.0.12")


def text(name: str) -> str:
    return (FIXTURES / name).read_text()


def config(**changes: Any) -> ray_config.Config:
    data = {
        "nodes": [
            {"name": f"rx-h{i}", "address": a, "gpus": 1, "role": "worker" if i else "head"}
            for i, a in enumerate(ADDRESSES)
        ],
        "node_address": ADDRESSES[0],
        "user": pwd.getpwuid(os.geteuid()).pw_name,
    }
    return ray_config.Config.from_mapping({**data, **changes})


def engine_view(case: str) -> ray_members.View:
    return ray_members.read_engine_view(json.loads(text(f"{case}.engine.json")))


def http(status: int, body: str) -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
