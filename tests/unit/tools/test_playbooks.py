# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running a playbook from a tool."""

from __future__ import annotations

import io
import shlex
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ansible_runner
import pytest

from tools import playbooks


def test_a_tool_can_be_ended_after_a_play_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def run(**_options: Any) -> SimpleNamespace:
        for number in before:
            signal.signal(number, lambda *_unused: None)
        return SimpleNamespace(rc=0, status="successful", stdout=None)

    monkeypatch.setattr(playbooks, "RUNS", tmp_path)
    monkeypatch.setattr(ansible_runner, "run", run)
    assert playbooks.run_playbook("site.yml", [], say=lambda line: None).rc == 0
    assert {number: signal.getsignal(number) for number in before} == before


def test_an_argument_may_have_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def run(**options: Any) -> SimpleNamespace:
        given.update(options)
        return SimpleNamespace(rc=0, status="successful", stdout=None)

    monkeypatch.setattr(playbooks, "RUNS", tmp_path)
    monkeypatch.setattr(ansible_runner, "run", run)
    playbooks.run_playbook("site.yml", [], arguments=["--extra-vars=a=1 b=2"], say=lambda line: None)
    # ansible-runner splits it as a shell does
    assert shlex.split(given["cmdline"]) == ["--extra-vars=a=1 b=2"]


def test_a_run_that_ends_without_a_failed_task_says_what_it_said_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "PLAY [a]\n\n" + "".join(f"line {number}\n" for number in range(9)) + "[ERROR]: no such inventory\n"

    def run(**_options: Any) -> SimpleNamespace:
        # a signal ended it: pexpect has no exit status then
        return SimpleNamespace(rc=None, status="failed", stdout=io.StringIO(said))

    monkeypatch.setattr(playbooks, "RUNS", tmp_path)
    monkeypatch.setattr(ansible_runner, "run", run)
    outcome = playbooks.run_playbook("site.yml", [], say=lambda line: None)
    assert outcome.rc == 1
    [why] = outcome.failures
    assert why.startswith("no task failed, and the run ended with 1 (failed): line 4 | ")
    assert why.endswith("line 8 | [ERROR]: no such inventory")
