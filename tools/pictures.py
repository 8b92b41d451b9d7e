# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pictures of the report in docs/images, from captured clusters: ``python -m tools.pictures``.

Each keeps the headings of the page that it shows, so that a test finds a picture older than its page.
"""

from __future__ import annotations

import json
import re
import struct
import tempfile
import zlib
from pathlib import Path

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import page

from tools import browser

TOP = Path(__file__).resolve().parent.parent
SHAPES = ("3spark_ring", "4spark", "2spark_2thor")
#: what is cut off below is rows of the same tables
HEIGHT = 1150
_KEY = b"Description\0"


def report(shape: str) -> str:
    """The report of a captured cluster, as HTML."""
    data = json.loads((TOP / f"tests/fixtures/report/{shape}.json").read_text(encoding="utf-8"))
    return page.page(data["status"], data["runs"], data["doctor"], data["memory"], data["why"])


def headings(html: str) -> list[str]:
    return re.findall(r"<h[12][^>]*>([^<]+)</h[12]>", html)


def _chunks(png: bytes) -> list[bytes]:
    """Every chunk of a PNG, whole: length, name, data and checksum."""
    found, at = [], 8
    while at < len(png):
        size = 12 + struct.unpack(">I", png[at : at + 4])[0]
        found.append(png[at : at + size])
        at += size
    return found


def note(png: bytes, text: str) -> bytes:
    """The picture with a text in it."""
    body = b"tEXt" + _KEY + text.encode("latin-1", "replace")
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    first, *rest = _chunks(png)
    return png[:8] + first + chunk + b"".join(rest)


def noted(png: bytes) -> str:
    """The text in a picture; empty without one."""
    texts = [chunk[8 + len(_KEY) : -4] for chunk in _chunks(png) if chunk[4:].startswith(b"tEXt" + _KEY)]
    return texts[0].decode("latin-1") if texts else ""


def target(shape: str) -> Path:
    return TOP / "docs" / "images" / f"report-{shape}.png"


def main() -> None:
    for shape in SHAPES:
        html = report(shape)
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "page.html"
            source.write_text(html, encoding="utf-8")
            browser.picture(source, target(shape), width=1000, most=HEIGHT)
        target(shape).write_bytes(note(target(shape).read_bytes(), "\n".join(headings(html))))
        print(target(shape))


if __name__ == "__main__":
    main()
