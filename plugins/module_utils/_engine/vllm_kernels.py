# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of vLLM's libraries a model calls, and whether those have kernels for a host's GPU."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.cuda_kernels import DEVICES, Kernels, for_cpu

#: who calls a library of vLLM 0.20 to 0.33, by its name up to the first dot.  Others have a substitute on these GPUs
#: or are for other ones (FlashMLA, FlashAttention 3), and vLLM asks for the GPU before it calls them.
EVERY, EXPERTS, KDA = "every", "experts", "kda"
_WORDS = {
    EVERY: "every model",
    EXPERTS: "a model with experts",
    KDA: "a model with Kimi's linear attention (Kimi, GLM-5.3-Flash)",
}
CALLERS = {
    "_C": EVERY,
    "_C_stable_libtorch": EVERY,
    "_moe_C": EXPERTS,
    "_moe_C_stable_libtorch": EXPERTS,
    "_flashkda_C": KDA,
}
#: major versions of GPUs on which vLLM calls a library; on others it takes Triton
CALLED_ON = {"_flashkda_C": (9, 10, 12)}


def _called(name: str, device: int, calls: Collection[str]) -> bool:
    caller = CALLERS.get(name)
    return caller == EVERY or (caller in calls and device // 10 in CALLED_ON.get(name, (device // 10,)))


def kernel_problem(kind: str, version: str, found: Mapping[str, Kernels], calls: Collection[str] = ()) -> str:
    """Why this build cannot serve on a host of this kind, with the fix; empty if it can, or if it is a CPU build.

    ``found`` are its libraries, ``calls`` says what the model calls beside what every model does (EXPERTS, KDA).  Of a
    build that has none of the libraries that every model calls, the fullest one is judged.
    """
    device = DEVICES.get(kind)
    if device is None or for_cpu(version):
        return ""
    if not any(CALLERS.get(name) == EVERY for name in found):
        fullest = max(found.values(), key=lambda kernels: len(kernels.machine) + len(kernels.ptx), default=Kernels())
        lacking = [] if fullest.serve(device) else [f"vLLM {version} carries kernels for {fullest.text}"]
    else:
        lacking = [
            f"library {name} of vLLM {version}, which {_WORDS[CALLERS[name]]} calls, carries kernels for {kernels.text}"
            for name, kernels in sorted(found.items())
            if _called(name, device, calls) and not kernels.serve(device)
        ]
    return f"{'; '.join(lacking)}, and a {kind} needs sm_{device}" if lacking else ""


def kernel_notes(kind: str, version: str, found: Mapping[str, Kernels], calls: Collection[str] = ()) -> list[str]:
    """Libraries that lack this host's GPU, and that the model does not call: what could not be served instead."""
    device = DEVICES.get(kind)
    if device is None or for_cpu(version):
        return []
    return [
        f"library {name} of vLLM {version} carries kernels for {kernels.text}, not for sm_{device} of a {kind}: "
        f"{_WORDS[CALLERS[name]]} cannot be served with it; the model that is served does not call it"
        for name, kernels in sorted(found.items())
        if name in CALLERS
        and _called(name, device, (EXPERTS, KDA))
        and not _called(name, device, calls)
        and not kernels.serve(device)
    ]
