# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Logs that somebody sent: whose they are, and what of them can be read."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor import logs as _doctor_logs
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.logs import host_of, read_logs


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("spark-01.log", "spark-01"),
        ("logs/spark-012/x.log", "logs"),
        ("box/spark-01/ray/raylet.out", "spark-01"),
        ("box/x.log", "box"),
        ("x.log", ""),
        ("vllm.spark-01.2026-11-21.gz", "spark-01"),
    ],
)
def test_whose_log_it_is(path: str, expected: str) -> None:
    assert host_of(path, ["spark-01", "spark-0"]) == expected


def test_logs_of_all_kinds_are_read_or_noted(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("plain\n")
    with gzip.open(tmp_path / "b.log.gz", "wt") as packed:
        packed.write("packed\n")
    (tmp_path / "c.log").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "d.png").write_bytes(b"\x89PNG")
    (tmp_path / "e.log.gz").write_bytes(b"\x1f\x8bnonsense")
    logs, notes = read_logs(str(tmp_path))
    assert {log.name: log.text for log in logs} == {"a.log": "plain\n", "b.log.gz": "packed\n"}
    assert [note.partition(" ")[0] for note in notes] == ["c.log", "e.log.gz"]


def test_of_a_huge_log_its_end_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_doctor_logs, "FILE_LIMIT", 1000)
    (tmp_path / "x.log").write_text("begin\n" + "middle\n" * 1000 + "end\n")
    logs, _notes = read_logs(str(tmp_path / "x.log"))
    assert len(logs[0].text) == 1000
    assert logs[0].text.endswith("end\n")


def test_a_log_that_a_power_loss_cut_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(b"before\n" + b"\0" * 4096 + b"after\n")
    logs, notes = read_logs(str(tmp_path))
    assert (logs[0].text, notes) == ("before\nafter\n", [])


def test_a_broken_archive_is_a_note(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"line\n" * 5000))
    packed[20:40] = b"?" * 20
    (tmp_path / "a.log.gz").write_bytes(packed)
    (tmp_path / "b.log").write_text("plain\n")
    logs, notes = read_logs(str(tmp_path))
    assert [log.name for log in logs] == ["b.log"]
    assert notes[0].startswith("a.log.gz cannot be read: ")


def test_of_a_huge_archive_its_end_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_doctor_logs, "FILE_LIMIT", 1000)
    monkeypatch.setattr(_doctor_logs, "_BLOCK", 300)
    with gzip.open(tmp_path / "x.log.gz", "wt") as packed:
        packed.write("begin\n" + "middle\n" * 1000 + "end\n")
    logs, notes = read_logs(str(tmp_path / "x.log.gz"))
    assert (len(logs[0].text), logs[0].text[-4:]) == (1000, "end\n")
    assert notes == ["x.log.gz: only its last 1000 bytes were read"]
    # and one that never ends is left at some point
    monkeypatch.setattr(_doctor_logs, "UNPACK_LIMIT", 3000)
    logs, notes = read_logs(str(tmp_path / "x.log.gz"))
    assert len(logs[0].text) == 1000
    assert notes == ["x.log.gz: what comes after 3000 bytes was not read"]


def test_a_folder_that_somebody_sent_leads_to_no_file_of_the_readers(tmp_path: Path) -> None:
    """An archive brings links and pipes along, and unpacked they are the reader's own."""
    (tmp_path / "id_ed25519").write_text("of-the-reader-alone\n")
    sent = tmp_path / "sent"
    sent.mkdir()
    (sent / "a.log").symlink_to(tmp_path / "id_ed25519")
    (sent / "b.log").symlink_to("/dev/zero")
    os.mkfifo(sent / "c.log")
    (sent / "d.log").write_text("plain\n")
    logs, notes = read_logs(str(sent))
    assert {log.name: log.text for log in logs} == {"d.log": "plain\n"}
    assert notes == [f"{name}.log is no plain file and was not read" for name in "abc"]
    # what the reader names himself is what he means
    (logs, notes) = read_logs(str(sent / "a.log"))
    assert ([log.text for log in logs], notes) == (["of-the-reader-alone\n"], [])
    assert read_logs(str(sent / "c.log"))[0] == []
