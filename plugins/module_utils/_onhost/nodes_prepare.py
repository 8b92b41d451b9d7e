# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in the engine's unit:
# pylint: disable=ansible-bad-function
"""Have every node of the Ray cluster drop its page cache before the engine loads, beside its first imports.

Run by the engine's Python as the serving user.  Ray is the channel: a task pinned to each node asks that node's own
system, through a file that sparkthor-drop-caches.path watches, so that nothing here needs root.  A node that cannot is
named and does not hold up the start.

With ``--hang`` the other nodes keep what their ranks do instead (``hang``), before the watchdog ends a hung engine.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import hang

REQUEST = "/run/sparkthor/requests/drop-caches"
DONE = "/run/sparkthor/caches-dropped"
PATIENCE = 20.0
#: the watchdog waits a little longer
HANG_PATIENCE = hang.DEADLINE - 2.0
#: seconds for nodes that answer after that
LATE = 30.0
#: seconds for which the head's page cache, dropped before the gate, counts as dropped: the engine reads its modules
RECENT = 60.0


def request_task() -> Callable[[str, str, float, float], str]:
    """What runs on each node: (request, done, seconds, recent) -> why what was asked for was not done, or nothing.

    What was done less than ``recent`` seconds ago is not done again. The function is made here, with
    its imports inside, because Ray sends a local function by its code: its workers do not have this package on their
    path.
    """

    def ask(request: str, done: str, patience: float, recent: float) -> str:
        import time

        def stamp() -> int:
            try:
                return os.stat(done).st_mtime_ns
            except OSError:
                return 0

        before = stamp()
        if 0 <= time.time() - before / 1e9 < recent:
            return ""
        try:
            with open(request, "w", encoding="ascii") as stream:
                stream.write(f"{time.time()}\n")
        except OSError as error:
            return f"{request}: {error.strerror}"
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if stamp() != before:
                return ""
            time.sleep(0.1)
        return f"sparkthor-{os.path.basename(request)}.service did not answer"

    return ask


def refusals(ray: Any, tasks: Mapping[Any, str], seconds: float = PATIENCE + 40) -> list[str]:
    """A line for each node that could not; ``tasks`` has the node's address by Ray's task, ``ray`` is the library."""
    ready, late = ray.wait(list(tasks), num_returns=len(tasks), timeout=seconds)
    reasons = [f"{tasks[task]}: no answer" for task in late]
    for task in ready:
        try:
            answer = ray.get(task)
        except ray.exceptions.RayError as error:
            answer = str(error).splitlines()[0]
        if answer:
            reasons.append(f"{tasks[task]}: {answer}")
    return reasons


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="sparkthor_host nodes-prepare", description="Drop the page cache on all nodes of the Ray cluster."
    )
    parser.add_argument("address", help="of Ray's GCS, as host:port")
    parser.add_argument("--hang", action="store_true", help="keep what the ranks of the other nodes do, instead")
    given = parser.parse_args(argv)
    # only the engine's Python has it
    import ray  # type: ignore[import-not-found,unused-ignore]

    started = time.monotonic()
    ray.init(address=given.address, log_to_driver=False, logging_level="error", configure_logging=False)
    if given.hang:
        return _keep_hang(ray)
    own = ray.get_runtime_context().get_node_id()
    tasks = _on_nodes(ray, lambda node: (REQUEST, DONE, PATIENCE, RECENT if node == own else 0.0))
    refused = refusals(ray, tasks)
    for line in refused:
        print(f"page cache not dropped on {line}", file=sys.stderr, flush=True)
    print(f"page cache dropped on {len(tasks) - len(refused)} nodes in {time.monotonic() - started:.1f} s", flush=True)
    return 0


def _on_nodes(ray: Any, arguments: Callable[[str], tuple[str, str, float, float] | None]) -> dict[Any, str]:
    """Start the task on each living node that there are arguments for: the node's address by Ray's task."""
    from ray.util.scheduling_strategies import (  # type: ignore[import-not-found,unused-ignore]
        NodeAffinitySchedulingStrategy,
    )

    remote = ray.remote(num_cpus=0, max_retries=0)(request_task())
    tasks = {}
    for node in ray.nodes():
        given = arguments(node["NodeID"]) if node["Alive"] else None
        if given is not None:
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            tasks[remote.options(scheduling_strategy=strategy).remote(*given)] = node["NodeManagerAddress"]
    return tasks


def _keep_hang(ray: Any) -> int:
    paths = hang.Paths()
    own = ray.get_runtime_context().get_node_id()
    tasks = _on_nodes(ray, lambda node: None if node == own else (paths.request, paths.taken, HANG_PATIENCE, 0.0))
    for line in refusals(ray, tasks, HANG_PATIENCE):
        print(f"nothing kept of {line}", file=sys.stderr, flush=True)
    with open(paths.others, "w", encoding="ascii") as stream:
        stream.write(f"{time.time()}\n")
    # the restart waits no longer, but a task ends with this program: a late node still tells its GPU, NCCL and log
    ray.wait(list(tasks), num_returns=len(tasks), timeout=LATE)
    return 0
