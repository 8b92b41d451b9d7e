# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root's part in passing on what was compiled: bytes of the serving user's, within bounds, and nothing left of them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import compiled
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError
from ansible_collections.sparkthor.cluster.plugins.modules import engine_compiled


@pytest.fixture
def params(tmp_path: Path) -> dict[str, Any]:
    return {"root": str(tmp_path / "compiled"), "cache": str(tmp_path / "cache"), "timeout": 20}


class Program:
    """A stand-in for the serving user's program; what it was called with is kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script, self.words = "", list[str]()
        monkeypatch.setattr(compiled, "_started", self._started)

    def _started(self, words: list[str], _cache: str, **streams: Any) -> subprocess.Popen[bytes]:
        self.words = words[-3:]
        return subprocess.Popen(["sh", "-c", self.script], stderr=subprocess.PIPE, start_new_session=True, **streams)


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    return Program(monkeypatch)


def left(params: dict[str, Any]) -> list[str]:
    root = Path(params["root"])
    return [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.name != ".lock"]


def test_what_one_gives_another_takes(program: Program, params: dict[str, Any], tmp_path: Path) -> None:
    program.script = "printf kernels"
    given = compiled.give(params)
    assert program.words == ["compiled", "pack", params["cache"]]
    assert given["saved"][:2] == ["compiled.tar", 7]
    assert (Path(params["root"]) / "compiled/compiled.tar").read_text() == "kernels"
    # a second time in place of the first
    assert compiled.give(params)["saved"] == given["saved"]
    program.script = f'cat >{tmp_path}/got; echo \'{{"files": 3, "bytes": 7}}\''
    assert compiled.take(params) == {"changed": True, "files": 3, "bytes": 7}
    assert program.words == ["compiled", "lay", params["cache"]]
    assert (tmp_path / "got").read_text() == "kernels"
    assert left(params) == []


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'disk on fire' >&2; exit 1", "disk on fire"),
        ("exit 3", "status 3"),
        ("exec sleep 60", "in time"),
        ("printf x; exec >&-; exec sleep 60", "in time"),
        ("head -c 2000000 /dev/zero", "MiB: it is not passed on"),
    ],
)
def test_what_cannot_be_packed_leaves_nothing(
    program: Program, params: dict[str, Any], script: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "LARGEST", 1 << 20)
    program.script = script
    with pytest.raises(EngineError, match=why):
        compiled.give({**params, "timeout": 2})
    assert left(params) == []


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'no such folder' >&2; exit 1", "no such folder"),
        ("exec sleep 60", "within 2 s"),
        ("echo nonsense", "cannot be read"),
        ("echo '{}'", "cannot be read"),
    ],
)
def test_what_cannot_be_laid_is_gone_as_well(program: Program, params: dict[str, Any], script: str, why: str) -> None:
    program.script = "printf kernels"
    compiled.give(params)
    program.script = script
    with pytest.raises(EngineError, match=why):
        compiled.take({**params, "timeout": 2})
    assert left(params) == []


def test_nothing_came(program: Program, params: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match="nothing came"):
        compiled.take(params)
    assert program.words == []


def test_the_module_does_nothing_in_check_mode(
    program: Program, params: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with patch_module_args({**params, "step": "give", "_ansible_check_mode": True}), pytest.raises(SystemExit):
        engine_compiled.main()
    assert json.loads(capsys.readouterr().out)["changed"] is False
    assert program.words == []
    assert not os.path.exists(params["root"])


def test_the_module_says_what_went_wrong(
    program: Program, params: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    program.script = "echo 'disk on fire' >&2; exit 1"
    with patch_module_args({**params, "step": "give"}), pytest.raises(SystemExit):
        engine_compiled.main()
    assert json.loads(capsys.readouterr().out)["msg"] == "disk on fire"
