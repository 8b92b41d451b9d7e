# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NCCL does on a ring of four hosts without a switch: python -m tools.gpu.ring [--python PYTHON] [--to FILE]

Four name spaces stand in for hosts, a veth pair for each cable, with no route across the ring; the rendezvous has a
network of its own. NCCL talks over sockets, so what is shown is which connections it makes, not RoCE and no speed.
Each case has name spaces of its own, and all run at once. Ranks share GPUs where there are fewer than four.
Run by root; PYTHON is one that has torch.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import ring

TOP = Path(__file__).resolve().parents[2]

HOSTS = 4
#: seconds for a case, and for the other ranks once one has failed
LIMIT, AFTER = 90.0, 6.0
#: by place on the ring; a cable's end is "right" towards the next host and "left" towards the one before
CONTROL, FABRIC = "10.99.0.{}", "10.98.0.{}"
#: hosts of one machine talk as if they were four, and multicast over NVLink can stall GPUs that others share
BASE = {
    "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0",
    "NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_FAMILY": "AF_INET", "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,BOOTSTRAP,NET,ENV,TUNING",
}  # fmt: skip
RENDERED = ring.environment(HOSTS, 30, "")


@dataclass(frozen=True)
class Case:
    name: str
    env: Mapping[str, str]
    #: whether every collective must come out right
    whole: bool
    #: the place on the ring of each rank
    order: Sequence[int] = tuple(range(HOSTS))
    #: ranks of the groups that reduce; else all of them
    groups: Sequence[Sequence[int]] = field(default=())


_SPLIT = ((0, 1), (2, 3), (0, 2), (1, 3))
CASES = (
    Case("NCCL without settings", {}, False),
    Case("NCCL_ALGO=Ring alone, connected at the start", {"NCCL_ALGO": "Ring", "NCCL_RUNTIME_CONNECT": "0"}, False),
    Case("as rendered, without cuMem", {**RENDERED, "NCCL_CUMEM_ENABLE": "0"}, False),
    Case("as rendered", RENDERED, True),
    Case("as rendered, ranks 0, 2, 1, 3 along the ring", RENDERED, False, (0, 2, 1, 3)),
    Case("TP=2 × PP=2, ranks 0, 1, 3, 2 along the ring", RENDERED, True, (0, 1, 3, 2), _SPLIT),
    Case("TP=2 × PP=2, ranks 0, 1, 2, 3 along the ring", RENDERED, False, (0, 1, 2, 3), _SPLIT),
)


def commands(tag: str, hosts: int = HOSTS) -> list[str]:
    """Lines for ``ip -batch``: the hosts' name spaces, their cables, and the network of the rendezvous."""
    lines = [f"netns add {tag}{name}" for name in ("s", *range(hosts))]
    lines += [f"-n {tag}s link add bridge type bridge", f"-n {tag}s link set bridge up"]
    for here in range(hosts):
        there = (here + 1) % hosts
        lines += [
            f"link add ctl0 netns {tag}{here} type veth peer name p{here} netns {tag}s",
            f"-n {tag}s link set p{here} master bridge up",
            f"link add right netns {tag}{here} type veth peer name left netns {tag}{there}",
        ]
    for here in range(hosts):
        of, own = f"-n {tag}{here}", FABRIC.format(here + 1)
        lines += [f"{of} link set {name} up" for name in ("lo", "ctl0", "right", "left")]
        lines += [f"{of} addr add {CONTROL.format(here + 1)}/24 dev ctl0", f"{of} addr add {own}/32 dev right"]
        for name, there in (("right", (here + 1) % hosts), ("left", (here - 1) % hosts)):
            lines.append(f"{of} route add {FABRIC.format(there + 1)}/32 dev {name} src {own}")
    return lines


def lay(tag: str) -> None:
    for line in commands(tag):
        subprocess.run(["ip", *line.split()], check=True, capture_output=True, text=True)


