# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools import recording
from tools.recording import Line

EVENTS = [
    (0.0, "--- site.yml\r\n"),
    (90.0, "\r\x1b[2K   loading 20 %"),
    (90.5, "\r\x1b[2K   loading 70 %"),
    (200.0, "\r\n\x1b[1mThe capital"),
    (200.25, " of <France>\r\n"),
]


def test_what_is_seen_when() -> None:
    found, ends = recording.lines(EVENTS)
    assert found == [
        Line(0, "--- site.yml", 0.0),
        Line(1, "   loading 20 %", 1.0, 1.5),
        Line(1, "   loading 70 %", 1.5),
        Line(2, "The capital", 2.5, 2.75),
        Line(2, "The capital of <France>", 2.75),
    ]
    assert ends == 2.75


def test_a_picture_of_the_newest_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "LINES", 2)
    picture = recording.svg(*recording.lines(EVENTS), "make up")
    # nobody watches an empty screen for as long as the lines before them took
    assert "@keyframes k0{0%{opacity:0}0.001%{opacity:1}" in picture
    drawn = ElementTree.fromstring(picture)
    texts = [(text.text, text.get("class")) for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == [
        ("   loading 20 %", "g"),
        ("   loading 70 %", None),
        ("The capital", "g"),
        ("The capital of <France>", None),
    ]


def test_a_picture_names_no_folder_of_this_machine() -> None:
    here = str(recording.TOP)
    assert (
        recording._anywhere(f"cat {here}/lab of {here}/lab") == "cat ~/sparkthor.cluster/lab of ~/sparkthor.cluster/lab"
    )
    assert recording._anywhere(f"cat {here[:-2]}") == "cat ~/sparkthor.cluster"
    assert recording._anywhere("cat a/b") == "cat a/b"


def test_a_run_is_recorded_and_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "CAST", tmp_path / "a.cast")
    out = tmp_path / "images" / "a.svg"
    said = f"import sys; print('Grüße', sys.stdout.isatty(), '{recording.TOP}/lab')"
    assert recording.main(["--out", str(out), sys.executable, "--", "-c", said]) == 0
    assert "Grüße True ~/sparkthor.cluster/lab" in out.read_text(encoding="utf-8")
    first = out.read_bytes()
    out.unlink()
    command = ["--out", str(out), "--from", str(tmp_path / "a.cast"), sys.executable, "--", "-c", said]
    assert recording.main(command) == 0
    assert out.read_bytes() == first


def test_a_failed_run_draws_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "CAST", tmp_path / "a.cast")
    assert recording.main(["--out", str(tmp_path / "a.svg"), "false"]) == 1
    assert not (tmp_path / "a.svg").exists()
    assert (tmp_path / "a.cast").exists()
