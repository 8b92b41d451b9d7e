# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether several ranks of one communicator may share GPU 0, as hosts of other names: shared.py [RANKS]

Half a minute before clusters are deployed that need it. Run by root with a Python that has torch; exit status 1: no.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

#: as inventories/gpu has it
NCCL = {
    "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0",
    "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo", "NCCL_DEBUG": "WARN",
}  # fmt: skip
_HOST = 'hostname "$1" && shift && exec "$@"'
LIMIT = 120.0
PORT = 29555


def words(number: int, ranks: int) -> list[str]:
    """A rank in a name space in which the host has a name of its own."""
    program = [sys.executable, os.path.abspath(__file__), "rank", str(number), str(ranks)]
    return ["unshare", "--uts", "bash", "-c", _HOST, "shared", f"rank-{number}", *program]


def rank(number: int, ranks: int) -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl", f"tcp://127.0.0.1:{PORT}", rank=number, world_size=ranks)
    torch.cuda.set_device(0)
    link = torch.full((4096,), float(number), device="cuda")
    dist.all_reduce(link)
    torch.cuda.synchronize()
    if link[0].item() != sum(range(ranks)):
        raise SystemExit(f"rank {number}: the sum is {link[0].item()}")
    begun = time.monotonic()
    for _each in range(20):
        dist.all_reduce(link)
    torch.cuda.synchronize()
    if number == 0:
        print(f"{ranks} ranks share GPU 0: an all-reduce of 16 KiB takes {50 * (time.monotonic() - begun):.1f} ms")
    dist.destroy_process_group()


def main(argv: list[str]) -> int:
    if argv[:1] == ["rank"]:
        rank(int(argv[1]), int(argv[2]))
        return 0
    ranks = int(argv[0]) if argv else 3
    running = [subprocess.Popen(words(number, ranks), env={**os.environ, **NCCL}) for number in range(ranks)]
    end, status = time.monotonic() + LIMIT, 0
    for link in running:
        try:
            status = link.wait(max(0.1, end - time.monotonic())) or status
        except subprocess.TimeoutExpired:
            status = 1
    for link in running:
        if link.poll() is None:
            link.kill()
    if status:
        print("NCCL does not let ranks share this GPU: deploy no cluster on it", file=sys.stderr)
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
