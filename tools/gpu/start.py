# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the seconds of an engine's start go, by what its journal says when.  Nothing here touches a host."""

from __future__ import annotations

import re
from datetime import datetime

BEGIN = "Starting sparkthor-vllm.service"
BOOT = "boot of the hosts"
#: a step, and the words that end it, in the order in which they come
STEPS = (
    ("gate: Ray is whole", r"\d+ of \d+ nodes, \d+ of \d+ GPUs on "),
    ("page cache dropped on all hosts", r"Started sparkthor-vllm\.service"),
    ("API server: imports", r"APIServer.*\bversion \d"),
    ("API server: model and arguments", r"Using max model len"),
    ("engine core: imports", r"Initializing a V1 LLM engine"),
    ("Ray's workers: start, imports", r"vLLM is using nccl"),
    ("NCCL, weights", r"Model loading took"),
    ("torch.compile", r"torch\.compile took"),
    ("graph capture", r"Graph capturing finished"),
    ("KV cache, warm-up of kernels", r"init engine \("),
    ("API", r"Application startup complete"),
)
_PRECISE = re.compile(r"^[A-Z][a-z]{2} +\d+ (\d\d:\d\d:\d\d\.\d+) ")
_UNIX = re.compile(r"^(\d{9,}\.\d+) ")


def moment(line: str) -> float | None:
    """When a line of ``journalctl -o short-unix`` or ``-o short-precise`` was written, in seconds."""
    if match := _UNIX.match(line):
        return float(match[1])
    if match := _PRECISE.match(line):
        at = datetime.strptime(match[1], "%H:%M:%S.%f")
        return at.hour * 3600 + at.minute * 60 + at.second + at.microsecond / 1e6
    return None


def steps(journal: str, on: float | None = None) -> list[tuple[str, float]]:
    """The steps of the first start in a journal with their seconds; what an engine skips takes none.

    ``on``: when the hosts got their power, for a journal in ``-o short-unix``.
    """
    stages: list[tuple[str, float]] = []
    last, place = None, 0
    for line in journal.splitlines():
        now = moment(line)
        if now is None:
            continue
        if last is None:
            last = now if BEGIN in line else None
            if last is not None and on is not None:
                stages.append((BOOT, round(last - on, 1)))
            continue
        for number in range(place, len(STEPS)):
            if re.search(STEPS[number][1], line):
                stages.append((STEPS[number][0], round(now - last, 1)))
                last, place = now, number + 1
                break
        if place == len(STEPS):
            break
    return stages
