# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lab only: a vLLM platform plugin that lets a host without a GPU stand in for one with a GPU."""

from __future__ import annotations


def register() -> str:
    """Entry point ``vllm.platform_plugins``: the platform's name; nothing of vLLM is imported before it is wanted."""
    return "vllm_simgpu.platform.SimGpuPlatform"
