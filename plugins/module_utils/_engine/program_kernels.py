# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an engine that is a few programs can compute on the GPU of its host, read from the programs themselves.

Standard library only: this runs on the hosts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.cuda_kernels import DEVICES, Kernels, of_file
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.registry import ENGINES


def programs_of(venv: str) -> list[str]:
    """The paths of an environment's engine, where that is nothing but programs."""
    paths = (os.path.join(venv, "bin", name) for one in ENGINES.values() for name in one.programs)
    return [path for path in paths if os.path.exists(path)]


def kernels_of(venv: str) -> dict[str, Kernels]:
    """What each of them carries, also where that is nothing."""
    return {os.path.basename(path): of_file(path) for path in programs_of(venv)}


def unfit(kind: str, found: Mapping[str, Kernels]) -> str:
    """Why a build with CUDA cannot compute on a host of this kind, with the fix; empty if it can."""
    device, made = DEVICES.get(kind), _made(found)
    wrong = [f"{name} carries kernels for {one.text}" for name, one in made.items() if device and not one.serve(device)]
    if not wrong:
        return ""
    return (
        f"{'; '.join(wrong)}, and a {kind} needs sm_{device}. Give engine_programs a build with "
        f"CMAKE_CUDA_ARCHITECTURES={device}. The engine in use was left as it is."
    )


def slow(kind: str, found: Mapping[str, Kernels]) -> list[str]:
    """That a build has no kernels at all."""
    if kind not in DEVICES or _made(found):
        return []
    return [f"{', '.join(found)}: a build without CUDA, which computes on the CPU of a {kind}"]


def _made(found: Mapping[str, Kernels]) -> dict[str, Kernels]:
    return {name: kernels for name, kernels in found.items() if kernels.machine or kernels.ptx}
