# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab's llama.cpp is made of: two builds that are two engines, and a model by its header."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ENGINE = Path(__file__).parents[1] / "engine"


@pytest.fixture(scope="module")
def llama() -> ModuleType:
    # a folder of programs, not a package
    sys.path.insert(0, str(ENGINE))
    try:
        return importlib.import_module("llama")
    finally:
        sys.path.remove(str(ENGINE))


def test_two_builds_run_and_differ(llama: ModuleType, tmp_path: Path) -> None:
    for name, more in (("first", b""), ("second", b"\n")):
        llama.make_programs(str(tmp_path / name), "", more)
        for program in llama.PROGRAMS:
            assert (tmp_path / name / program).read_bytes().startswith(b"#!/usr/bin/python3\n")
    asked = [sys.executable, str(tmp_path / "second" / "llama-server"), "--version"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "0c1e570" in done.stderr) == (0, True)
    first, second = ((tmp_path / name / "llama-server").read_bytes() for name in ("first", "second"))
    assert first != second


def test_real_programs_are_taken_from_their_folder(llama: ModuleType, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for program in llama.PROGRAMS:
        (source / program).write_bytes(b"\x7fELF")
    llama.make_programs(str(tmp_path / "made"), str(source), b"\n")
    assert (tmp_path / "made" / "ggml-rpc-server").read_bytes() == b"\x7fELF\n"


def test_the_model_is_a_header_before_a_hole(llama: ModuleType, tmp_path: Path) -> None:
    path = Path(llama.make_hole(str(tmp_path / "model"))) / "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert path.read_bytes()[:4] == b"GGUF"
    # as long as the tensors are, and yet next to nothing on the disk
    assert path.stat().st_size > llama.TENSORS > path.stat().st_blocks * 512
