# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import venv
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError

from tests.unit.engine_host import MINOR, Host, running_from


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Host:
    return Host(tmp_path, capsys)


def test_an_interpreter_that_fails_is_reported() -> None:
    with pytest.raises(EngineError, match="does not run on this host: broken"):
        venv.probe_python("python3", lambda argv, environment, timeout: (1, "", "x\nbroken\n"))


LDD = """\tlinux-vdso.so.1 (0x00007fe766002000)
\tlibnuma.so.1 => not found
\tlibc10.so => not found
\tlibcuda.so.1 => not found
\tlibstdc++.so.6 => /lib/x86_64-linux-gnu/libstdc++.so.6 (0x00007fe763800000)
"""


def test_missing_libraries_of_the_system_are_named(host: Host) -> None:
    assert venv.parse_ldd(LDD) == ["libnuma.so.1"]
    host.converge()
    real = os.path.realpath(host.path)
    site = Path(real, "lib", f"python{MINOR}", "site-packages")
    (site / "vllm" / "_C.abi3.so").touch()

    def run(argv, environment, timeout):
        return 0, LDD, ""

    assert venv.missing_libraries(real, MINOR, run) == {"libnuma.so.1": "vllm/_C.abi3.so"}
    # brought by another package of the environment: found at run time by its own path
    (site / "ray" / "libnuma.so.1").touch()
    assert venv.missing_libraries(real, MINOR, run) == {}


def test_an_environment_that_something_runs_from_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "venv"
    made = {name: tmp_path / "venvs" / name for name in ("a.0", "a.01", "b.0", "c.0")}
    for folder in made.values():
        folder.mkdir(parents=True)
    proc = running_from(tmp_path / "proc", made["a.01"])
    keep = [str(made["c.0"]), str(made["b.0"])]
    assert venv.prune(str(path), keep, 1, proc=proc) == []
    assert venv.prune(str(path), keep, 0, proc=proc) == [str(made["a.0"])]
    assert sorted(os.listdir(tmp_path / "venvs")) == ["a.01", "b.0", "c.0"]


def test_of_those_that_nobody_needs_the_newest_stay(tmp_path: Path) -> None:
    for age, name in enumerate(("a.0", "b.0", "c.0")):
        marker = tmp_path / "venvs" / name / ".sparkthor-engine.json"
        marker.parent.mkdir(parents=True)
        marker.touch()
        os.utime(marker, (1000 - age, 1000 - age))
    (tmp_path / "venvs" / "d.0").mkdir()
    proc = running_from(tmp_path / "proc")
    gone = venv.prune(str(tmp_path / "venv"), [str(tmp_path / "venvs" / "b.0")], 1, proc=proc)
    assert [os.path.basename(folder) for folder in gone] == ["c.0", "d.0"]
    assert sorted(os.listdir(tmp_path / "venvs")) == ["a.0", "b.0"]
