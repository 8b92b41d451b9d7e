# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The installed vLLM's own specification code still says what tests/truth/specs.json keeps of it."""

from __future__ import annotations

import subprocess
import sys

from tests.integration.conftest import TOP


def test_vllm_answers_as_kept_and_as_planned() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.judge"], cwd=TOP, capture_output=True, text=True, timeout=3000, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
