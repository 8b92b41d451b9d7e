# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of a folder as one wheel, which is installed like every other engine."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import engine_prepare
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import pins
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError, Target
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import programs, wheels

from tests.unit.delivery import act
from tests.unit.engine_lock import locked, write_wheels

SPARK = Target("3.12", "aarch64", "2.39")
NAMES = ("llama-server", "ggml-rpc-server")
PACKAGE = "llama-cpp-programs"


def elf(machine: int) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 2, machine) + bytes(80)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = tmp_path / "build"
    made.mkdir()
    for name in NAMES:
        (made / name).write_bytes(elf(183) + name.encode())
    (tmp_path / "wheels").mkdir()
    write_wheels(tmp_path / "wheels", "uv==0.13.8")
    (tmp_path / "lock.txt").write_text(locked("ray==2.60.0", "uv==0.13.8"))
    return made


@pytest.fixture
def given(folder: Path) -> dict[str, Any]:
    there = folder.parent
    return {
        "engine": "llama_cpp",
        "programs": str(folder),
        "requirements": str(there / "lock.txt"),
        "wheel_dir": str(there / "wheels"),
    }


def wheel_of(given: dict[str, Any]) -> Path:
    (found,) = Path(given["wheel_dir"]).glob("llama_cpp_programs-*.whl")
    return found


def test_the_same_programs_are_the_same_wheel_and_others_another(folder: Path, given: dict[str, Any]) -> None:
    first = wheels.read_engine_of(given, SPARK)
    found = wheels.prepare_wheels(first, given["wheel_dir"], SPARK, False)
    assert [pin.name for pin in first.pins] == ["uv", PACKAGE]
    assert len(found.manifest) == 2
    content = wheel_of(given).read_bytes()
    wheel_of(given).unlink()
    for name in NAMES:
        os.utime(folder / name, (1, 1))
    assert wheels.read_engine_of(given, SPARK) == first
    assert wheel_of(given).read_bytes() == content
    (folder / NAMES[0]).write_bytes(elf(183) + b"newer")
    assert wheels.read_engine_of(given, SPARK).versions != first.versions


def test_a_program_is_installed_as_it_is_and_can_be_run(given: dict[str, Any], tmp_path: Path) -> None:
    script = b"#!/bin/sh\necho served\n"
    for name in NAMES:
        (Path(given["programs"]) / name).write_bytes(script)
    wheels.read_engine_of(given, SPARK)
    with zipfile.ZipFile(wheel_of(given)) as archive:
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    assert [oct(mode) for name, mode in modes.items() if "/scripts/" in name] == ["0o100755"] * 2
    target = tmp_path / "site"
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", f"--prefix={target}"]
    wheel = tmp_path / wheel_of(given).name.replace("linux_aarch64", "any")
    wheel.write_bytes(wheel_of(given).read_bytes())
    subprocess.run([*argv, str(wheel)], check=True, capture_output=True)
    (program,) = target.rglob(NAMES[0])
    assert program.read_bytes() == script
    assert subprocess.run([program], check=True, capture_output=True, text=True).stdout == "served\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (elf(62), "ggml-rpc-server is a program for x86_64, and this host is aarch64"),
        (elf(243), "a program for machine 243"),
        (b"MZ" + bytes(40), "is no program for Linux"),
        (b"", "is no program for Linux"),
    ],
)
def test_what_no_host_can_run_is_refused_with_file_and_fix(
    folder: Path, given: dict[str, Any], content: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / NAMES[1]).write_bytes(content)
    with pytest.raises(AnsibleActionFail) as caught:
        act(engine_prepare, monkeypatch, {**given, "download": False}, [])
    assert f"host spark-01: engine_programs: {folder}/{NAMES[1]}" in str(caught.value)
    assert words in str(caught.value)


def test_a_folder_without_them_and_a_lock_without_uv_are_named(folder: Path, given: dict[str, Any]) -> None:
    (folder / NAMES[1]).unlink()
    with pytest.raises(EngineError, match=r"engine_programs: .*/build lacks ggml-rpc-server; name the folder"):
        wheels.read_engine_of(given, SPARK)
    (folder / NAMES[1]).write_bytes(elf(183))
    Path(given["requirements"]).write_text(locked("ray==2.60.0"))
    with pytest.raises(EngineError, match=r"engine_requirements: .* does not pin uv"):
        wheels.read_engine_of(given, SPARK)


def test_a_machine_is_told_by_the_file_alone(folder: Path) -> None:
    assert programs.machine_of(str(folder / NAMES[0])) == "aarch64"


def test_a_lock_of_the_default_engine_is_read_as_before(given: dict[str, Any]) -> None:
    Path(given["requirements"]).write_text(locked("ray==2.60.0", "vllm==0.32.0", "uv==0.13.8"))
    for engine in ("", "vllm"):
        read = wheels.read_engine_of({**given, "engine": engine, "programs": ""}, SPARK)
        assert read == pins.read_engine(given["requirements"])


def test_programs_beside_a_lock_are_one_more_wheel(folder: Path, given: dict[str, Any]) -> None:
    Path(given["requirements"]).write_text(locked("ray==2.60.0", "vllm==0.32.0", "uv==0.13.8"))
    lock, alone = pins.read_engine(given["requirements"]), wheels.read_engine_of(given, SPARK)
    both = wheels.read_engine_of({**given, "engine": "vllm"}, SPARK)
    assert both.pins == [*lock.pins, alone.pins[-1]]
    assert (both.source, both.versions) == (lock.source, lock.versions)
    (folder / NAMES[0]).write_bytes(elf(183) + b"newer")
    assert wheels.read_engine_of({**given, "engine": "vllm"}, SPARK).pins != both.pins
