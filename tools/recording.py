# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make recording``: run ``make up`` on a terminal of its own and draw what it shows as an SVG that moves.

    python -m tools.recording [--out docs/images/make-up.svg] [--from CAST] [COMMAND …]

What came when is kept as an asciicast beside the results (``.lab/results/make-up.cast``), so that ``--from`` draws it
again. Waits are cut to a second, because nobody watches minutes; the seconds that the run prints are the real ones.
"""

from __future__ import annotations

import argparse
import codecs
import html
import json
import os
import pty
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.playbooks import TOP

CAST = TOP / ".lab" / "results" / "make-up.cast"
OUT = TOP / "docs" / "images" / "make-up.svg"
#: what a picture calls this checkout, wherever it lies
CLONE = "~/sparkthor.cluster"
COLUMNS, ROWS = 110, 40
#: seconds that a wait takes at most in the picture, and that the end stays before it begins anew
WAIT, HOLD = 1.0, 8.0
#: lines that stay of a run; the beginning goes first
LINES = 48
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


@dataclass
class Line:
    """A row of text, from when to when it is seen; ``until`` is None for what stays."""

    row: int
    text: str
    since: float
    until: float | None = None


def record(argv: Sequence[str]) -> tuple[int, list[tuple[float, str]]]:
    """Run a command on a terminal; its exit status, and what it wrote at which second."""
    began, screens = time.monotonic(), list[tuple[float, str]]()
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def read(source: int) -> bytes:
        data = os.read(source, 65536)
        screens.append((round(time.monotonic() - began, 3), decode(data)))
        return data

    # a make in a make says into which folder it goes
    os.environ.pop("MAKELEVEL", None)
    os.environ.pop("MAKEFLAGS", None)
    os.environ.update(COLUMNS=str(COLUMNS), LINES=str(ROWS), TERM="xterm-256color")
    status = pty.spawn(list(argv), read)
    return os.waitstatus_to_exitcode(status), screens


def write_cast(path: Path, events: Sequence[tuple[float, str]]) -> None:
    """As asciinema keeps it, version 2."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"version": 2, "width": COLUMNS, "height": ROWS}, *([second, "o", text] for second, text in events)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def read_cast(path: Path) -> list[tuple[float, str]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    return [(float(row[0]), str(row[2])) for row in rows if row[1] == "o"]


def lines(events: Sequence[tuple[float, str]]) -> tuple[list[Line], float]:
    """Each state of each row, with waits cut, and the second at which the last one came."""
    done: list[Line] = []
    open_line, row, now, before = Line(0, "", 0.0), 0, 0.0, 0.0

    def show(text: str) -> None:
        nonlocal open_line
        if text == open_line.text:
            return
        if open_line.text and now > open_line.since:
            done.append(Line(row, open_line.text, open_line.since, now))
        open_line = Line(row, text, now)

    for second, text in events:
        now, before = now + min(second - before, WAIT), second
        state = open_line.text
        for part in re.split(r"(\r\n|\n|\r)", text):
            if part in ("\r\n", "\n"):
                show(state)
                if open_line.text:
                    done.append(open_line)
                row, state = row + 1, ""
                open_line = Line(row, "", now)
            elif part == "\r":
                state = ""
            else:
                state += _ESCAPE.sub("", part)
        show(state)
    return [*done, *([open_line] if open_line.text else [])], now


def _anywhere(text: str) -> str:
    """The same as it reads in another folder; a line that ended at the screen's edge may end in this one's path."""
    here, text = str(TOP), text.replace(str(TOP), CLONE)
    cut = next((length for length in range(len(here), 1, -1) if text.endswith(here[:length])), 0)
    return text[:-cut] + CLONE if cut else text


def svg(found: Sequence[Line], ends: float, title: str) -> str:
    """The picture: a row of text for each state, shown and hidden at its time, over and over."""
    first = max(0, max((line.row for line in found), default=0) + 1 - LINES)
    shown = [line for line in found if line.row >= first]
    rows = max((line.row for line in shown), default=0) - first + 1
    # the rows that went first took their time, in which nobody should watch an empty screen
    start = min((line.since for line in shown), default=0.0)
    total, width, height = ends - start + HOLD, COLUMNS * 8.2 + 32, rows * 18 + 56
    frames, texts = [], []
    for number, line in enumerate(shown):
        begin, end = (100 * (second - start) / total for second in (line.since, line.until or ends))
        hidden = "" if line.until is None else f"{end:.3f}%{{opacity:0}}"
        steps = f"0%{{opacity:0}}{max(begin, 0.001):.3f}%{{opacity:1}}{hidden}"
        frames.append(f"@keyframes k{number}{{{steps}100%{{opacity:{int(line.until is None)}}}}}")
        kind = ' class="g"' if line.until is not None else ""
        texts.append(
            f'<text{kind} x="16" y="{(line.row - first) * 18 + 48}" style="animation-name:k{number}">'
            f"{html.escape(line.text[:COLUMNS])}</text>"
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" '
        f'aria-label="{html.escape(title)}">\n<title>{html.escape(title)}</title>\n<style>\n'
        "text{font:13.5px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d6deeb;white-space:pre;"
        f"animation:{total:.2f}s step-end infinite}}\n.g{{fill:#addb67}}\n"
        "@media (prefers-reduced-motion:reduce){text{animation:none}.g{display:none}}\n" + "\n".join(frames) + "\n"
        '</style>\n<rect width="100%" height="100%" rx="8" fill="#011627"/>\n'
        '<circle cx="20" cy="18" r="5" fill="#ef5350"/><circle cx="38" cy="18" r="5" fill="#ffca28"/>'
        '<circle cx="56" cy="18" r="5" fill="#66bb6a"/>\n' + "\n".join(texts) + "\n</svg>\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make recording", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--from", dest="cast", type=Path, metavar="CAST", help="draw this one, and run nothing")
    parser.add_argument("command", nargs="*", default=["make", "up"])
    given = parser.parse_args(argv)
    if given.cast is None:
        status, events = record(given.command)
        write_cast(CAST, events)
        if status != 0:
            print(f"make recording: {' '.join(given.command)} ended with {status}; nothing is drawn", file=sys.stderr)
            return 1
    else:
        events = read_cast(given.cast)
    prompt = f"$ {' '.join(given.command)}\r\n"
    found, ends = lines([(0.0, prompt), *((second + 1.0, text) for second, text in events)])
    for line in found:
        line.text = _anywhere(line.text)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(svg(found, ends, f"A terminal that shows {' '.join(given.command)}"), encoding="utf-8")
    print(f"{given.out}: {given.out.stat().st_size // 1000} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
