# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import (
    Engine,
    EngineError,
    Target,
    read_engine,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import wheels

from tests.unit.engine_lock import locked, write_wheels

PINS = ["ray==2.60.0", "vllm==0.32.0", "uv==0.13.8"]
LOCK = locked(*PINS)
SPARK = Target("3.12", "aarch64", "2.39")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    (tmp_path / "lock.txt").write_text(LOCK)
    return read_engine(str(tmp_path / "lock.txt"))


class Index:
    """Stands in for pip: has some pins, writes their wheels where it is told to."""

    def __init__(self, *pins: str) -> None:
        self.pins = pins
        self.calls: list[list[str]] = []

    def run(self, argv: list[str], _timeout: float) -> tuple[int, str, str]:
        assert "--require-hashes" in argv
        listed = Path(next(word for word in argv if word.startswith("--requirement="))[14:]).read_text().splitlines()
        assert all(line in LOCK for line in listed), "pip is told every hash of the lock"
        asked = [line.split()[0] for line in listed]
        self.calls.append(asked)
        folder = next(word for word in argv if word.startswith("--dest=")).removeprefix("--dest=")
        for pin in asked:
            if pin not in self.pins:
                return 1, "", f"WARNING: x\nERROR: No matching distribution found for {pin}\n"
            write_wheels(Path(folder), pin)
        return 0, "", ""


def use(monkeypatch: pytest.MonkeyPatch, index: Index) -> Index:
    monkeypatch.setattr(wheels, "run_limited", index.run)
    return index


def test_missing_wheels_are_fetched_once(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    index = use(monkeypatch, Index(*PINS))
    folder = wheels.wheel_folder("", SPARK)
    assert folder == str(tmp_path / "cache" / "sparkthor" / "wheels" / "cp312-aarch64")
    first = wheels.prepare_wheels(engine, folder, SPARK, download=True)
    assert wheels.prepare_wheels(engine, folder, SPARK, download=True) == first
    assert index.calls == [PINS]
    assert first.unpacked() == 12


def test_all_that_cannot_be_had_is_named_at_once(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, Index("uv==0.13.8"))
    with pytest.raises(EngineError) as caught:
        wheels.prepare_wheels(engine, str(tmp_path / "wheels"), SPARK, download=True)
    message = str(caught.value)
    assert "for Python 3.12 on aarch64 (glibc 2.39): ray==2.60.0, vllm==0.32.0." in message
    assert "No matching distribution found for vllm==0.32.0" in message
    assert "uv==" not in message


def test_without_downloads_nothing_is_asked(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    index = use(monkeypatch, Index(*PINS))
    with pytest.raises(EngineError, match=r"engine_wheel_dir: .* lacks wheels .*ray==2\.60\.0"):
        wheels.prepare_wheels(engine, str(tmp_path / "wheels"), SPARK, download=False)
    assert index.calls == []


def test_a_wheel_that_was_swapped_is_refused(tmp_path: Path, engine: Engine) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    write_wheels(folder, *PINS)
    wheels.prepare_wheels(engine, str(folder), SPARK, download=False)
    (folder / "uv-0.13.8-py3-none-any.whl").write_bytes(b"#!/bin/sh\n")
    digest = hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    with pytest.raises(EngineError, match=rf"SHA-256 .*lock\.txt does not name: uv-.*\.whl \({digest}\)\. Remove"):
        wheels.prepare_wheels(engine, str(folder), SPARK, download=True)


def test_an_index_with_another_file_is_told(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    # as pip 24.2 prints it
    said = (
        "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package "
        "versions, please update the hashes. Otherwise, examine the package contents carefully; someone may have "
        "tampered with them.\n    ray==2.60.0 from https://x/ray-2.60.0-py3-none-any.whl (from -r l.txt (line 1)):\n"
        "        Expected sha256 aa\n             Got        bb\n\n"
    )
    monkeypatch.setattr(wheels, "run_limited", lambda argv, limit: (1, "", said))
    with pytest.raises(EngineError, match=r"not what the lock names: .*ray==2\.60\.0 from .*Expected sha256 aa Got bb"):
        wheels.prepare_wheels(engine, str(tmp_path / "wheels"), SPARK, download=True)


def test_a_lock_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"engine_requirements: .*none\.txt: No such file"):
        read_engine(str(tmp_path / "none.txt"))


NODE = {"python": {"version": "3.12.3"}, "arch": "aarch64", "os": {"id": "ubuntu", "version": "24.04"}}


def test_a_target_from_facts() -> None:
    assert wheels.target_of(NODE) == SPARK
    assert wheels.target_of({**NODE, "glibc": "2.31"}) == Target("3.12", "aarch64", "2.31")
    assert wheels.target_of({**NODE, "os": {"id": "arch", "version": ""}}) is None
    assert wheels.target_of({}) is None


def test_what_was_probed_wins() -> None:
    probed = {"version": "3.11.2", "machine": "x86_64", "glibc": "2.36"}
    assert wheels.target_of(NODE, probed) == Target("3.11", "x86_64", "2.36")
