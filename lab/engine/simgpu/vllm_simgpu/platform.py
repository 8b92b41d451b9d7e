# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPU platform, booked by Ray under the resource name of a GPU."""

from __future__ import annotations

from vllm.platforms.cpu import CpuPlatform


class SimGpuPlatform(CpuPlatform):
    """Computes on the CPU, is placed like a GPU.

    With ``ray start --num-gpus=1`` on each host, vLLM asks Ray for the very placement group it asks for on real
    hardware: one bundle with one GPU for each rank.
    """

    ray_device_key: str = "GPU"
    # the small helpers vLLM compiles (vocabulary-parallel embedding) must not need a C++ compiler on the hosts
    simple_compile_backend: str = "eager"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "vllm_simgpu.communicator.NetworkCommunicator"
