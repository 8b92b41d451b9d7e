# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs inside modules on hosts and in tests:
# pylint: disable=ansible-bad-function

"""An engine that is installed beside the one in use is tried before that one stops: imports, the GPU, a tiny model.

What the trial takes is small, and its processes are the first that the kernel ends when memory runs out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import sglang_trial, vllm_trial
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.cuda_kernels import DEVICES, for_cpu
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError, same_version
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.versions import release
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.registry import DEFAULT
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.sglang import SGLANG
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.vllm import VLLM

#: memory that must be free for the imports, with a GPU's context, and for the tiny model
IMPORT_BYTES = 3 << 30
MODEL_BYTES = 8 << 30

CONTAINER = "sparkthor-trial"
#: Python of an environment of the role's, whose folder is named by its digest and a number
_ENVIRONMENT = r"(/.+/[0-9a-f]{16}\.\d+)/bin/python"

#: by the engine's name
PROGRAMS: Mapping[str, str] = {VLLM.name: vllm_trial.PROGRAM, SGLANG.name: sglang_trial.PROGRAM}
#: engines whose program can load a model
_LOADS = (VLLM.name,)

Runner = Callable[[Sequence[str], float, str], tuple[int, str, str]]


def _run(argv: Sequence[str], seconds: float, program: str) -> tuple[int, str, str]:
    return run_limited(list(argv), seconds, program)


def available() -> int:
    """Bytes of memory that the host can give."""
    with open("/proc/meminfo", encoding="ascii") as stream:
        rows = dict(line.split(":", 1) for line in stream)
    return int(rows["MemAvailable"].split()[0]) << 10


def attempt(
    command: Sequence[str], model: bool, seconds: float, free: int, runner: Runner = _run, engine: str = DEFAULT.name
) -> tuple[dict[str, Any], str]:
    """What the engine said, empty where it was not asked; and what was left out, with the reason."""
    if engine not in PROGRAMS:
        return {}, f"not tried: no trial of {engine} is known"
    if free < IMPORT_BYTES:
        return {}, f"not tried: only {free / 2**30:.1f} GiB of memory are free, and {IMPORT_BYTES >> 30} are needed"
    left_out = ""
    if model and free < MODEL_BYTES:
        model = False
        left_out = f"no model was tried: only {free / 2**30:.1f} GiB of memory are free, {MODEL_BYTES >> 30} are needed"
    if model and engine not in _LOADS:
        model = False
        left_out = f"no model was tried: of {engine} the import alone is"
    # all of its processes end with it
    limit = ["timeout", "--signal=KILL", str(int(seconds))]
    argv = [*limit, "choom", "-n", "1000", "--", "nice", "-n", "10", *command, "-", "model" if model else "imports"]
    # a client of Docker that was ended leaves its container, that of a run which was broken off as well
    leftover = [["docker", "rm", "--force", CONTAINER]] if CONTAINER in command else []
    for remove in leftover:
        runner(remove, 60, "")
    status, out, err = runner(argv, seconds + 10, PROGRAMS[engine])
    for remove in leftover:
        runner(remove, 60, "")
    for line in reversed(out.splitlines()):
        if status == 0 and line.startswith("{"):
            try:
                return foreign.parse_object(line), left_out
            except ValueError as error:
                what = f"what it says cannot be read: {error}"
                raise EngineError(
                    f"The new engine was tried, and {what}. The engine in use was left as it is."
                ) from None
    if status == 137:
        err = f"no answer within {seconds:.0f} s (engine_trial: false leaves the model out)"
    reason = [line for line in (err or out).strip().splitlines() if line.strip()][-1:] or [f"exit status {status}"]
    what = "a tiny model does not run with it" if model else "it cannot be imported"
    # nothing but an environment of ours is ever named for removal
    ours = re.fullmatch(_ENVIRONMENT, command[-1])
    raise EngineError(
        f"The new engine was tried, and {what}: {reason[0][:400]}. The engine in use was left as it is."
        + (f" If its files may be damaged: remove {ours[1]}, and the next run installs it anew." if ours else "")
    )


def check(found: Mapping[str, Any], versions: Mapping[str, str], kind: str, nccl: str) -> None:
    """Whether it is the engine that was meant, sees the GPU and brings an NCCL that will do. Raises EngineError.

    ``nccl`` is the least that the topology needs, empty where any will do.
    """
    for name in (*PROGRAMS, "ray"):
        wanted = versions.get(name, "")
        if found and wanted and not same_version(wanted, str(found.get(name, ""))):
            raise EngineError(f"The new engine says that it is {name} {found.get(name)}, and {wanted} was installed.")
    cpu = any(for_cpu(str(found.get(name, ""))) for name in PROGRAMS)
    if found and kind in DEVICES and not found.get("gpu") and not cpu:
        raise EngineError(
            f"The new engine sees no GPU on this {kind}: its torch {found.get('torch')} does not fit the driver. "
            "The engine in use was left as it is."
        )
    has = str(found.get("nccl") or "")
    if nccl and has and release(has) < release(nccl):
        raise EngineError(f"The new engine brings NCCL {has}, and this topology needs {nccl} or newer: choose another.")
