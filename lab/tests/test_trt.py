# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's image of TensorRT-LLM: one that the engine role takes for it, the same bytes each time."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import image as _image
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.tensorrt_llm import TENSORRT_LLM

ENGINE = Path(__file__).parents[1] / "engine"


@pytest.fixture(scope="module")
def trt() -> ModuleType:
    # a folder of programs, not a package
    sys.path.insert(0, str(ENGINE))
    try:
        return importlib.import_module("trt")
    finally:
        sys.path.remove(str(ENGINE))


def test_the_archive_is_one_image_and_the_same_each_time(trt: ModuleType, tmp_path: Path) -> None:
    lower = tmp_path / "lower"
    (lower / "usr" / "bin").mkdir(parents=True)
    (lower / "usr" / "bin" / "python3").write_text("")
    made = [trt.make(str(lower), str(tmp_path / f"{number}.tar")) for number in range(2)]
    assert made[0] == made[1]
    found = _image.read_archive(str(tmp_path / "1.tar"))
    assert (found.image, found.tags, found.architecture) == (made[0], [trt.NAME], "amd64")
    assert (tmp_path / "0.tar").read_bytes() == (tmp_path / "1.tar").read_bytes()
    assert [path.name for path in tmp_path.glob("*.work")] == []


def test_the_engine_role_takes_what_is_in_it(trt: ModuleType, tmp_path: Path) -> None:
    trt.make_program(str(tmp_path))
    program = tmp_path / "usr" / "local" / "bin" / "trtllm-serve"
    packages = next(tmp_path.glob("usr/local/lib/*/dist-packages"))
    done = subprocess.run(
        [sys.executable, "-"], input=_image.probe_program(), capture_output=True, text=True, check=True,
        env={"PATH": f"{program.parent}:/usr/bin", "PYTHONPATH": str(packages)},
    )  # fmt: skip
    probe = _image.read_probe(done.stdout)
    assert _image.check_probe(probe, "the image", engine=TENSORRT_LLM) == []
    assert probe["packages"]["tensorrt-llm"] == "1.3.0rc13"
    commands = _image.commands(probe, TENSORRT_LLM)
    assert commands["vllm"] == [str(program)]
    with pytest.raises(_image.EngineError, match=r"no TensorRT-LLM in this image \(no package named tensorrt-llm with"):
        _image.check_probe({**probe, "trtllm-serve": ""}, "the image", engine=TENSORRT_LLM)
    assert json.loads(json.dumps(probe))["ray_problem"] == ""
