# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""The ranks of executor ray, as the dashboard on the head tells them (``rank_state`` for executor mp)."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

from . import life, patience, ray_config, ray_members, ray_probe, watchdog

#: config -> {address: id of the raylet alive there}, None = could not be asked
# evaluated when the module is loaded, and sanity loads module_utils on every Python that modules may meet
RankReader = Callable[[Mapping[str, Any]], Optional[Mapping[str, str]]]  # noqa: UP045
#: config, the ranks that are alive -> what each host shows of its rank, by name
SignReader = Callable[[Mapping[str, Any], Mapping[str, str]], Mapping[str, patience.Signs]]


def ranks(
    path: str = ray_config.CONFIG_PATH,
    timeout: float = 3.0,
    token: Callable[[ray_config.Config], str] = ray_config.read_token,
    agent_timeout: float = 2.0,
) -> RankReader:
    """The ranks of executor ray: one question to the dashboard on this host, 15 ms.

    While the dashboard gives no answer, the agent beside each raylet tells whether that is there: it ends with it.
    A round must not take ten seconds even if both times are used up.
    """
    newest: dict[str, str] = {}

    def read(_config: Mapping[str, Any]) -> Mapping[str, str] | None:
        cluster = ray_config.load_config(path)
        url = f"http://127.0.0.1:{cluster.dashboard_port}/api/v0/nodes?detail=true&limit=10000"
        answer = ray_probe.probe_http("dashboard", url, timeout, token(cluster))
        if not answer.ok:
            return _agents_of(cluster, newest, agent_timeout) or None
        living = sorted(
            (row for row in ray_members.read_dashboard_nodes(answer.data) if row.alive), key=lambda r: r.started_ms
        )
        newest.clear()
        newest.update({row.address: row.node_id for row in living})
        return dict(newest)

    return read


def _agents_of(cluster: ray_config.Config, ranks: dict[str, str], timeout: float) -> dict[str, str]:
    """Those of the ranks whose host still has its agent; one that was refused meanwhile comes back as another one.

    The head's own Ray is systemd's to watch.
    """
    workers = [address for address in ranks if address != cluster.head_address]
    with ThreadPoolExecutor(max(1, len(workers))) as pool:
        # a process that is stopped is connected to by the kernel
        agents = list(pool.map(lambda one: ray_probe.probe_tcp("agent", one, cluster.agent_port, timeout), workers))
    # zip has no "strict" in the oldest Python that sanity checks, here and below
    for address, agent in zip(workers, agents):  # noqa: B905
        if agent.status == ray_probe.REFUSED:
            ranks[address] = f"{watchdog.NAMELESS}{time.monotonic()}"
    absent = {address for address, agent in zip(workers, agents) if not agent.ok}  # noqa: B905
    return {address: node for address, node in ranks.items() if address not in absent}


def signs(
    path: str = ray_config.CONFIG_PATH,
    timeout: float = 2.0,
    token: Callable[[ray_config.Config], str] = ray_config.read_token,
) -> SignReader:
    """What the dashboard knows of each rank's processes and GPU. Compilers are seen on this host only.

    Whether a rank has ended is asked of the GCS, through the dashboard: what that itself tells of a node's actors is as
    old as its measurements, and may be of the engine before.
    """
    sampler = life.RaySampler()

    def read(_config: Mapping[str, Any], ranks: Mapping[str, str]) -> Mapping[str, patience.Signs]:
        cluster = ray_config.load_config(path)
        own_token = token(cluster)
        names = {node.address: node.name for node in cluster.nodes}
        signs: dict[str, patience.Signs] = {}
        for address, node_id in ranks.items():
            url = f"http://127.0.0.1:{cluster.dashboard_port}/nodes/{node_id}"
            answer = ray_probe.probe_http("dashboard", url, timeout, own_token)
            if not answer.ok:
                break  # a dashboard that hangs must not hold up the round
            host = names.get(address, address)
            signs[host] = sampler.read(host, str(answer.data))
        else:
            url = f"http://127.0.0.1:{cluster.dashboard_port}/api/v0/actors?limit=10000"
            answer = ray_probe.probe_http("dashboard", url, timeout, own_token)
            lives: Mapping[str, bool] = {}
            with contextlib.suppress(ValueError):
                lives = ray_members.read_dashboard_ranks(str(answer.data)) if answer.ok else {}
            for address, node_id in ranks.items():
                host = names.get(address, address)
                signs[host] = dataclasses.replace(signs[host], ended=lives.get(node_id) is False)
        own = names.get(cluster.head_address, cluster.head_address)
        if own in signs:
            compilers, stopped = life.of_host()
            signs[own] = dataclasses.replace(signs[own], compilers=compilers, stopped=stopped)
        return signs

    return read
