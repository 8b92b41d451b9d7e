# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/site/versions.md promises the modules that do not call themselves internal, and no others."""

from __future__ import annotations

import re
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


def test_the_promised_modules() -> None:
    page = (TOP / "docs" / "site" / "versions.md").read_text(encoding="utf-8")
    listed = page.partition("of these modules:\n")[2].partition("\n\nThe other modules")[0]
    modules = sorted((TOP / "plugins" / "modules").glob("*.py"))
    internal = {path.stem for path in modules if "  - sparkthor.cluster.internal\n" in path.read_text(encoding="utf-8")}
    assert internal
    assert re.findall(r"`(\w+)`", listed) == [path.stem for path in modules if path.stem not in internal]
