# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hashes for locks: what pip is asked, and what the lock looks like afterwards."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError, Pin, parse_lock

from tools import engine_locks

A, B, C = "a" * 64, "b" * 64, "c" * 64
LOCK = f"""\
# made for a test
# target: python 3.12, aarch64, glibc 2.39
ray[default]==2.60.0 --hash=sha256:{C}
# a remark
Typing_Extensions==4.16.0 \\
    --hash=sha256:{C}
"""


def test_every_pin_gets_its_hash_and_all_else_stays() -> None:
    text = engine_locks.with_hashes(LOCK, {"ray": A, "typing-extensions": B})
    assert text.splitlines() == [
        *LOCK.splitlines()[:2],
        f"ray[default]==2.60.0 --hash=sha256:{A}",
        "# a remark",
        f"Typing_Extensions==4.16.0 --hash=sha256:{B}",
    ]
    assert [pin.hashes for pin in parse_lock(text, "lock")] == [(A,), (B,)]


def test_a_lock_says_its_target() -> None:
    assert engine_locks.target_of(LOCK, "lock").label == "cp312-aarch64"
    with pytest.raises(EngineError, match="lock: no line such as '# target"):
        engine_locks.target_of("ray==2.60.0\n", "lock")


@pytest.mark.parametrize(
    ("wheel", "problem"),
    [
        ("torch-2.13.0%2Bcpu-cp312-cp312-manylinux_2_28_aarch64.whl", ""),
        ("torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl", "not a wheel that runs on cp312-aarch64"),
        ("torch-2.13.0.tar.gz", "not a wheel"),
    ],
)
def test_what_the_index_has_for_the_target(wheel: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(argv: list[str], **_options: object) -> SimpleNamespace:
        words = dict(word.split("=", 1) for word in argv if word.startswith("--") and "=" in word)
        assert Path(words["--requirement"]).read_text() == "torch==2.13.0\n", "no old hash restricts the choice"
        assert (words["--python-version"], words["--abi"]) == ("3.12", "cp312")
        # as pip 24.2 writes it
        info = {"url": f"https://index.example/{wheel}", "archive_info": {"hashes": {"sha256": A}}}
        Path(words["--report"]).write_text(json.dumps({"install": [{"download_info": info}]}))
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(subprocess, "run", run)
    target, pins = engine_locks.target_of(LOCK, "lock"), [Pin("torch", "2.13.0", (C,))]
    if problem:
        with pytest.raises(EngineError, match=problem):
            engine_locks.index_hashes(pins, target)
    else:
        assert engine_locks.index_hashes(pins, target) == {"torch": A}


def test_the_labs_own_wheels_are_hashed_as_they_are_made() -> None:
    own = engine_locks.own_wheels()
    assert set(own) == {"vllm==0.32.0+cpu", "vllm-simgpu==0.1.0"}
    lock = engine_locks.LOCKS / "lab-cp311-x86_64.txt"
    pins = {str(pin): pin.hashes for pin in parse_lock(lock.read_text(), str(lock))}
    assert {name: pins[name] for name in own} == {name: (digest,) for name, digest in own.items()}
