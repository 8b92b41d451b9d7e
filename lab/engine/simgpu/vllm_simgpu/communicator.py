# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks talk over the network only, as they must when each has a host of its own."""

from __future__ import annotations

from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator


class NetworkCommunicator(CpuCommunicator):
    def _all_group_ranks_share_shm_group_name(self) -> bool:
        """Never the shared-memory path: hosts of the lab have equal names for theirs but do not share it."""
        return False
