# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the doctor reads on a host, in one call and without changing anything.

Every part is read on its own: what one cannot read is a line in ``errors``, and the others are there all the same.
Commands have time limits, texts have size limits, and nothing leaves the host before it was masked.  Standard library
only: this runs on the hosts.
"""

from __future__ import annotations

import glob
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import (
    boots,
    hangs,
    model_folders,
    node,
    own_secrets,
    rdma_counters,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts.exposure import parse_listeners
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts.ranks import RankReader, newest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files as _files
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign, systemd
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import mask as _mask
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    firewall_watch,
    link_state,
    netplan_job,
    rdma,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    gpu_state,
    hang,
    pcie_errors,
    places,
    ray_config,
    ray_health,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry

Runner = Callable[[list[str]], tuple[int, str, str]]

#: seconds for all commands of a host together: one that hangs in many places still answers in time
BUDGET = 30.0
#: payload of an echo that any link carries
SMALL = 56
#: bytes of one unit's journal
JOURNAL_LIMIT = 400_000
#: bytes kept of what a command writes: a line of a journal may have any length
OUTPUT_LIMIT = 4_000_000
UNITS = (
    *node.SERVING_UNITS,
    *node.FRONT_UNITS,
    *("sparkthor-firewall-watch.service", "display-manager.service", "docker.service"),
)
#: units whose journal may hold an engine's words
TALKING = ("sparkthor-ray.service", "sparkthor-vllm.service", "sparkthor-watchdog.service")
#: services that end a program before memory runs out
GUARDS = ("earlyoom.service", "systemd-oomd.service", "nohang.service", "dgx-anti-oom.service")
_UNIT_PROPERTIES = (
    "Id,Names,LoadState,ActiveState,SubState,UnitFileState,Result,NRestarts,InvocationID,LimitMEMLOCK,"
    "ActiveEnterTimestampMonotonic,ExecMainStatus"
)
#: distributions that must be the same on all hosts
_EQUAL = ("ray", "torch", "nvidia-nccl-cu13", "nvidia-nccl-cu12", *registry.PACKAGES)
#: names or images of containers that may be an engine's; a dot for what some write as a dash
_CONTAINERS = re.compile("|".join((r"ray|node-\d+", *(name.replace("_", ".") for name in registry.ENGINES))))
_RAY_LOG = re.compile(r"(?:raylet|gcs_server|worker-.*)\.(?:out|err)$")
#: where engines that are not ours keep models
OTHER_MODEL_ROOTS = (
    "/root/.cache/huggingface/hub",
    "/home/*/.cache/huggingface/hub",
)
_DISKS = ("/", "/var/lib", "/var/lib/sparkthor", "/var/lib/docker", "/tmp", "/dev/shm", "/home")


def parse_forward(text: str) -> dict[str, Any]:
    """What ``iptables -S FORWARD`` says: the chain's policy, and whether Docker has put rules there."""
    policy = re.search(r"^-P FORWARD (\w+)", text, re.MULTILINE)
    return {
        "policy": policy[1].lower() if policy else "",
        "docker": "DOCKER" in text,
        "accepts": sorted(set(re.findall(r"^-A FORWARD .*-i (\S+) -o \S+ .*-j ACCEPT", text, re.MULTILINE))),
    }


def parse_units(text: str) -> dict[str, dict[str, str]]:
    """``systemctl show`` of several units, by each of a unit's names."""
    found: dict[str, dict[str, str]] = {}
    for properties in systemd.parse_show(text):
        for name in (properties.get("Names") or properties.get("Id", "")).split():
            found[name] = properties
    return found


