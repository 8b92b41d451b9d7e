# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each engine's program runs under a real Python, with packages that have the engine's shape."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import sglang_trial, vllm_trial

TORCH = "class cuda:\n    @staticmethod\n    def is_available():\n        return False\n"
#: engine -> its program, and the modules that it imports
ENGINES = {
    "vllm": (vllm_trial.PROGRAM, ("vllm/engine/arg_utils.py", "vllm/v1/engine/async_llm.py")),
    "sglang": (sglang_trial.PROGRAM, ("sglang/srt/server_args.py", "sglang/srt/entrypoints/engine.py")),
}
pytestmark = pytest.mark.parametrize("engine", ENGINES)


def run(program: str, site: Path) -> subprocess.CompletedProcess[str]:
    """Without the packages of this machine's Python, which may have an engine."""
    return subprocess.run(
        [sys.executable, "-S", "-", "imports"],
        input=program,
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_imported_says_its_version(engine: str, tmp_path: Path) -> None:
    program, modules = ENGINES[engine]
    (tmp_path / "torch.py").write_text(TORCH)
    for name in modules:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    for name, version in ((engine, "9.1.0"), ("torch", "2.0")):
        (tmp_path / f"{name}-{version}.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text(metadata)
    done = run(program, tmp_path)
    assert json.loads(done.stdout.strip().splitlines()[-1]) == {
        **{engine: "9.1.0", "torch": "2.0", "gpu": "", "nccl": ""},
    }


def test_what_cannot_be_imported_ends_with_the_reason(engine: str, tmp_path: Path) -> None:
    done = run(ENGINES[engine][0], tmp_path)
    assert done.returncode == 1
    assert "No module named 'torch'" in done.stderr
