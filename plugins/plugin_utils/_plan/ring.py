# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that are cabled one to the next, without a switch: what NCCL may do there, and which host gets which rank.

On a ring of three every host has a cable to every other. From four hosts on some have none in common, so NCCL must
connect nothing but the ring itself, ranks must lie along the cables, and only some splits can be served. On an open
line NCCL's ring does not close, and its tree chooses peers that no cable joins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

#: hosts in a row, each with a cable to the next; on the first of them the last one has a cable to the first
CHAINS: Final = ("ring", "line")
#: from so many hosts on some of a ring have no cable in common
OPEN: Final = 4
#: patches that keep NCCL from connecting a tree, by the variable that switches each on; stock NCCL knows neither
PATCHES: Final = ("NCCL_SKIP_TREE_CONNECT", "NCCL_SWITCHLESS_RING_ONLY")
#: makes the engine set NCCL_ALGO to a tree inside its process
BATCH_INVARIANT: Final = "VLLM_BATCH_INVARIANT"

_BOTH: Final = {
    "NCCL_ALGO": "Ring",
    "NCCL_CROSS_NIC": "1",
    "NCCL_MAX_NCHANNELS": "4",
    "NCCL_MIN_NCHANNELS": "4",
}
#: NCCL as it is: nothing is connected before an algorithm uses it, which 2.30.7 does only with cuMem, and no algorithm
#: but the ring is used. The listener offers both cages only while they are one merged device.
_STOCK: Final = {
    "NCCL_COLLNET_ENABLE": "0",
    "NCCL_CUMEM_ENABLE": "1",
    "NCCL_CUMEM_HOST_ENABLE": "0",
    "NCCL_GIN_ENABLE": "0",
    "NCCL_IB_MERGE_NICS": "1",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_PAT_ENABLE": "0",
    "NCCL_PROTO": "^LL128",
    "NCCL_RMA_DISABLE": "1",
    "NCCL_RUNTIME_CONNECT": "1",
    "NCCL_SHM_DISABLE": "1",
}
#: a library with one of the patches offers both cages itself
_PATCHED: Final = {
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_IB_MERGE_NICS": "0",
    "NCCL_P2P_LEVEL": "SYS",
    "NCCL_PROTO": "LL,LL128,Simple",
}


def environment(count: int, prefix: int, patch: str) -> dict[str, str]:
    """NCCL's variables on a ring of ``count`` hosts whose segments it tells apart by ``prefix`` bits."""
    env = {
        "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
        "NCCL_IB_SUBNET_PREFIX_LEN": str(prefix),
        "NCCL_IB_MERGE_NICS": "0",
        "NCCL_NET_PLUGIN": "none",
    }
    if count >= OPEN:
        env |= {**_BOTH, **_PATCHED, patch: "1"} if patch else {**_BOTH, **_STOCK}
    return env


#: every variable that only a ring needs
VARIABLES: Final = frozenset(
    [*environment(OPEN, 0, ""), *(name for one in PATCHES for name in environment(OPEN, 0, one))]
)


def refused(tensor: int, pipeline: int, hosts: int) -> str:
    """Why a ring of ``hosts``, each with one GPU, cannot carry a split; empty if it can."""
    if hosts < OPEN or tensor == hosts or tensor == 1 or (tensor, pipeline) == (2, 2):
        return ""
    if tensor == 2:
        return f"the {pipeline} stages of TP=2 would need cables that a ring of {hosts} does not have"
    return f"NCCL's ring over {tensor} hosts in a row does not close on a ring of {hosts}"


def rank_order(hosts: Sequence[str], tensor: int, pipeline: int, topology: str) -> list[str]:
    """The hosts by rank, so that ranks which talk to each other have a cable; the head stays the first.

    A whole ring, and stages of one rank each, follow the cables. Two pairs lie as 0, 1, 3, 2: the engine's groups are
    then {0, 1} and {2, 3} for a layer, {0, 2} and {1, 3} for the stages, and these are the four cables.
    """
    if topology == "ring" and len(hosts) == OPEN and (tensor, pipeline) == (2, 2):
        return [hosts[0], hosts[1], hosts[3], hosts[2]]
    return list(hosts)


def cost(tensor: int, pipeline: int, hosts: int) -> str:
    """What a split costs on a ring of so many hosts, in half a sentence."""
    if hosts < OPEN:
        return ""
    if tensor == hosts:
        return f"every all-reduce takes {2 * (hosts - 1)} steps from host to host round the ring"
    if tensor == 1:
        return f"a token passes {hosts} stages one after the other, each over one cable"
    return "each pair reduces in 2 steps over a cable of its own, and hands on to the other pair over the other two"


def serving_problem(
    topology: str, hosts: int, executor: str, environment_wanted: Mapping[str, Any]
) -> tuple[str, str] | None:
    """The variable and why a model cannot be served on this ring, with the fix; None where it can be."""
    if topology != "ring" or hosts < OPEN:
        return None
    if executor == "ray":
        return "vllm_serve_executor", (
            f"ray gives ranks to hosts in an order of its own, and on a ring of {hosts} ranks that talk to each other "
            "need a cable between them, which hosts across the ring do not have. Set vllm_serve_executor: mp, whose "
            "ranks follow the cables."
        )
    if str(environment_wanted.get(BATCH_INVARIANT) or "0") not in ("0", "", "False", "false"):
        return "vllm_serve_env", (
            f"{BATCH_INVARIANT} makes the engine choose NCCL's tree, which connects hosts that no cable of a ring of "
            f"{hosts} joins. Leave it out."
        )
    return None


def pair(fabric: Mapping[str, Mapping[str, Any]], hosts: Collection[str]) -> bool:
    """Whether these are two hosts of a ring or a line with a cable between them."""
    if len(hosts) != 2:
        return False
    one, other = hosts
    return any(link["peer"] == other for link in fabric[one]["links"])


def adapt(fabric: Mapping[str, dict[str, Any]], hosts: Sequence[str]) -> None:
    """Give hosts of a ring or a line that serve a model of their own their NCCL, in place.

    Two neighbours are a pair, with the cable between them alone. Others make no ring, so they use sockets.
    """
    if fabric[hosts[0]]["topology"] not in CHAINS or len(hosts) in (1, len(fabric)):
        return
    joined = pair(fabric, hosts)
    for host in hosts:
        entry = fabric[host]
        env = {name: value for name, value in entry["env"].items() if name not in VARIABLES}
        if joined:
            devices = [link["device"] for link in entry["links"] if link["peer"] in hosts]
            env.update(NCCL_NET="IB", NCCL_IB_DISABLE="0", NCCL_IB_HCA="=" + ",".join(devices))
            entry["profile"], entry["profile_reason"] = "roce", f"a cable joins {hosts[0]} and {hosts[1]}"
        else:
            env.pop("NCCL_IB_HCA", None)
            env.update(NCCL_NET="Socket", NCCL_IB_DISABLE="1")
            what = "no cable joins" if len(hosts) == 2 else "the cables make no closed ring of"
            entry["profile"], entry["profile_reason"] = "tcp", f"{what} {', '.join(hosts)}"
        entry["env"] = env