class Collector(RankReader):
    """Reads one host.  ``root`` and ``run`` are injectable, so that tests feed it a captured machine."""

    def __init__(
        self,
        run: Runner,
        root: str = "/",
        since: str = "-2h",
        journal_lines: int = 3000,
        clock: Callable[[], float] = time.time,
        ping: Callable[[list[dict[str, Any]]], list[dict[str, Any]]] | None = None,
        ray_health: Callable[[], dict[str, Any]] | None = None,
        key: str = "",
    ) -> None:
        super().__init__(root)
        self._command = run
        self._key = key
        self._since = since
        self._lines = journal_lines
        self._clock = clock
        self._ping = ping
        self._ray_health = ray_health

    def _run(self, argv: list[str]) -> tuple[int, str, str]:
        rc, out, err = self._command(argv)
        if rc == 124:
            # what did not answer is not the same as what had nothing to say
            error = f"{' '.join(argv[:3])}: {err.strip() or 'ran past its time limit'}"[:300]
            if error not in self.errors:
                self.errors.append(error)
        return rc, out, err

    def output(self, *argv: str) -> str:
        rc, out, _err = self._run(list(argv))
        return out if rc == 0 else ""

    # -- parts --------------------------------------------------------------------------------------------------

    def files(self) -> dict[str, str]:
        """Our own files, masked: the controller parses them, since a host may lack a YAML parser."""
        texts = {}
        own = [one.config for one in registry.ENGINES.values() if one.config]
        for name in ("fabric.env", *own, f"{places.SERVICE}.env", "ray.env", "engine.env", "serving.json", "ray.json"):
            text = self.read(f"/etc/sparkthor/{name}", 64_000)
            if text is not None:
                texts[name] = self.mask(text)
        listed = [("hosts", "/etc/hosts")]
        for group in (places.OWN, *map(places.Places, node.names_beside(self.path("/")))):
            listed.append((group.listed("state.json"), group.state))
            listed.extend((group.listed(name), f"{group.etc}/{name}") for name in own if group.name)
            # left by playbooks/stop.yml: what is down then is meant to be
            listed.extend((group.listed("maintenance"), path) for path in group.maintenance)
        for name, where in listed:
            text = self.read(where, 64_000)
            if text is not None:
                texts[name] = self.mask(text)
        return texts

    def units(self) -> dict[str, dict[str, str]]:
        asked = (*UNITS, *node.units_beside(self.path("/")))
        return parse_units(self.output("systemctl", "show", "--no-pager", f"--property={_UNIT_PROPERTIES}", *asked))

    def memory(self) -> dict[str, int]:
        wanted = "MemTotal MemFree MemAvailable Cached Dirty Writeback SwapTotal SwapFree CmaTotal CmaFree Shmem"
        values = node.parse_meminfo(self.read("/proc/meminfo") or "")
        return {key: values[key] for key in wanted.split() if key in values}

    def disks(self) -> list[dict[str, Any]]:
        filesystems: dict[Any, dict[str, Any]] = {}
        for path in (*_DISKS, self.folders()["models"]):
            try:
                state = os.statvfs(self.path(path))
                device = os.stat(self.path(path)).st_dev
            except OSError:
                continue
            filesystems.setdefault(
                device,
                {
                    "path": path,
                    "total": state.f_blocks * state.f_frsize,
                    "free": state.f_bavail * state.f_frsize,
                    "inodes": state.f_files,
                    "inodes_free": state.f_favail,
                    "read_only": bool(state.f_flag & os.ST_RDONLY),
                },
            )
        return list(filesystems.values())

    def forward(self) -> dict[str, Any]:
        seen = parse_forward(self.output("iptables", "-S", "FORWARD"))
        seen["ip_forward"] = (self.read("/proc/sys/net/ipv4/ip_forward") or "").strip() == "1"
        return seen

    def pcie(self) -> dict[str, dict[str, str]]:
        """Link speed and width of each NIC's PCIe link, as it is and as it could be."""
        devices = {}
        for name in sorted(self._names("/sys/class/net")):
            values = {}
            for key in ("current_link_speed", "max_link_speed", "current_link_width", "max_link_width"):
                text = (self.read(f"/sys/class/net/{name}/device/{key}") or "").strip()
                if text:
                    values[key] = text
            if values:
                devices[name] = values
        return devices

    def nic_pci(self) -> list[str] | None:
        """PCI addresses of NVIDIA's ConnectX functions, with or without a driver; None where PCI shows nothing."""
        folder = "/sys/bus/pci/devices"
        vendors = {name: (self.read(f"{folder}/{name}/vendor") or "").strip() for name in self._names(folder)}
        return sorted(name for name, vendor in vendors.items() if vendor == "0x15b3") if any(vendors.values()) else None

    def desktop(self) -> dict[str, str]:
        return {"default_target": self.output("systemctl", "get-default").strip()}

    def engine(self) -> dict[str, Any]:
        """Versions of what must be the same on all hosts, from the environment's directory listing."""
        versions: dict[str, str] = {}
        for folder in glob.glob(self.path("/opt/sparkthor/venv/lib/python3*/site-packages")):
            versions["python"] = os.path.basename(os.path.dirname(folder)).removeprefix("python")
            for name in os.listdir(folder):
                if name.endswith(".dist-info") and "-" in name:
                    distribution, version = name[: -len(".dist-info")].split("-", 1)
                    distribution = distribution.lower().replace("_", "-")
                    if distribution in _EQUAL:
                        versions[distribution] = version
        return {"versions": versions, "present": bool(versions)}

    def folders(self) -> dict[str, str]:
        """Where this host keeps ``models`` and ``cache``, as the newest play declared it."""
        try:
            return places.folders(foreign.parse_object(self.read(places.DECLARED) or "{}"))
        except ValueError:
            return places.folders({})

    def models(self) -> list[dict[str, Any]]:
        declared = self.folders()
        own = [declared["models"], f"{declared['cache']}/huggingface/hub"]
        found, whole = model_folders.read([self.path(pattern) for pattern in (*own, *OTHER_MODEL_ROOTS)], self._root)
        if not whole:
            self.errors.append("models: too many files, the rest was not read")
        return found

    def served_model(self) -> dict[str, Any]:
        """The configuration of the model that the engine's file names, where it is a folder of this host."""
        path = ""
        for engine in registry.ENGINES.values():
            text = (self.read(f"/etc/sparkthor/{engine.config}") or "") if engine.config else ""
            pattern = rf"(?:^|[{{,])\s*\"?{re.escape(engine.model_key)}\"?:\s*\"?([^\",\s}}]+)"
            match = re.search(pattern, text, re.MULTILINE) if engine.model_key else None
            path = path or (match[1] if match else "")
        if not path.startswith("/"):
            return {"path": path}
        content = self.read(f"{path}/config.json", 200_000)
        try:
            config = foreign.parse_object(content or "")
        except ValueError:
            config = None
        return {"path": path, "present": content is not None, "config": config}

    # -- logs ---------------------------------------------------------------------------------------------------

    def logs(self, units: Mapping[str, Mapping[str, str]]) -> list[dict[str, str]]:
        """Excerpts, newest last.

        Of a unit that runs well only its present life counts: what failed before and was fixed is no finding.
        """
        logs_read = []
        base = ["journalctl", "--no-pager", "--quiet", "--boot", "--all", "--output=cat", f"--lines={self._lines}"]
        for name in (*TALKING, *node.units_beside(self.path("/"))):
            state = units.get(name)
            if not state or state.get("LoadState") != "loaded":
                continue
            settled = state.get("ActiveState") == "active" and state.get("SubState") == "running"
            invocation = state.get("InvocationID", "")
            if settled and invocation:
                which = [f"_SYSTEMD_INVOCATION_ID={invocation}"]
            else:
                which = [f"--since={self._since}", f"--unit={name}"]
            logs_read.append({"name": f"journal of {name}", "text": self.output(*base, *which)})
        kernel = self.output(*base, f"--since={self._since}", "--dmesg")
        logs_read.append({"name": "kernel log", "text": kernel})
        guards = [f"--unit={name}" for name in GUARDS]
        logs_read.append(
            {"name": "journal of memory guards", "text": self.output(*base, f"--since={self._since}", *guards)}
        )
        before = self._known.get("previous_boot") or {}
        if before.get("how") in boots.ENDS and before["ended"] > self._clock() - 86400:
            last = ["journalctl", "--no-pager", "--quiet", "--boot=-1", "--output=cat", "--dmesg", "--lines=500"]
            logs_read.append({"name": "kernel log of the previous boot", "text": self.output(*last)})
        if units.get("docker.service", {}).get("ActiveState") == "active":
            logs_read += self._containers()
        logs_read += self._ray_files()
        return [
            {"name": item["name"], "text": self.mask(newest(item["text"], JOURNAL_LIMIT))}
            for item in logs_read
            if item["text"].strip()
        ]

    def _containers(self) -> list[dict[str, str]]:
        containers = []
        listed = self.output("docker", "ps", "--all", "--no-trunc", "--format", "{{.Names}}\t{{.Image}}\t{{.State}}")
        for line in listed.splitlines()[:8]:
            fields = line.split("\t")
            if len(fields) == 3 and _CONTAINERS.search(f"{fields[0]} {fields[1]}"):
                rc, out, err = self._run(["docker", "logs", "--tail", str(self._lines), "--since", "2h", fields[0]])
                if rc == 0:
                    containers.append({"name": f"container {fields[0]}", "text": out + err})
        return containers

    def _ray_files(self) -> list[dict[str, str]]:
        """Ray's own files of the session that runs, or ran last: raylet and worker output."""
        texts = []
        fresh = self._clock() - 7200
        for base in ("/var/lib/sparkthor/ray/t", "/tmp/ray"):
            logs = f"{base}/{self._session(base)}/logs"
            dated = []
            for name in _files.list_folder(self.path(logs)):
                try:
                    state = os.lstat(self.path(f"{logs}/{name}"))
                except OSError:
                    continue
                if _RAY_LOG.fullmatch(name) and state.st_size and state.st_mtime >= fresh:
                    dated.append((state.st_mtime, name))
            for _when, name in sorted(dated)[-8:]:
                shown = f"{base}/session_latest/logs/{name}"
                texts.append({"name": shown, "text": self.tail(f"{logs}/{name}")})
        return texts

    def _session(self, base: str) -> str:
        """The folder of Ray's newest session: a link by Ray's user names it, and no folder elsewhere."""
        try:
            name = os.path.basename(os.readlink(self.path(f"{base}/session_latest")))
        except OSError:
            name = ""
        return name if name.startswith("session_") else "session_latest"

    # -- all ----------------------------------------------------------------------------------------------------

    def collect(self, links: Iterable[dict[str, Any]] = ()) -> dict[str, Any]:
        started, begun = self._clock(), time.monotonic()
        wanted = list(links)
        evidence: dict[str, Any] = {"started": started}
        parts: tuple[tuple[str, Callable[[], Any], Any], ...] = (
            ("node", node.NodeReader(self._run, self._root).read, {}),
            ("rdma", lambda: rdma.read_links(self._run, self._root), {"links": []}),
            ("rdma_counters", lambda: rdma_counters.read(self._root), {}),
            ("pcie_errors", lambda: pcie_errors.read(self._root), {}),
            ("nccl", self.nccl, {}),
            ("files", self.files, {}),
            ("secrets", lambda: own_secrets.described(self.read, self._key), {}),
            ("processes", self.processes, []),
            ("units", self.units, {}),
            ("listeners", lambda: parse_listeners(self.output("ss", "-Hltnp")), []),
            ("memory", self.memory, {}),
            ("previous_boot", lambda: boots.previous(self._run), {}),
            ("hangs", lambda: hangs.read(self.path(hang.FOLDER)), []),
            ("gpus", lambda: gpu_state.read(self._run), []),
            ("disks", self.disks, []),
            ("forward", self.forward, {}),
            ("firewall", lambda: firewall_watch.compare(self._run, self.path(firewall_watch.RULES)), {}),
            ("pcie", self.pcie, {}),
            ("nic_pci", self.nic_pci, None),
            ("desktop", self.desktop, {}),
            ("engine", self.engine, {"versions": {}, "present": False}),
            ("models", self.models, []),
            ("served_model", self.served_model, {}),
            ("pings", lambda: self._ping(wanted) if self._ping and wanted else [], []),
            # after the pings, which ask for those that nobody asked for lately
            ("neighbours", lambda: node.parse_neighbours(self.output("ip", "-j", "-4", "neighbour", "show")), []),
            ("ray", lambda: self._ray_health() if self._ray_health else {}, {}),
            ("logs", lambda: self.logs(self._known.get("units") or {}), []),
        )
        for name, read, empty in parts:
            evidence[name] = self.part(name, read, empty)
        # a file of anybody's, an address, a name: a secret may stand anywhere
        evidence = dict(_mask.masked(evidence, self._hidden))
        self.errors = [self.mask(error) for error in self.errors]
        evidence.update(ended=self._clock(), seconds=round(time.monotonic() - begun, 2), errors=self.errors)
        return evidence