def clear(tag: str) -> None:
    for name in ("s", *range(HOSTS)):
        subprocess.run(["ip", "netns", "del", f"{tag}{name}"], check=False, capture_output=True)


def carried(tag: str) -> list[float]:
    """MiB that each host sent over its right and its left cable."""
    found = []
    for here in range(HOSTS):
        for name in ("right", "left"):
            words = ["ip", "-n", f"{tag}{here}", "-s", "-j", "link", "show", "dev", name]
            told = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
            found.append(round(told[0]["stats64"]["tx"]["bytes"] / 2**20, 1))
    return found


def judged(case: Case, results: Sequence[Mapping[str, Any] | None], texts: Sequence[str]) -> dict[str, Any]:
    """What the ranks came to; the reason is the first word of NCCL's own."""
    whole = all(one is not None and not one.get("error") for one in results)
    warned = re.compile(r"NCCL WARN (.*)")
    reasons = [match[1] for text in texts for match in warned.finditer(text)]
    errors = [str(one["error"]) for one in results if one and one.get("error")]
    silent = [number for number, one in enumerate(results) if one is None]
    done = [one["done"] for one in results if one]
    return {
        "case": case.name, "wanted": case.whole, "whole": whole, "as_wanted": whole == case.whole,
        "done": min(done, key=len) if done else [], "reasons": sorted(set(reasons))[:4],
        "errors": sorted(set(errors))[:2], "hung": silent, "nccl": next((one["nccl"] for one in results if one), ""),
    }  # fmt: skip


def run(case: Case, number: int, python: str, logs: Path) -> dict[str, Any]:
    tag, begun = f"ring{number}-", time.monotonic()
    clear(tag)
    try:
        lay(tag)
        running = []
        for rank, place in enumerate(case.order):
            words = ["ip", "netns", "exec", f"{tag}{place}", python, str(Path(__file__).with_name("ring_rank.py"))]
            words += [str(rank), str(place), CONTROL.format(case.order[0] + 1), json.dumps(case.groups)]
            env = {**os.environ, **BASE, **case.env, "NCCL_HOSTID": f"host-{place}"}
            log = (logs / f"{number}-{rank}.log").open("w", encoding="utf-8")
            running.append(subprocess.Popen(words, env=env, stdout=log, stderr=subprocess.STDOUT))
            log.close()
        end = begun + LIMIT
        while time.monotonic() < end and any(one.poll() is None for one in running):
            if any(one.poll() for one in running):
                end = min(end, time.monotonic() + AFTER)
            time.sleep(0.2)
        for one in running:
            if one.poll() is None:
                one.kill()
            one.wait()
        texts = [(logs / f"{number}-{rank}.log").read_text(encoding="utf-8") for rank in range(HOSTS)]
        found = judged(case, [told(text) for text in texts], texts)
        return {**found, "sent_mib": carried(tag), "seconds": round(time.monotonic() - begun, 1)}
    finally:
        clear(tag)


def told(text: str) -> dict[str, Any] | None:
    """The last line of a rank that is its result."""
    for line in reversed(text.splitlines()):
        if line.startswith("RING "):
            found: dict[str, Any] = json.loads(line[len("RING ") :])
            return found
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu.ring", description=__doc__)
    parser.add_argument("--python", default="python3", help="one that has torch")
    parser.add_argument("--to", type=Path, help="a file for the results, beside which the ranks' logs are kept")
    options = parser.parse_args()
    target = options.to or TOP / ".lab" / "results" / "gpu" / "ring.json"
    logs = target.with_suffix(".logs")
    logs.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(CASES)) as pool:
        work = [pool.submit(run, case, number, options.python, logs) for number, case in enumerate(CASES)]
        found = [one.result() for one in work]
    for one in found:
        print(json.dumps(one), flush=True)
    target.write_text(json.dumps({"date": time.strftime("%Y-%m-%d"), "cases": found}, indent=1), encoding="utf-8")
    return 0 if all(one["as_wanted"] for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
