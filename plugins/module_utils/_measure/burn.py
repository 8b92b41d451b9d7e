# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load every GPU of a host for a while by the installed engine's torch, and read clock, power and temperature.

Where torch sees no GPU its CPUs multiply smaller matrices, so that simulated hosts take the same way.  Standard library
only.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._measure import collective
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import gpu_state

MARK = "SPARKTHOR-BURN "
#: seconds for torch to be imported and CUDA to come up
START = 120.0
#: between two readings; the first quarter of the load is not counted, because clocks still rise
EVERY, RISING = 2.0, 0.25

#: read by the engine's Python from standard input, so it can import nothing of ours
PROGRAM = r"""
import json, sys, threading, time
import torch

seconds = float(sys.argv[1])
gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
size, kind = (8192, torch.bfloat16) if gpus else (512, torch.float32)
found = [None] * max(1, gpus)
go = threading.Barrier(len(found))

def load(number):
    device = torch.device("cuda", number) if gpus else torch.device("cpu")
    wait = (lambda: torch.cuda.synchronize(device)) if gpus else (lambda: None)
    one, other = (torch.rand(size, size, device=device).to(kind) for _ in range(2))
    result = one @ other
    wait()
    go.wait()
    if number == 0:
        print("SPARKTHOR-BURN {}", flush=True)
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        for _ in range(8):
            torch.mm(one, other, out=result)
        wait()
        count += 8
    spent = time.perf_counter() - begun
    name = torch.cuda.get_device_name(device) if gpus else "CPU"
    found[number] = {"name": name, "tflops": 2 * size ** 3 * count / spent / 1e12}

threads = [threading.Thread(target=load, args=(number,)) for number in range(len(found))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if None in found:
    sys.exit(1)
print("SPARKTHOR-BURN " + json.dumps({"device": "cuda" if gpus else "cpu", "gpus": found}), flush=True)
"""


def summary(samples: Sequence[Sequence[dict[str, Any]]], number: int) -> dict[str, Any]:
    """Of one GPU's readings under load: median clock and power, highest temperature, reasons that held mostly."""
    readings = [sample[number] for sample in samples if number < len(sample)]
    result: dict[str, Any] = {"readings": len(readings)}
    for key, pick in (("sm_mhz", statistics.median), ("watts", statistics.median), ("celsius", max)):
        values = [reading[key] for reading in readings if reading.get(key) is not None]
        result[key] = round(float(pick(values)), 1) if values else None
    reasons = [reason for reading in readings for reason in reading.get("slowed") or ()]
    result["slowed"] = sorted({reason for reason in reasons if 2 * reasons.count(reason) > len(readings)})
    return result


def read_burn_output(status: int, out: str) -> dict[str, Any]:
    """What the program prints last, or an error."""
    for line in reversed(out.splitlines()):
        if line.startswith(MARK):
            with contextlib.suppress(ValueError):
                found = foreign.parse_object(line[len(MARK) :])
                if found:
                    return found
    return {"error": f"the load ended with {status}: {collective.reason(out)}"}


def run_burn(
    engine: Sequence[str],
    user: str,
    seconds: float,
    after: Sequence[str] = (),
    read: Callable[[], list[dict[str, Any]]] | None = None,
    program: str = PROGRAM,
) -> dict[str, Any]:
    """Load this host's GPUs for ``seconds``: ``device`` (cuda or cpu) and ``gpus`` with name, tflops and a summary.

    ``engine``, ``user`` and ``after`` are as for ``collective.run_rank``. Never raises over what the load does.
    """
    ask = read or (lambda: gpu_state.read(lambda argv: run_limited(argv, 5.0)))
    samples: list[tuple[float, list[dict[str, Any]]]] = []
    over = threading.Event()

    def sample() -> None:
        while not over.wait(min(EVERY, seconds / 8)):
            samples.append((time.monotonic(), ask()))

    reader = threading.Thread(target=sample, daemon=True)
    reader.start()
    try:
        status, out = collective.run_program(
            engine, user, [str(seconds)], program, {"PYTHONUNBUFFERED": "1"}, seconds + START, after
        )
    except collective.ProgramError as error:
        return {"error": str(error)}
    finally:
        ended = time.monotonic()
        over.set()
        reader.join(10)
    found = read_burn_output(status, out)
    loaded = [reading for at, reading in samples if ended - (1 - RISING) * seconds <= at <= ended]
    for number, gpu in enumerate(found.get("gpus") or ()):
        gpu.update(summary(loaded, number))
    return found