def ping(links: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each peer of each link twice: with a few bytes, and with as many as the smaller MTU of both ends takes."""
    live = netplan_job.live_links()
    small = [
        {
            **link,
            "mtu": SMALL + 28,
            "peers": [{**peer, "mtu": SMALL + 28} for peer in link.get("peers") or []],
        }
        for link in links
    ]
    answers = {(item["netdev"], item["address"]): item for item in link_state.ping_links(small, live, 1.0)}
    report = []
    for item in link_state.ping_links(links, live, 1.0):
        reached = answers.get((item["netdev"], item["address"]), {})
        report.append(
            {
                "netdev": item["netdev"],
                "host": item["host"],
                "address": item["address"],
                "small": bool(reached.get("reachable")),
                "full": item["reachable"],
                "payload": item["payload"],
                "error": reached.get("error") or item["error"],
            }
        )
    return report


def health_of_ray(timeout: float) -> dict[str, Any]:
    """Ray's nodes as the head sees them; empty on every other host, and where no Ray was ever set up."""
    try:
        config = ray_config.load_config()
    except ray_config.RayConfigError:
        return {}
    if not config.on_head:
        return {}
    return ray_health.cluster_health(config, timeout)


def read_now(
    timeout: float, links: list[dict[str, Any]], since: str, journal_lines: int, ask_ray: bool, key: str
) -> dict[str, Any]:
    """This host; one command takes ``timeout`` seconds at most, all of them together :data:`BUDGET`."""
    end = time.monotonic() + BUDGET

    def run(argv: list[str]) -> tuple[int, str, str]:
        left = end - time.monotonic()
        if left <= 0:
            return 124, "", f"{argv[0]}: no time left"
        return run_limited(argv, min(timeout, left), most=OUTPUT_LIMIT)

    health = (lambda: health_of_ray(timeout)) if ask_ray else None
    collector = Collector(run, since=since, journal_lines=journal_lines, ping=ping, ray_health=health, key=key)
    return collector.collect(links)
