# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import fanout_job as job


class Systemd(list):
    """Keeps a unit that failed until it is reset, unless it was told to collect it."""

    failed = False
    collect = False
    limits: tuple[str, ...] = ()

    def __call__(self, argv: list[str]) -> tuple[int, str]:
        self.append(argv[:2])
        if argv[:2] == ["systemctl", "reset-failed"]:
            self.failed = False
        elif argv[0] == "systemd-run":
            if self.failed:
                return 1, f"Failed to start transient service unit: Unit {job.UNIT} was already loaded"
            self.collect = "--collect" in argv
            self.limits = tuple(word for word in argv if "RuntimeMaxSec" in word)
        elif argv[:2] == ["systemctl", "show"]:
            kept = self.failed and not self.collect
            return 0, "ActiveState=failed\nResult=signal" if kept else "ActiveState=inactive\nResult=success"
        return 0, ""


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    found = Systemd()
    monkeypatch.setattr(job, "run", found)
    monkeypatch.setattr(job, "FOLDER", str(tmp_path / "run"))
    monkeypatch.setattr(job, "PROGRAM", str(tmp_path / "run/fanout.pyz"))
    monkeypatch.setattr(job, "STATUS", str(tmp_path / "run/status.json"))
    return found


def test_how_a_killed_program_ended_is_known_until_it_was_read(systemd: Systemd, tmp_path: Path) -> None:
    job.start({"run": "ab" * 8})
    assert json.loads((tmp_path / "run/job.json").read_text())["run"] == "ab" * 8
    systemd.failed = True
    assert job.ended() == f"{job.UNIT} ended without a word (ActiveState=failed, Result=signal)"
    # a run that comes before anybody asked is not in the way of the next one
    job.start({"run": "cd" * 8})
    systemd.failed = True
    job.tidy()
    assert systemd.failed is False


def test_a_copy_may_have_an_end(systemd: Systemd) -> None:
    job.start({"run": "ab" * 8, "seconds": 0})
    assert systemd.limits == ()
    job.start({"run": "ab" * 8, "seconds": 240})
    assert systemd.limits == ("--property=RuntimeMaxSec=240",)


def test_the_program_runs_without_this_collection(tmp_path: Path) -> None:
    """As on a host: one file, and a job that is already wrong when it is read."""
    (tmp_path / "fanout.pyz").write_bytes(job.program())
    status = tmp_path / "status.json"
    wanted = [["ab" * 32, 10, []]]
    described = {"run": "ab" * 8, "node": "a", "status": str(status), "incoming": str(tmp_path), "part_size": 4}
    (tmp_path / "job.json").write_text(json.dumps({**described, "contents": wanted}))
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(tmp_path / "fanout.pyz"), str(tmp_path / "job.json")],
        env={}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    said = json.loads(status.read_text())["nodes"]["a"]
    assert said["error"] == f"manifest: {'ab' * 6} has 0 parts, not those of 10 bytes"
