# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program runs under a real Python, with packages that have the engine's shape."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.vllm_trial import PROGRAM

TORCH = "class cuda:\n    @staticmethod\n    def is_available():\n        return False\n"


def run(site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-", "imports"],
        input=PROGRAM,
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_imported_says_its_version(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    for name in ("vllm/engine/arg_utils.py", "vllm/v1/engine/async_llm.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    for name, version in (("vllm", "9.1.0"), ("torch", "2.0")):
        (tmp_path / f"{name}-{version}.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (tmp_path / f"{name}-{version}.dist-info" / "METADATA").write_text(metadata)
    done = run(tmp_path)
    assert json.loads(done.stdout.strip().splitlines()[-1]) == {
        **{"vllm": "9.1.0", "torch": "2.0", "gpu": "", "nccl": ""},
    }


def test_what_cannot_be_imported_ends_with_the_reason(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 1
    assert "No module named 'torch'" in done.stderr
