# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site that ``make docs`` built, in a browser: nothing is cut on a phone, a laptop or a large screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tools import browser

SITE = Path(__file__).resolve().parents[3] / ".lab" / "docs" / "html"
PAGES = sorted(path for pattern in ("*.html", "tutorial/*.html") for path in SITE.glob(pattern))
#: what is wider than the window and cannot be scrolled by itself; code on a screen that has room for its lines
CUT = """() => {
  const found = [], width = document.documentElement.clientWidth;
  const scrolls = e => e && e !== document.body
    && (['auto', 'scroll'].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  if (document.documentElement.scrollWidth > width + 1) found.push('the page');
  for (const e of document.querySelectorAll('article :is(table, pre, img, svg)')) {
    const box = e.getBoundingClientRect(), what = `${e.tagName} ${(e.innerText || '').slice(0, 60)}`;
    if (box.width && box.right > width + 1 && !scrolls(e)) found.push(what);
    if (width > 1000 && e.tagName === 'PRE' && e.scrollWidth > e.clientWidth + 1) found.push(what);
  }
  return found;
}"""


@pytest.mark.parametrize("width", [390, 1366, 1920])
def test_nothing_is_cut(width: int) -> None:
    assert len(PAGES) > 30, "make docs builds the site first"
    cut = {}
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser.program(), args=["--no-sandbox"])
        try:
            page = chromium.new_context(viewport={"width": width, "height": 900}).new_page()
            for path in PAGES:
                page.goto(path.as_uri(), wait_until="domcontentloaded")
                if found := page.evaluate(CUT):
                    cut[path.name] = found
        finally:
            chromium.close()
    assert cut == {}


def test_whoever_looks_for_the_way_back_finds_it_and_edits_nothing() -> None:
    assert "uninstall" in (SITE / "changes.html").read_text(encoding="utf-8").lower()
    # the search knows words by their stems
    assert '"uninstal"' in (SITE / "searchindex.js").read_text(encoding="utf-8")
    assert not any("edit-this-page" in path.read_text(encoding="utf-8") for path in PAGES)
