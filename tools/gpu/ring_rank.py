# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rank of ring.py: ring_rank.py RANK PLACE HEAD GROUPS, run by a Python that has torch.

NCCL's rendezvous is brought up on the control network first; what it is asked after that goes over the cables.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

RANKS, PORT = 4, 29600
#: elements of an all-reduce: 8 B, 64 KiB, 16 MiB
SIZES = (2, 16384, 4 << 20)


def collectives(dist: Any, torch: Any, ranks: list[int], group: Any, done: list[str]) -> None:
    """Each with its result checked; ``done`` says how far it came."""
    own, world = dist.get_rank(), len(ranks)
    total = float(sum(one + 1 for one in ranks))
    where = "" if world == RANKS else f" of {ranks}"

    def right(name: str, tensor: Any, wanted: Any) -> None:
        torch.cuda.synchronize()
        if not bool((tensor == wanted).all()):
            raise ValueError(f"{name}{where}: wrong values")
        done.append(f"{name}{where}")

    for size in SIZES:
        one = torch.full((size,), float(own + 1), device="cuda")
        dist.all_reduce(one, group=group)
        right(f"all-reduce {4 * size} B", one, total)
    size = SIZES[1]
    one = torch.full((size,), float(own + 1), device="cuda")
    many = torch.empty(size * world, device="cuda")
    dist.all_gather_into_tensor(many, one, group=group)
    right("all-gather", many.view(world, size)[:, 0], torch.tensor([float(rank + 1) for rank in ranks], device="cuda"))
    part = torch.empty(size, device="cuda")
    dist.reduce_scatter_tensor(part, torch.full((size * world,), float(own + 1), device="cuda"), group=group)
    right("reduce-scatter", part, total)
    dist.broadcast(one, src=ranks[0], group=group)
    right("broadcast", one, float(ranks[0] + 1))


def main(rank: int, place: int, head: str, groups: list[list[int]]) -> int:
    import torch
    import torch.distributed as dist

    result: dict[str, Any] = {"done": [], "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    try:
        torch.cuda.set_device(place % torch.cuda.device_count())
        os.environ["NCCL_SOCKET_IFNAME"] = "=ctl0"
        torch.cuda.nccl.unique_id()
        os.environ["NCCL_SOCKET_IFNAME"] = "=right"
        store = dist.TCPStore(head, PORT, RANKS, rank == 0)
        dist.init_process_group("nccl", store=store, rank=rank, world_size=RANKS)
        made = [(ranks, dist.new_group(ranks)) for ranks in groups]
        for ranks, group in made or [(list(range(RANKS)), dist.group.WORLD)]:
            if rank in ranks:
                collectives(dist, torch, ranks, group, result["done"])
        # what the GPU has done may not have left the host yet
        store.set(f"ended-{rank}", "yes")
        store.wait([f"ended-{other}" for other in range(RANKS)], timedelta(seconds=30))
    except Exception as error:  # whatever it is, it is the result
        result["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
    print("RING " + json.dumps(result), flush=True)
    if rank == 0:
        time.sleep(1)  # the others ask it whether all have ended
    # no orderly end: another rank may hang
    os._exit(1 if result.get("error") else 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
