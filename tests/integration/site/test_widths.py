# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The site that ``make docs`` built, in a browser: on a phone, a laptop, a large screen nothing is cut or too pale."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import sync_playwright

from tools import browser

SITE = Path(__file__).resolve().parents[3] / ".lab" / "docs" / "html"
#: pages whose titles, headings of columns and names of options are whole
WHOLE = {SITE / name for name in ("index.html", "first-hour.html", "network.html", "collections/console_role.html")}
PAGES = sorted(
    path for pattern in ("*.html", "tutorial/*.html", "collections/console_role.html") for path in SITE.glob(pattern)
)
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

AXE = Path(__file__).resolve().parents[1] / "page" / "axe" / "axe.min.js"
PALE = """async () => {
  const told = await axe.run(document.querySelector('article'), {runOnly: ['color-contrast']})
  return told.violations.flatMap(one => one.nodes.map(node => node.html.slice(0, 90)))
}"""
#: words that a narrow cell or title broke in two
BROKEN = """() => [...document.querySelectorAll('article :is(h1, th, .ansible-option-title strong)')].flatMap(one => {
  const texts = document.createTreeWalker(one, NodeFilter.SHOW_TEXT), found = []
  while (texts.nextNode()) for (const word of texts.currentNode.data.matchAll(/[A-Za-z_.]+/g)) {
    const range = document.createRange()
    range.setStart(texts.currentNode, word.index)
    range.setEnd(texts.currentNode, word.index + word[0].length)
    const [first] = range.getClientRects()
    if (first && range.getBoundingClientRect().height > 1.6 * first.height) found.push(word[0])
  }
  return found
})"""


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
                if path in WHOLE and (found := page.evaluate(BROKEN)):
                    cut[path.name] = found
        finally:
            chromium.close()
    assert cut == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_their_ground(scheme: Literal["light", "dark"]) -> None:
    """The reference of a role, whose tables have colours of their own, the first page with its drawing, and code."""
    found = {}
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser.program(), args=["--no-sandbox"])
        try:
            page = chromium.new_context(viewport={"width": 1366, "height": 900}, color_scheme=scheme).new_page()
            for name in ("collections/console_role.html", "index.html", "groups.html"):
                page.goto((SITE / name).as_uri())
                page.evaluate(AXE.read_text(encoding="utf-8"))
                if pale := page.evaluate(PALE):
                    found[name] = pale
        finally:
            chromium.close()
    assert found == {}


def test_whoever_looks_for_the_way_back_finds_it_and_edits_nothing() -> None:
    assert "uninstall" in (SITE / "changes.html").read_text(encoding="utf-8").lower()
    # the search knows words by their stems
    assert '"uninstal"' in (SITE / "searchindex.js").read_text(encoding="utf-8")
    assert not any("edit-this-page" in path.read_text(encoding="utf-8") for path in PAGES)
