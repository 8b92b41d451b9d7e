# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A load on GPUs: the program itself with a torch of a few lines, and what is read beside it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._measure import burn

#: as much of torch as the program uses; two "GPUs" if CARDS says so
TORCH = """
import os, time
class Matrix:
    def to(self, kind): return self
    def __matmul__(self, other): return self
class cuda:
    is_available = staticmethod(lambda: int(os.environ["CARDS"]) > 0)
    device_count = staticmethod(lambda: int(os.environ["CARDS"]))
    get_device_name = staticmethod(lambda device: f"card {device}")
    synchronize = staticmethod(lambda device: None)
bfloat16 = float32 = "kind"
def device(kind, number=0): return number
def rand(*size, device): return Matrix()
def mm(one, other, out): time.sleep(0.001)
"""


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.parametrize(("cards", "device", "names"), [("2", "cuda", ["card 0", "card 1"]), ("0", "cpu", ["CPU"])])
def test_every_gpu_is_loaded(
    torch: None, monkeypatch: pytest.MonkeyPatch, cards: str, device: str, names: list[str]
) -> None:
    monkeypatch.setenv("CARDS", cards)
    reading = {"sm_mhz": 2400.0, "watts": 60.0, "celsius": 70.0, "utilization": 99.0, "slowed": []}
    found = burn.run_burn([sys.executable], "", 0.8, read=lambda: [reading, {**reading, "sm_mhz": 650.0}])
    assert (found["device"], [gpu["name"] for gpu in found["gpus"]]) == (device, names)
    assert all(gpu["tflops"] > 0 and gpu["readings"] > 0 for gpu in found["gpus"])
    assert [gpu["sm_mhz"] for gpu in found["gpus"]] == [2400.0, 650.0][: len(names)]


def test_a_load_that_fails_says_why() -> None:
    program = "raise RuntimeError('CUDA error: out of memory')"
    found = burn.run_burn([sys.executable], "", 0.1, read=list, program=program)
    assert found == {"error": "the load ended with 1: RuntimeError: CUDA error: out of memory"}
    for said in ("[1]", "[" * 100_000 + "]" * 100_000):
        assert burn.read_burn_output(0, f"{burn.MARK}{said}\nlies\n") == {"error": "the load ended with 0: lies"}
    assert "cannot be run" in burn.run_burn(["/no/python"], "", 0.1, read=list)["error"]


def test_a_load_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(burn, "START", 0.5)
    found = burn.run_burn([sys.executable], "", 0.1, read=list, program="import time; time.sleep(600)")
    assert found["error"].startswith("no end after")


def test_the_load_goes_on_where_the_driver_says_nothing() -> None:
    samples: list[list[dict[str, Any]]] = [[], [{"sm_mhz": None, "watts": None, "celsius": None, "slowed": ["x"]}]]
    assert burn.summary(samples, 0) == {"readings": 1, "sm_mhz": None, "watts": None, "celsius": None, "slowed": ["x"]}
    assert burn.summary(samples, 1)["readings"] == 0
