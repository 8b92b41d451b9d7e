# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What status, verify and report read on a host, in one call.

The slow questions (a vendor tool, systemd, Ray's gate) are asked at the same time, each with a time limit; what does
not answer is data, not an error, so that a host that is half down still tells what it can.  Standard library only.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import (
    boots,
    kernel_log,
    rdma_counters,
    watchdog_state,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import node as _node
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts.ranks import RankReader
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file, files, foreign, systemd
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import firewall_watch
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import rdma as _rdma
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    front_config,
    gpu_state,
    host_versions,
    last_checks,
    location,
    pcie_errors,
    places,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry

Runner = Callable[[list[str]], tuple[int, str, str]]

UNITS = (
    *_node.SERVING_UNITS,
    *_node.FRONT_UNITS,
    *("sparkthor-firewall.service", "sparkthor-firewall-watch.service"),
    *("sparkthor-exporter.service", "sparkthor-prometheus.service"),
)
_PROPERTIES = (
    "Id,LoadState,ActiveState,SubState,UnitFileState,Result,NRestarts,"
    "ActiveEnterTimestampMonotonic,InvocationID,NeedDaemonReload"
)
GATE = location.command("ray-gate")
OPTIONS = (
    *("model", "dtype", "max-model-len", "max-num-seqs", "tensor-parallel-size", "pipeline-parallel-size"),
    *("model-path", "context-length", "max-running-requests", "tp-size", "pp-size", "mem-fraction-static"),
    *("max-total-tokens", "max_seq_len", "max_batch_size"),
    *("gpu-memory-utilization", "kv-cache-memory-bytes", "kv-cache-dtype", "distributed-executor-backend"),
)
_COUNTERS = (
    *("port_xmit_data", "port_rcv_data", "port_xmit_discards", "port_rcv_errors"),
    *("link_downed", "symbol_error"),
)


def parse_unit_states(text: str, uptime: float) -> dict[str, dict[str, Any]]:
    """``systemctl show`` of several units, one paragraph each; units that do not exist are left out."""
    units: dict[str, dict[str, Any]] = {}
    for values in systemd.parse_show(text):
        name = values.get("Id", "")
        if not name or values.get("LoadState") in ("not-found", ""):
            continue
        entered = values.get("ActiveEnterTimestampMonotonic", "0")
        since = int(entered) / 1e6 if entered.isdigit() else 0.0
        active = values.get("ActiveState", "unknown")
        units[name.removesuffix(".service")] = {
            "active": active,
            "sub": values.get("SubState", ""),
            "enabled": values.get("UnitFileState", ""),
            "load": values.get("LoadState", ""),
            "result": values.get("Result", ""),
            "restarts": int(values["NRestarts"]) if values.get("NRestarts", "").isdigit() else 0,
            "invocation": values.get("InvocationID", ""),
            "need_daemon_reload": values.get("NeedDaemonReload") == "yes",
            "seconds": round(max(0.0, uptime - since), 1) if active == "active" and since else None,
        }
    return units


def parse_updates(text: str) -> int | None:
    """Security updates that wait, out of Ubuntu's note for logins; None where it does not say."""
    if "can be applied immediately" not in text:
        return None
    found = re.search(r"^(\d+) of these updates (?:is a|are) standard security update", text, re.MULTILINE)
    return int(found[1]) if found else 0


def parse_options(text: str) -> dict[str, str]:
    """The plain options at the top of an engine's configuration; what is nested, or might name a secret, is of no
    interest here."""
    pairs = (re.match(r"^([a-z][a-z0-9_-]*): +([^{\[\s#].*)$", line) for line in text.splitlines())
    return {pair[1]: pair[2].strip().strip("'\"") for pair in pairs if pair and pair[1] in OPTIONS}


class HostReader(files.Below):
    """Reads one host; root folder and command runner are injectable for tests."""

    def __init__(self, run: Runner, root: str = "/") -> None:
        super().__init__(root)
        self._run = run

    def uptime(self) -> float:
        first = self._text("/proc/uptime").split(" ", 1)[0]
        try:
            return float(first)
        except ValueError:
            return 0.0

    def units(self, uptime: float) -> dict[str, dict[str, Any]]:
        beside = _node.units_beside(self._path("/"))
        rc, out, _err = self._run(["systemctl", "show", "--no-pager", f"--property={_PROPERTIES}", *UNITS, *beside])
        return parse_unit_states(out, uptime) if rc == 0 else {}

    def ray(self) -> dict[str, Any]:
        """The gate's answer on the head; elsewhere only where this host expects the head."""
        config = self._object("/etc/sparkthor/ray.json")
        if not config:
            return {"configured": False}
        found: dict[str, Any] = {
            "configured": True,
            "head_address": config.get("head_address", ""),
            "node_address": config.get("node_address", ""),
        }
        if found["head_address"] != found["node_address"] or not os.path.exists(self._path(location.PACKAGE)):
            return found
        rc, out, err = self._run([*GATE, "--json", "--timeout", "3", "--source", "dashboard"])
        try:
            found["cluster"] = foreign.parse(out)
        except ValueError:
            found["error"] = (err.strip() or f"the gate ended with {rc}")[-300:]
        return found

    def memory(self) -> dict[str, int]:
        values = _node.parse_meminfo(self._text("/proc/meminfo"))
        total, free = values.get("SwapTotal", 0), values.get("SwapFree", 0)
        return {
            "total": values.get("MemTotal", 0),
            "available": values.get("MemAvailable", 0),
            "cached": values.get("Cached", 0),
            "swap_total": total,
            "swap_used": max(0, total - free),
        }

    def disk(self) -> dict[str, int]:
        return places.disk(self._root, self._object(places.DECLARED)) or {"total": 0, "free": 0}

    def rdma(self) -> dict[str, Any]:
        found = _rdma.read_links(self._run, self._root)
        for link in found["links"]:
            base = f"/sys/class/infiniband/{link['device']}/ports/{link['port']}/counters"
            counters = {name: self._text(f"{base}/{name}").strip() for name in _COUNTERS}
            link["counters"] = {name: int(text) for name, text in counters.items() if text.isdigit()}
        return found

    def nccl(self) -> dict[str, Any]:
        """NCCL's files of the host, and those engines that see another one, as an image brings it."""
        read = RankReader(self._root)
        ranks = [rank for rank in read.part("processes", read.processes, []) if "nccl_conf" in rank]
        return {
            "nccl": read.part("nccl", read.nccl, {}),
            "processes": [{key: rank[key] for key in ("pid", "program", "env", "nccl_conf")} for rank in ranks],
        }

    def models(self) -> list[str]:
        try:
            names = sorted(os.listdir(self._path(places.folders(self._object(places.DECLARED))["models"])))
        except OSError:
            return []
        # a revision's folder is there under its model's name as well
        return [name for name in names if not name.startswith(".") and "@" not in name][:64]

    def firewall(self) -> dict[str, Any]:
        return firewall_watch.compare(self._run, self._path(firewall_watch.RULES))

    def serving(self) -> dict[str, Any]:
        """What the head serves; the engine's options without anything that could be a secret."""
        beside = {name: self._group(places.Places(name)) for name in _node.names_beside(self._path("/"))}
        return {
            **self._group(places.OWN),
            "tls": bool(self._object(places.DECLARED).get("tls")),
            "certificate": front_config.fingerprint(self._root),
            "page": os.path.exists(self._path("/etc/sparkthor/console.json")),
            # on a head, what doctor.yml and drift.yml found last
            "checks": last_checks.read(self._root),
            # the groups beside the host's own one, by their names
            **({"beside": beside} if beside else {}),
        }

    def _group(self, paths: places.Places) -> dict[str, Any]:
        config, state = self._object(paths.config), watchdog_state.believed(self._object(paths.state))
        state.pop("memory", None)
        engine = registry.engine_of(config)
        return {
            "engine": engine.name,
            "model": config.get("model", ""),
            "socket": config.get("socket", ""),
            "executor": "ray" if config.get("ray", True) else "mp",
            "state": state,
            "options": parse_options(self._text(f"{paths.etc}/{engine.config}")),
            "maintenance": places.maintenance(self._path(path) for path in paths.maintenance) or "",
        }

    def read(self) -> dict[str, Any]:
        uptime = self.uptime()
        with ThreadPoolExecutor(max_workers=7) as pool:
            ray = pool.submit(self.ray)
            units = pool.submit(self.units, uptime)
            rdma = pool.submit(self.rdma)
            firewall = pool.submit(self.firewall)
            gpus = pool.submit(gpu_state.read, self._run)
            boot = pool.submit(boots.previous, self._run)
            kernel = pool.submit(kernel_log.read, self._run)
            node = _node.NodeReader(self._run, self._root).read()
            load = self._text("/proc/loadavg").split()
            own = host_versions.HostVersions(self._run, self._root)
            engine = own.engine()
            status = {
                "node": node,
                "time": round(time.time(), 3),
                "uptime_seconds": round(uptime),
                "load": [float(item) for item in load[:3]] if len(load) >= 3 else [],
                "memory": self.memory(),
                "gpus": gpus.result(),
                "disk": self.disk(),
                "environment": environment_file.parse(self._text(environment_file.FABRIC)),
                "engine": engine,
                "versions": {
                    **own.parts(engine),
                    **own.model(),
                    **host_versions.firmware(str(link.get("firmware") or "") for link in rdma.result()["links"]),
                },
                "models": self.models(),
                # apt refreshes it after every update of its lists, which goes on with the timers masked
                "security_updates": parse_updates(self._text("/var/lib/update-notifier/updates-available")),
                "serving": self.serving(),
                "units": units.result(),
                "rdma": rdma.result(),
                "rdma_counters": rdma_counters.read(self._root),
                "pcie_errors": pcie_errors.read(self._root),
                "previous_boot": boot.result(),
                "kernel": kernel.result(),
                **self.nccl(),
                "firewall": firewall.result(),
                "ray": ray.result(),
            }
        # a state file is another user's, and names of files may be anybody's
        return dict(foreign.tellable(status))


def read_now(timeout: int) -> dict[str, Any]:
    """This host; one command takes ``timeout`` seconds at most."""
    return HostReader(lambda argv: run_limited(argv, timeout)).read()
