# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import serving, vllm_prepare


def test_a_pause_removes_compiled_code_of_ours_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slept: list[float] = []
    for name in ("ours", "others"):
        (tmp_path / name / "pycache").mkdir(parents=True)
    ours = f"{tmp_path}/ours/"
    vllm_prepare.pause(20, str(tmp_path / "others" / "pycache"), ours, slept.append)
    vllm_prepare.pause(40, str(tmp_path / "ours" / "pycache"), ours, slept.append)
    vllm_prepare.pause(40, "", ours, slept.append)
    vllm_prepare.pause(40, f"{ours}../others/pycache", ours, slept.append)
    assert slept == [20, 40, 40, 40]
    assert (tmp_path / "others" / "pycache").exists()
    assert not (tmp_path / "ours" / "pycache").exists()
    assert "waiting 20 s before this one" in capsys.readouterr().out


def test_a_pause_leaves_what_a_planted_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("precious")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "pycache").symlink_to(tmp_path / "outside")
    vllm_prepare.pause(20, str(tmp_path / "cache" / "pycache"), str(tmp_path / "cache"), lambda _seconds: None)
    assert (tmp_path / "outside" / "file").read_text() == "precious"
    assert not (tmp_path / "cache" / "pycache").is_symlink()


def test_the_link_follows_who_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = tmp_path / "serve.yaml"
    smaller = {"config": "/etc/small.yaml", "whole": "/etc/whole.yaml", "link": str(link)}
    vllm_prepare.choose_size(smaller, {})
    assert str(link.readlink()) == "/etc/whole.yaml"
    vllm_prepare.choose_size(smaller, {"10.0.0.3": "c"})
    assert str(link.readlink()) == "/etc/small.yaml"
    assert "starting without 10.0.0.3: /etc/small.yaml" in capsys.readouterr().out


def test_a_start_is_recorded_with_what_it_is_made_with(tmp_path: Path) -> None:
    given = tmp_path / "vllm.yaml"
    given.write_text("x")
    record = tmp_path / "record.json"
    vllm_prepare.record_vllm_start([str(given), str(tmp_path / "none")], {"INVOCATION_ID": "i1"}, str(record))
    written = json.loads(record.read_text())
    assert (written["invocation"], set(written["files"])) == ("i1", {str(given), str(tmp_path / "none")})
    # secrets are among the files: nobody else reads it, and no digest of it can be looked up
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert hashlib.sha256(b"x").hexdigest() not in record.read_text()
    assert serving.files_changed_since(written) == []
    assert serving.files_changed_since(written, [*written["files"], str(record)]) == [str(record)]
    given.write_text("y")
    assert serving.files_changed_since(written) == [str(given)]


def test_each_record_has_a_key_of_its_own_and_one_of_an_earlier_version_has_none(tmp_path: Path) -> None:
    given, record = tmp_path / "token", tmp_path / "record.json"
    given.write_text("x")
    records = []
    for _number in range(2):
        serving.record_start([str(given)], "i1", str(record))
        records.append(json.loads(record.read_text())["files"][str(given)])
    assert records[0] != records[1]
    assert serving.files_changed_since({"files": {str(given): hashlib.sha256(b"x").hexdigest()}}) == []
    assert serving.files_changed_since({"files": "torn"}, [str(given)]) == [str(given)]


def test_a_record_that_cannot_be_written_costs_no_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    vllm_prepare.record_vllm_start([], {}, str(tmp_path / "file" / "record.json"))
    assert "cannot be written" in capsys.readouterr().err


def test_the_whole_preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(serving, "note_start", lambda path: 0.0)
    monkeypatch.setattr(
        vllm_prepare, "record_vllm_start", lambda inputs, environment, path: ran.append([*inputs, path])
    )
    monkeypatch.setattr(vllm_prepare, "DROP_CACHES", str(tmp_path / "drop"))

    def run(argv: list[str], _limit: float, environment: dict[str, str]) -> tuple[int, str, str]:
        ran.append([*argv, *environment])
        return 0, "", ""

    monkeypatch.setattr(vllm_prepare, "run_limited", run)
    config = tmp_path / "serving.json"
    config.write_text('{"inputs": ["/etc/a"]}')
    assert vllm_prepare.main([str(config)]) == 0
    assert ran == [["/etc/a", serving.STARTED_WITH]]
    (tmp_path / "drop").write_text("")
    assert vllm_prepare.main([str(tmp_path / "none")]) == 0
    assert ran[1:] == [[serving.STARTED_WITH], [str(tmp_path / "drop"), "PATH"]]


def test_a_disk_that_is_gone_keeps_no_engine_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program waits for all disks to be written, and the unit's start for the program."""
    drop = tmp_path / "drop"
    drop.write_text("#!/bin/sh\nexec sleep 60\n")
    drop.chmod(0o755)
    monkeypatch.setattr(serving, "note_start", lambda path: 0.0)
    monkeypatch.setattr(vllm_prepare, "record_vllm_start", lambda inputs, environment, path: None)
    monkeypatch.setattr(vllm_prepare, "DROP_CACHES", str(drop))
    monkeypatch.setattr(vllm_prepare, "DROP_LIMIT", 0.2)
    assert vllm_prepare.main([str(tmp_path / "none")]) == 0
    assert capsys.readouterr().err == f"{drop}: no answer within 0.2 s\n"


def test_a_start_beside_another_group_has_its_own_records_and_leaves_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[str] = []
    monkeypatch.setattr(serving, "note_start", lambda path: float(bool(paths.append(path))))
    monkeypatch.setattr(vllm_prepare, "record_vllm_start", lambda inputs, environment, path: paths.append(path))
    (tmp_path / "drop").write_text("")
    monkeypatch.setattr(vllm_prepare, "DROP_CACHES", str(tmp_path / "drop"))
    monkeypatch.setattr(vllm_prepare, "run_limited", lambda *_argv, **_more: paths.append("dropped"))
    config = tmp_path / "serving.json"
    config.write_text('{"beside": "embed"}')
    assert vllm_prepare.main([str(config)]) == 0
    run = "/run/sparkthor/beside/embed"
    assert paths == [f"{run}/vllm-starts.json", f"{run}/vllm-started-with.json"]
