# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node of Ray as its role sets it up: ray.json, the engine's Python, a raylet."""

from __future__ import annotations

import json
import os
import pwd
import sys
from pathlib import Path
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import ray_config, ray_start_check

RAYLET = "/opt/v/ray/core/src/ray/raylet/raylet --raylet_socket_name=/var/lib/sparkthor/ray/t/s/sockets/raylet"


def write_config(folder: Path, **changes: Any) -> str:
    data = {
        "nodes": [
            {"name": "a", "address": "127.0.0.1", "role": "head"},
            {"name": "b", "address": "127.0.0.2"},
        ],
        "node_address": "127.0.0.1",
        "ports": {port.key: 1 + index for index, port in enumerate(ray_config.PORTS)},
        "token_path": str(folder / "token"),
        "temp_dir": str(folder / "ray"),
        "engine": [sys.executable],
        "user": pwd.getpwuid(os.geteuid()).pw_name,
        # a range in which nobody on the machine that runs this listens
        "worker_ports": [2, 2],
    }
    path = folder / "ray.json"
    path.write_text(json.dumps({**data, **changes}))
    (folder / "token").write_text("0123456789abcdef\n")
    (folder / "run").mkdir(exist_ok=True)
    return str(path)


SETTINGS = ray_start_check.NodeSettings("/var/lib/sparkthor/ray/t", {}, (20000, 20999), 1 << 30)


def engine_of(tmp_path: Path, **versions: str) -> list[str]:
    engine = tmp_path / "engine"
    engine.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps(versions))})\n")
    engine.chmod(0o755)
    return [str(engine)]
