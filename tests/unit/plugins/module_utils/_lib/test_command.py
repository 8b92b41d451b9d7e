# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a vendor's tool does, the caller gets an answer, and in time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import command
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited


def test_what_a_command_says_and_reads() -> None:
    code = "import os, sys; sys.stderr.write(os.environ['LC_ALL']); print(sys.stdin.read()); sys.exit(3)"
    assert run_limited([sys.executable, "-c", code], 20, "in") == (3, "in\n", "C")
    assert run_limited([sys.executable, "-c", code], 20) == (3, "\n", "C")


def test_output_that_is_no_text() -> None:
    code = "import sys; sys.stdout.buffer.write(b'a' + bytes([255]))"
    assert run_limited([sys.executable, "-c", code], 20) == (0, "a\ufffd", "")


def test_a_command_that_reads_nothing_of_its_input() -> None:
    assert run_limited([sys.executable, "-c", ""], 20, "x" * 1_000_000)[0] == 0


def test_a_command_that_is_not_there() -> None:
    assert run_limited(["/nonexistent/ibdev2netdev"], 20) == (127, "", "/nonexistent/ibdev2netdev: not installed")


@pytest.mark.parametrize(("mode", "words"), [(0o755, "Exec format error"), (0o644, "Permission denied")])
def test_a_file_that_cannot_be_run(tmp_path: Path, mode: int, words: str) -> None:
    tool = tmp_path / "tool"
    tool.write_text("echo no interpreter is named\n")
    tool.chmod(mode)
    assert run_limited([str(tool)], 20) == (126, "", f"{tool}: {words}")


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    assert run_limited([str(tmp_path)], 20)[0] == 126


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    mark = tmp_path / "late"
    assert run_limited(["sh", "-c", f"sleep 60; touch {mark}"], 0.2) == (124, "", "sh: no answer within 0.2 s")
    # nobody is left who would touch it
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [words for words in running if str(mark).encode() in words]
    assert not mark.exists()


def test_a_command_that_no_signal_reaches_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that hangs in the kernel, on a device that is gone."""
    monkeypatch.setattr(command, "KILLED", 0.2)
    hung: list[subprocess.Popen[str]] = []

    def unheard(process: subprocess.Popen[str]) -> None:
        hung.append(process)

    monkeypatch.setattr(subprocess.Popen, "kill", unheard)
    began = time.monotonic()
    assert run_limited(["sleep", "60"], 0.2)[0] == 124
    assert time.monotonic() - began < 30
    monkeypatch.undo()
    hung[0].kill()
    hung[0].wait()
