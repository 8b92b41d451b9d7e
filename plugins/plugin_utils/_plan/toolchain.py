# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine compiles at run time on a host, and whether the host has what that takes.

An image brings its own. From a venv, Triton compiles a small launcher with the host's C compiler and Python's headers,
and FlashInfer compiles kernels with nvcc unless its kernels are installed as wheels. Without these the first start
fails after minutes of loading, so a host is checked before anything is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.versions import release

#: the first CUDA whose nvcc knows the GPU (release notes of CUDA 12.9 and 13.0): sm_121, sm_110
KNOWS: Mapping[str, tuple[str, str]] = {"spark": ("12.9", "sm_121"), "thor": ("13.0", "sm_110")}
#: the first NCCL that a ring works with (NCCL_IB_SUBNET_AWARE_ROUTING; NVIDIA's guide for three Sparks)
RING_NCCL = "2.30.7"
#: wheels with FlashInfer's kernels, without which it compiles them
_KERNELS = ("flashinfer-cubin", "flashinfer-jit-cache")
_OTHER_WAY = "or use the engine in a container (engine_runtime: container), which brings its own"


def _lacking(node: Mapping[str, Any], lock: Collection[str]) -> list[str]:
    """Which of compiler and headers a host lacks for what its lock installs."""
    tools = node.get("toolchain")
    if tools is None or node.get("kind") not in KNOWS or "triton" not in lock:
        return []
    named = {"C compiler": tools.get("cc"), "Python headers": tools.get("python_headers")}
    return [name for name, there in named.items() if not there]


def packages(node: Mapping[str, Any], lock: Collection[str], wanted: list[str]) -> list[str]:
    """Packages of the distribution that the host is to get for it."""
    return wanted if _lacking(node, lock) and (node.get("binaries") or {}).get("apt-get") else []


def problems(node: Mapping[str, Any], lock: Collection[str], wanted: list[str]) -> list[str]:
    """Why the engine would not start from a venv on this host, with the fix; empty where it would or nobody looked."""
    findings = []
    lacking = _lacking(node, lock)
    if lacking and not packages(node, lock, wanted):
        findings.append(
            f"engine_build_packages: this host has no {' and no '.join(lacking)}, with which Triton compiles at the "
            f"first start; install them (sudo apt-get install gcc libc6-dev python3-dev), {_OTHER_WAY}"
        )
    tools = node.get("toolchain")
    if tools is None or "flashinfer-python" not in lock or all(name in lock for name in _KERNELS):
        return findings
    if node.get("kind") in KNOWS:
        least, target = KNOWS[node["kind"]]
        cuda = str(tools.get("cuda") or "")
        if not tools.get("nvcc"):
            what = "this host has no nvcc, with which FlashInfer compiles its kernels"
        elif cuda and release(cuda) < release(least):
            what = f"nvcc of CUDA {cuda} on this host does not know its GPU ({target} came with {least})"
        else:
            return findings
        fix = f"install NVIDIA's CUDA toolkit {least} or newer in /usr/local/cuda (package cuda-toolkit-13-0)"
        findings.append(f"engine_toolchain_check: {what}; {fix}, {_OTHER_WAY}")
    return findings


def ring_problems(topology: str, lock: Mapping[str, str]) -> list[str]:
    """A lock whose NCCL would hang on a ring; verify reads the installed one."""
    libraries = {name: version for name, version in lock.items() if name.startswith("nvidia-nccl-cu")}
    if topology != "ring":
        return []
    return [
        f"engine_requirements: it pins {name}=={version}, and a ring needs NCCL {RING_NCCL} or newer, which routes by "
        f"subnet; use a lock with that"
        for name, version in libraries.items()
        if release(version) < release(RING_NCCL)
    ]
