# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real headless browser for the report's tests and pictures: the distribution's chromium, as its packages install it.

Where the machine has none, root installs Debian's; a person without root is told which package to install.

    python -m tools.browser PAGE.html PICTURE.png [--width 1200] [--dark]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PACKAGE = "chromium-headless-shell"
#: programs that will do, the first that is there
PROGRAMS = (PACKAGE, "chromium")
#: without a font every word has no width
FONTS = "fonts-dejavu-core"

#: what the page itself says when it is inspected: sizes, and the contrast of every piece of text
PROBE = r"""
<script>
window.addEventListener('load', () => {
  const parse = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
  const lum = c => { const f = v => { v /= 255; return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; };
    return .2126 * f(c[0]) + .7152 * f(c[1]) + .0722 * f(c[2]); };
  const ratio = (a, b) => { const [x, y] = [lum(a), lum(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
  const paper = parse(getComputedStyle(document.body).backgroundColor);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] > .99) return c;
    }
    return paper;
  };
  const texts = [];
  const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.data.trim() || parent.closest('title,script,style')) continue;
    const style = getComputedStyle(parent);
    let ink, ground;
    if (parent.namespaceURI.endsWith('svg')) {
      ink = parse(style.fill);
      const at = parent.getBoundingClientRect();
      const [x, y] = [at.x + at.width / 2, at.y + at.height / 2];
      const boxes = [...parent.closest('svg').querySelectorAll('rect')].filter(r => {
        const b = r.getBoundingClientRect(); return x > b.x && x < b.right && y > b.y && y < b.bottom; });
      ground = boxes.length ? parse(getComputedStyle(boxes.at(-1)).fill) : behind(parent.closest('figure'));
    } else { ink = parse(style.color); ground = behind(parent); }
    texts.push({text: node.data.trim().slice(0, 60), ratio: Math.round(ratio(ink, ground) * 100) / 100});
  }
  const labels = [...document.querySelectorAll('figure svg text')].map(t => {
    const b = t.getBoundingClientRect(); return {text: t.textContent, x: b.x, y: b.y, w: b.width, h: b.height}; });
  const found = {width: innerWidth, page: document.documentElement.scrollWidth,
    height: Math.ceil(document.documentElement.getBoundingClientRect().height), texts, labels,
    dark: matchMedia('(prefers-color-scheme: dark)').matches,
    requests: performance.getEntriesByType('resource').map(r => r.name)};
  document.documentElement.setAttribute('data-probe', JSON.stringify(found));
});
</script></body>
"""


class BrowserError(Exception):
    """Why there is no browser; the message says what to do."""


def run(argv: list[str], seconds: float = 600, **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        argv, capture_output=True, text=True, errors="replace", timeout=seconds, check=False, **options
    )
    if done.returncode != 0:
        raise BrowserError(f"{' '.join(argv[:3])} ended with {done.returncode}: {(done.stderr or done.stdout)[-500:]}")
    return done


def program() -> str:
    """The browser of this machine, installed where it is missing."""
    path = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if path:
        return path
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise BrowserError(f"no {' or '.join(PROGRAMS)} here: install one of them (apt-get install {PACKAGE})")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "-qq", "update"], env=quiet)
    run(["apt-get", "-qq", "install", "-y", "--no-install-recommends", PACKAGE, FONTS], 1200, env=quiet)
    path = shutil.which(PACKAGE)
    if not path:
        raise BrowserError(f"the package {PACKAGE} brought no program of this name: install {PROGRAMS[-1]}")
    return path


@dataclass
class Seen:
    """What the browser saw: its own measurements, and what it wrote to the console."""

    probe: dict[str, Any]
    console: list[str] = field(default_factory=list)


def _browse(arguments: list[str], page: Path, width: int, height: int, dark: bool) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as profile:
        argv = [
            program(),
            *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"),
            *("--enable-logging=stderr", "--log-level=0", f"--user-data-dir={profile}"),
            *("--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND"),
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--window-size={width},{height}",
            *arguments,
            page.resolve().as_uri(),
        ]
        return run(argv, 180)


def inspect(page: Path, width: int = 1200, dark: bool = False) -> Seen:
    """Open the page with the probe in it."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "page.html"
        copy.write_text(page.read_text(encoding="utf-8").replace("</body>", PROBE), encoding="utf-8")
        done = _browse(["--dump-dom"], copy, width, 4000, dark)
    match = re.search(r'data-probe="([^"]*)"', done.stdout)
    if not match:
        raise BrowserError(f"the page did not load: {done.stderr[-500:]}")
    text = match[1].replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return Seen(json.loads(text), console)


def picture(page: Path, target: Path, width: int = 1200, dark: bool = False, most: int = 100000) -> None:
    """The whole page, or its first ``most`` pixels."""
    height = min(inspect(page, width, dark).probe["height"], most)
    _browse([f"--screenshot={target.resolve()}"], page, width, height, dark)


def printed(page: Path, target: Path) -> None:
    _browse([f"--print-to-pdf={target.resolve()}", "--no-pdf-header-footer"], page, 1000, 1400, False)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools.browser", description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--width", type=int, default=1200)
    parser.add_argument("--dark", action="store_true")
    given = parser.parse_args()
    try:
        picture(given.page, given.target, given.width, given.dark)
    except BrowserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
