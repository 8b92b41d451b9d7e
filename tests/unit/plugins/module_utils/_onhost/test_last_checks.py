# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a head keeps of doctor.yml and drift.yml, in the words of the page and status.yml."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import last_checks

TAKEN = "2026-11-21T08:00:00Z"
FINDING: dict[str, Any] = {"severity": "error", "title": "t", "hosts": ["a"], "evidence": ["e"] * 9, "fix": "f"}
DOCTOR: dict[str, Any] = {"version": 1, "taken": TAKEN, "errors": 2, "warnings": 1, "findings": [FINDING]}
DRIFT: dict[str, Any] = {"version": 1, "taken": TAKEN, "lines": ["a: x"]}


def kept(root: Path, **documents: Any) -> dict[str, Any]:
    folder = root / last_checks.FOLDER.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        (folder / f"{name}.json").write_text(document if isinstance(document, str) else json.dumps(document))
    return last_checks.read(str(root))


def test_nothing_is_kept_at_first(tmp_path: Path) -> None:
    assert last_checks.read(str(tmp_path)) == {"doctor": None, "drift": None}
    assert last_checks.words({"doctor": None, "drift": None}, 0.0) == []
    assert last_checks.words({}, 0.0) == []


def test_a_line_for_each_says_when_and_how_much(tmp_path: Path) -> None:
    found = kept(tmp_path, doctor=DOCTOR, drift=DRIFT)
    began = last_checks.at(TAKEN)
    assert last_checks.judged(found, began + 7300) == [
        ("doctor.yml 2 h ago: 2 errors, 1 warning", False),
        ("drift.yml 2 h ago: 1 difference from the plan", False),
    ]
    assert len(found["doctor"]["findings"][0]["evidence"]) == last_checks.EVIDENCE
    found = kept(tmp_path, doctor={**DOCTOR, "errors": 0, "warnings": 0, "findings": []}, drift={**DRIFT, "lines": []})
    assert last_checks.judged(found, began + 59) == [
        ("doctor.yml 59 s ago: nothing is wrong", True),
        ("drift.yml 59 s ago: as the plan wants it", True),
    ]
    # a clock that was set back
    assert last_checks.words(found, began - 3600)[0] == f"doctor.yml of {TAKEN}: nothing is wrong"


def test_what_hosts_said_is_bounded_masked_and_no_control_character(tmp_path: Path) -> None:
    told = {
        **{"severity": "fatal", "title": "x" * 9999, "cause": "\x1b]52;c;eA==\x07seen", "fix": 7},
        **{"hosts": ["h" * 99] * 70, "evidence": ["api_key=0123456789abcdef", {"a": 1}]},
    }
    found = kept(tmp_path, doctor={**DOCTOR, "findings": [told] * 30}, drift={**DRIFT, "lines": ["y" * 999] * 99})
    assert len(found["doctor"]["findings"]) == len(found["drift"]["lines"]) == last_checks.MOST
    first = found["doctor"]["findings"][0]
    assert (first["severity"], first["cause"], first["fix"]) == ("warning", "seen", "7")
    assert (len(first["title"]), len(first["hosts"]), len(first["hosts"][0])) == (last_checks.LINE, 64, 80)
    assert "0123456789abcdef" not in json.dumps(found)
    assert first["evidence"][1] == ""
    assert (found["drift"]["count"], len(found["drift"]["lines"][0])) == (99, last_checks.LINE)


@pytest.mark.parametrize(
    "amiss",
    [
        {"version": 2},
        {"taken": "yesterday"},
        {"taken": "9999-99-99T99:99:99Z"},
        {"taken": 7},
        {"errors": -1},
        {"errors": "many"},
        {"findings": "x"},
        {"findings": [{"hosts": "a"}]},
    ],
)
def test_another_document_is_none(tmp_path: Path, amiss: dict[str, Any]) -> None:
    assert kept(tmp_path, doctor={**DOCTOR, **amiss})["doctor"] is None


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 9999, "x" * (last_checks.MOST_BYTES + 1)])
def test_what_is_no_document_is_none(tmp_path: Path, text: str) -> None:
    assert kept(tmp_path, drift=text)["drift"] is None


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / last_checks.FOLDER.lstrip("/")
    folder.mkdir(parents=True)
    os.mkfifo(folder / "doctor.json")
    assert last_checks.read(str(tmp_path))["doctor"] is None
