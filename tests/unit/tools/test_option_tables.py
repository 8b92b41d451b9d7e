# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Option tables from wheels: what is unpacked, and what is asked of which Python."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import option_tables


def test_only_the_python_of_a_wheel_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(command: list[str], check: bool) -> None:
        assert check
        assert command[-1] == "vllm==0.33.0"
        with zipfile.ZipFile(tmp_path / "vllm-0.33.0-cp38-abi3-any.whl", "w") as wheel:
            for name in ("vllm/__init__.py", "vllm/_C.abi3.so", "vllm-0.33.0.dist-info/METADATA"):
                wheel.writestr(name, "")

    monkeypatch.setattr(subprocess, "run", download)
    top = option_tables.unpack("0.33.0", tmp_path)
    found = sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())
    assert found == ["vllm-0.33.0.dist-info/METADATA", "vllm/__init__.py"]


def test_the_unpacked_vllm_stands_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os\nprint('noise')\nprint('{\\n \"schema\": 2, ' + os.environ['PYTHONPATH'])\n")
    monkeypatch.setattr(option_tables, "SCRIPT", script)
    text = option_tables.table(sys.executable, tmp_path)
    assert text == f'{{\n "schema": 2, {tmp_path}\n'
