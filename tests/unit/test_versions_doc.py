# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/site/versions.md promises the modules that do not call themselves internal, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import machine

SYSTEMS = [name for name, _libc in machine.SYSTEMS.values()]
TOP = Path(__file__).resolve().parents[2]


def test_the_promised_modules() -> None:
    page = (TOP / "docs" / "site" / "versions.md").read_text(encoding="utf-8")
    listed = page.partition("of these modules:\n")[2].partition("\n\nThe other modules")[0]
    modules = sorted((TOP / "plugins" / "modules").glob("*.py"))
    internal = {path.stem for path in modules if "  - sparkthor.cluster.internal\n" in path.read_text(encoding="utf-8")}
    assert internal
    assert re.findall(r"`(\w+)`", listed) == [path.stem for path in modules if path.stem not in internal]


def test_the_systems_of_the_pages_are_those_that_preflight_knows() -> None:
    """And by which wheels are chosen: one list."""
    page = (TOP / "docs" / "site" / "versions.md").read_text(encoding="utf-8")
    [cell] = re.findall(r"\| operating system of hosts \| ([^|]+) \|", page)
    assert re.findall(r"(?:Ubuntu|Debian) [\d.]+", cell) == SYSTEMS
    readme = (TOP / "README.md").read_text(encoding="utf-8")
    [line] = [line for line in readme.splitlines() if "DGX OS 7, JetPack 7" in line]
    assert re.findall(r"(Ubuntu|Debian) ([\d.]+\d)(?: and ([\d.]+\d))?", line) == [
        ("Ubuntu", "24.04", ""),
        ("Debian", "12", "13"),
    ]
    assert SYSTEMS == ["Ubuntu 24.04", "Debian 12", "Debian 13"]
