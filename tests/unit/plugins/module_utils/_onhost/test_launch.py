# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's environment is loaded by a process of the serving user's, and by none of root's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import launch


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """(program, words, environment) of every program that was launched."""
    found: list[Any] = []
    monkeypatch.setattr(launch.os, "geteuid", lambda: 990)
    monkeypatch.setattr(launch.os, "execve", lambda *given: found.append(given))
    return found


def test_the_program_gets_the_files_above_the_unit_s_own(
    tmp_path: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fabric.env").write_text("VLLM_HOST_IP=10.0.0.1\nRAY_ADDRESS=10.0.0.1:6379\n")
    (tmp_path / "vllm.env").write_text('HOME="/cache"\nA="two words \\"x\\""\n')
    monkeypatch.setenv("HOME", "/var/lib/sparkthor")
    monkeypatch.setenv("INVOCATION_ID", "1")
    files = [f"--file={tmp_path}/fabric.env", f"--file=-{tmp_path}/engine.env", f"--file={tmp_path}/vllm.env"]
    launch.main([*files, "--without=RAY_ADDRESS", "--", "/opt/ray", "start", "--", "--help"])
    [(program, words, environment)] = started
    assert (program, words) == ("/opt/ray", ["/opt/ray", "start", "--", "--help"])
    wanted = {"HOME": "/cache", "A": 'two words "x"', "VLLM_HOST_IP": "10.0.0.1", "INVOCATION_ID": "1"}
    assert wanted.items() <= environment.items()
    assert "RAY_ADDRESS" not in environment


def test_a_value_cannot_bring_another_variable(tmp_path: Path, started: list[Any]) -> None:
    # a line break of Unicode's, which systemd takes for part of the value
    (tmp_path / "vllm.env").write_text('A="x\u2028LD_PRELOAD=/evil.so\x0bLD_AUDIT=/evil.so"\n', encoding="utf-8")
    launch.main([f"--file={tmp_path}/vllm.env", "--", "/opt/vllm"])
    [(_program, _words, environment)] = started
    assert environment["A"] == "x\u2028LD_PRELOAD=/evil.so\x0bLD_AUDIT=/evil.so"
    assert not {"LD_PRELOAD", "LD_AUDIT"} & set(environment)


def test_root_launches_nothing(
    tmp_path: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch.os, "geteuid", lambda: 0)
    assert launch.main(["--", "/bin/true"]) == launch.NOT_NOW
    assert "root gets none of the engine's variables" in capsys.readouterr().err
    assert started == []


def test_what_cannot_be_started_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str], started: list[Any]) -> None:
    assert launch.main([f"--file={tmp_path}/gone.env", "--", "/bin/true"]) == launch.NOT_NOW
    assert f"{tmp_path}/gone.env cannot be read" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        launch.main(["--file=-/gone"])
    assert "no command after --" in capsys.readouterr().err
    assert started == []
