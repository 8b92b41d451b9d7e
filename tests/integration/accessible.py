# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What axe finds on a page that keeps people out.

page/axe/axe.min.js is axe-core 4.14.1 of Deque Systems as npm has it, MPL-2.0 (page/axe/LICENSE), for tests alone.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from playwright.sync_api import Page

AXE = Path(__file__).parent / "page" / "axe" / "axe.min.js"
#: of what axe calls an impact, those that keep people out
SERIOUS = ("serious", "critical")


def amiss(page: Page) -> list[str]:
    """What axe finds: rule, impact and the first place."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        f"{one['id']} ({one['impact']}): {one['nodes'][0]['html'][:120]}" for one in found if one["impact"] in SERIOUS
    ]


def look(page: Page, where: str) -> list[str]:
    """The same on a phone and on a desk, in both colour schemes."""
    found = []
    for width, scheme in itertools.product((390, 1366), ("light", "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        found += [f"{where}, {width} px, {scheme}: {told}" for told in amiss(page)]
    return found
