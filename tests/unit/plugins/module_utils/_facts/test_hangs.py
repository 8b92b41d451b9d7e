# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of hung ranks as the doctor gets them."""

from __future__ import annotations

import json
from pathlib import Path

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import hangs


def test_the_newest_records_come_first_and_shortened(tmp_path: Path) -> None:
    process = {"title": "VLLM::Worker", "state": "S", "threads": [{"waits_in": "futex_wait"}], "stack": "x" * 9000}
    for number in range(1, 5):
        record = {"taken": number, "reason": "hung", "processes": [process], "nccl": "y" * 9000, "gpus": [], "late": []}
        (tmp_path / f"{number}.json").write_text(json.dumps(record))
    found = hangs.read(str(tmp_path))
    assert [one["taken"] for one in found] == [4.0, 3.0]
    assert len(found[0]["processes"][0]["stack"]) == hangs.STACK
    assert found[0]["processes"][0]["waits_in"] == ["futex_wait"]
    assert len(found[0]["nccl"]) == hangs.REPORT


def test_what_is_no_record_is_left_out(tmp_path: Path) -> None:
    for name, text in (("1.json", "{"), ("2.json", json.dumps({"taken": 1, "processes": [{}]})), ("3.txt", "")):
        (tmp_path / name).write_text(text)
    assert hangs.read(str(tmp_path)) == []
    assert hangs.read(str(tmp_path / "absent")) == []
