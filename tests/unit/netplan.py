# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Generated netplan files and live links that several tests need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[1] / "fixtures" / "netplan"
VERSIONS = ("0.106", "1.1.2")
RENDERERS = ("networkd", "NetworkManager")
BOTH = [(version, renderer) for version in VERSIONS for renderer in RENDERERS]
LINK = {"netdev": "enp1s0f1np1", "address": "10.100.0.1/25", "mtu": 9000, "peers": []}
MAC = "02:00:00:00:00:01"


def captured(version: str) -> dict[str, Any]:
    return json.loads((FIXTURES / f"generated-{version}.json").read_text())


def files(version: str, renderer: str, key: str) -> dict[str, Any]:
    return {
        path: {"content": content, "mode": 0o640, "uid": 0, "gid": 0}
        for path, content in captured(version)[renderer][key]["files"].items()
    }


def live_link(addresses: dict[str, dict[str, Any]] | None = None, **over: Any) -> dict[str, Any]:
    return {"mtu": 9000, "up": True, "carrier": True, "mac": MAC, "addresses": addresses or {}, **over}


GLOBAL = {"scope": "global", "dynamic": False, "family": "inet"}
