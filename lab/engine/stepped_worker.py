# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lab only: a rank of vLLM whose steps take as long as a file says, as a prefill of a large model does.

Found by PYTHONPATH and chosen by vLLM's own argument: ``worker-cls: stepped_worker.SteppedWorker``.
The file holds seconds for each step with a long prompt, or ``wedge``, after which such a step never ends. Without the
file nothing is different. Short steps, a probe of one token among them, are never slowed down: a large model answers
those in a second, too.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Any

from vllm.platforms import current_platform

if current_platform.is_cuda():
    from vllm.v1.worker.gpu_worker import Worker
else:
    from vllm.v1.worker.cpu_worker import CPUWorker as Worker

STEP_FILE = os.environ.get("LAB_STEP_FILE", "/run/lab-step")
LONG_PROMPT = 32
#: a rank that waits for its GPU turns in circles; this one does so for a fifth of its time, for the lab is small
_BUSY, _IDLE = 0.01, 0.04


def wanted() -> str:
    with contextlib.suppress(OSError), open(STEP_FILE, encoding="ascii") as stream:
        return stream.read().strip()
    return ""


def hold(word: str) -> None:
    """Pass the time of one step; for ever where the word is ``wedge``, and then without any sign of life."""
    if word == "wedge":
        threading.Event().wait()
    end = time.monotonic() + float(word)
    while time.monotonic() < end:
        begun = time.monotonic()
        while time.monotonic() - begun < _BUSY:
            pass
        time.sleep(_IDLE)


class SteppedWorker(Worker):  # type: ignore[misc,unused-ignore]  # vLLM is not where mypy runs
    def execute_model(self, scheduler_output: Any) -> Any:
        word = wanted()
        if word and scheduler_output.total_num_scheduled_tokens >= LONG_PROMPT:
            hold(word)
        return super().execute_model(scheduler_output)
