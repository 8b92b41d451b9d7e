# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in its own unit:
# pylint: disable=ansible-bad-function
"""Metrics of one host for Prometheus: memory, disk, links, RDMA ports, the watchdog, and the engine.

On a head also who asked for what, which the front proxy tells it.

RDMA traffic shows in no netdev counter, unified memory in no GPU tool, and the engine listens on a UNIX socket that a
Prometheus cannot reach: hence a small exporter of our own.  It reads files and asks nvidia-smi, listens on the control
address and the loopback, and knows two paths.  Installed on the hosts: standard library alone.
"""

from __future__ import annotations

import argparse
import http.client
import http.server
import json
import os
import re
import socketserver
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._lib import files, foreign, peer
from .._lib.command import run_limited
from . import engine_figures, front_counts, gpu_state, host_versions, limits, pcie_errors, places, ray_processes
from .endpoint import endpoint_of
from .engines import registry
from .notify import ALIVE, READY, notify

TOKENS_USED = "/run/sparkthor-tokens/usage.json"
FIREWALL_RULES = "/etc/sparkthor/firewall.nft"
FIREWALL_STATE = "/run/sparkthor-firewall-watch/state.json"
#: seconds after which the word of the firewall's watch counts no more; it speaks every ten
FIREWALL_FRESH = 60.0
#: seconds for which what was read of versions counts: they change by a playbook or a boot
VERSIONS_FRESH = 60.0
_VIRTUAL = re.compile(r"^(lo|docker.*|br-.*|veth.*|virbr.*|tun.*|tap.*|l4tbr.*|usb.*|cni.*|flannel.*)$")
#: file below a port's folder -> (metric, help, factor)
PORT_COUNTERS = {
    "counters/port_xmit_data": ("transmit_bytes_total", "Bytes sent over RDMA.", 4),
    "counters/port_rcv_data": ("receive_bytes_total", "Bytes received over RDMA.", 4),
    "counters/port_xmit_discards": ("transmit_discards_total", "Packets discarded on sending.", 1),
    "counters/port_rcv_errors": ("receive_errors_total", "Packets received with an error.", 1),
    "counters/port_rcv_packets": ("receive_packets_total", "Packets received over RDMA.", 1),
    "counters/link_downed": ("link_downed_total", "Times the link went down.", 1),
    "counters/symbol_error": ("symbol_errors_total", "Symbol errors: a bad cable or plug.", 1),
    "hw_counters/out_of_sequence": ("out_of_sequence_total", "Packets out of sequence: loss on the way.", 1),
    "hw_counters/packet_seq_err": ("sequence_errors_total", "Sequence errors told by the other end.", 1),
    "hw_counters/roce_adp_retrans": ("adaptive_retransmits_total", "Packets sent again after a loss.", 1),
    "hw_counters/local_ack_timeout_err": ("ack_timeouts_total", "Acknowledgements that did not come in time.", 1),
    "hw_counters/rp_cnp_handled": ("congestion_notices_total", "Congestion notices taken.", 1),
}


class Page:
    """Text in Prometheus' format, each metric's samples together."""

    def __init__(self) -> None:
        self._metrics: dict[str, list[str]] = {}

    def add(self, name: str, text: str, value: float | None, kind: str = "gauge", **labels: str) -> None:
        if value is None:
            return
        lines = self._metrics.setdefault(name, [f"# HELP {name} {text}", f"# TYPE {name} {kind}"])
        shown = ",".join(f'{key}="{_label(item)}"' for key, item in labels.items())
        number = str(int(value)) if float(value).is_integer() else repr(float(value))
        lines.append(f"{name}{{{shown}}} {number}" if shown else f"{name} {number}")

    def text(self) -> str:
        return "".join("\n".join(lines) + "\n" for lines in self._metrics.values())


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _used(own: Any) -> tuple[dict[str, int], dict[str, int]]:
    """Counts and limits of a key, as the front proxy's user wrote them. Raises ForeignError."""
    limits = own.get("limits", {}) if isinstance(own, dict) else None
    if not isinstance(limits, dict):
        raise foreign.ForeignError("no counts of a key")
    counts = {name: foreign.whole(own.get(name)) for name in ("minute", "month", "unseen")}
    return counts, {name: foreign.whole(limit) for name, limit in limits.items() if limit is not None}


class ExportedHost(files.Below):
    """Reads below a root folder."""

    def __init__(
        self,
        root: str = "/",
        run: gpu_state.Runner = lambda argv: run_limited(argv, 3),
        kind: str = "",
        speeds: Mapping[str, float] | None = None,
    ) -> None:
        """``kind`` is the host's in the plan, ``speeds`` the Gb/s that its links are planned for, by NIC."""
        super().__init__(root)
        self._run = run
        self._kind = kind
        self._speeds = dict(speeds or {})
        self.front = front_counts.FrontCounts()
        #: parts and versions, and when they were read
        self._versions: tuple[dict[str, str], float] | None = None

    def text(self, path: str) -> str:
        try:
            with open(self._path(path), encoding="utf-8", errors="replace") as handle:
                return handle.read(1_000_000)
        except (OSError, ValueError):
            return ""

    def number(self, path: str) -> float | None:
        try:
            return float(self.text(path).strip())
        except ValueError:
            return None

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._path(path)))
        except OSError:
            return []

    def memory(self, page: Page) -> None:
        values = dict(re.findall(r"^(\w+):\s+(\d+) kB$", self.text("/proc/meminfo"), re.MULTILINE))
        for key, name, text in (
            ("MemTotal", "total", "Memory of the host; on unified memory the GPU's as well."),
            ("MemAvailable", "available", "Memory that can be had without swapping."),
            ("Cached", "cached", "Page cache."),
            ("SwapTotal", "swap_total", "Swap space."),
            ("SwapFree", "swap_free", "Swap space that is free."),
        ):
            if key in values:
                page.add(f"sparkthor_node_memory_{name}_bytes", text, int(values[key]) * 1024)

    def system(self, page: Page) -> None:
        load = self.text("/proc/loadavg").split()
        if load:
            page.add("sparkthor_node_load1", "Load over one minute.", float(load[0]))
        uptime = self.text("/proc/uptime").split()
        if uptime:
            page.add("sparkthor_node_uptime_seconds", "Time since boot.", float(uptime[0]))
        if disk := places.disk(self._root, self._object(places.DECLARED)):
            page.add("sparkthor_node_disk_total_bytes", "Disk that holds the models.", disk["total"])
            page.add("sparkthor_node_disk_free_bytes", "Space left there.", disk["free"])

    def gpus(self, page: Page) -> None:
        limit = limits.gpu_reach(self._kind, gpu_state.clock_limit(self.text(gpu_state.LIMIT_UNIT)))
        for number, gpu in enumerate(gpu_state.read(self._run)):
            label = {"gpu": str(number)}
            page.add("sparkthor_gpu_power_watts", "Power that the GPU draws.", gpu["watts"], **label)
            page.add("sparkthor_gpu_temperature_celsius", "Temperature of the GPU.", gpu["celsius"], **label)
            megahertz = gpu["sm_mhz"]
            clock = None if megahertz is None else megahertz * 1e6
            page.add("sparkthor_gpu_clock_hertz", "Clock of the GPU's processors.", clock, **label)
            text = "The clock that the machine and the owner's limit allow."
            page.add("sparkthor_gpu_clock_limit_hertz", text, limit * 1e6 if limit else None, **label)
            share = None if gpu["utilization"] is None else gpu["utilization"] / 100
            page.add("sparkthor_gpu_utilization_ratio", "Share of time in which the GPU worked.", share, **label)
            for reason in gpu_state.REASONS:
                text = "1 while heat or power slows the GPU down for this reason."
                page.add("sparkthor_gpu_slowed", text, int(reason in gpu["slowed"]), **label, reason=reason)

    def versions(self, page: Page) -> None:
        """Read seldom: it lists the engine's folder and asks a program."""
        now = time.monotonic()
        if self._versions is None or now - self._versions[1] > VERSIONS_FRESH:
            self._versions = host_versions.HostVersions(self._run, self._root).read(), now
        for part, version in self._versions[0].items():
            page.add("sparkthor_node_version", "1, with what this host runs.", 1, part=part, version=version)

    def firewall(self, page: Page) -> None:
        """What the watch over the firewall found; nobody who says so is as bad as an open one."""
        if not os.path.exists(self._path(FIREWALL_RULES)):
            return
        try:
            state = json.loads(self.text(FIREWALL_STATE))
            fresh = abs(time.time() - float(state["updated"])) < FIREWALL_FRESH
            closed, reloads = bool(state["closed"]) and fresh, int(state["reloads"])
        except (ValueError, KeyError, TypeError):
            closed, reloads = False, None
        page.add("sparkthor_firewall_closed", "1 while the loaded firewall is the wanted one.", int(closed))
        text = "Times that the firewall was gone or another one, and was loaded again."
        page.add("sparkthor_firewall_reloads_total", text, reloads, "counter")

    def api(self, page: Page) -> None:
        """Of a head, whose front proxy listens on whatever addresses its owner gave it."""
        declared = self._object(places.DECLARED)
        if not declared.get("head") or declared["head"] != declared.get("host"):
            return
        open_ones = ray_processes.listening_inodes(map(self.text, ("/proc/net/tcp", "/proc/net/tcp6"))).values()
        text = "1 while the front proxy listens on the port of the API."
        page.add("sparkthor_front_listens", text, int(declared.get("api_port") in open_ones))

    def keys(self, page: Page) -> None:
        """What keys used of their tokens, where one has a limit."""
        try:
            found = [(key, *_used(own)) for key, own in foreign.parse_object(self.text(TOKENS_USED)).items()]
        except ValueError:
            return
        for key, counts, most in found:
            for period in ("minute", "month"):
                text = "Tokens that the key used in the last minute and in this month."
                page.add("sparkthor_front_key_tokens", text, counts[period], key=key, period=period)
                text = "Tokens that the key may use."
                page.add("sparkthor_front_key_tokens_limit", text, most.get(period), key=key, period=period)
            text = "Answers of this month that said no tokens: mostly streams that their client broke off."
            page.add("sparkthor_front_key_unseen_answers", text, counts["unseen"], key=key)

    def links(self, page: Page, planned: Iterable[str]) -> None:
        wanted = set(planned)
        for name in self.names("/sys/class/net"):
            if _VIRTUAL.match(name) and name not in wanted:
                continue
            base = f"/sys/class/net/{name}"
            labels = {"netdev": name, "planned": "yes" if name in wanted else "no"}
            page.add("sparkthor_link_up", "1 with carrier.", self.number(f"{base}/carrier") or 0, **labels)
            page.add("sparkthor_link_mtu_bytes", "MTU.", self.number(f"{base}/mtu"), **labels)
            for way in ("rx", "tx"):
                told = "received" if way == "rx" else "sent"
                for item in ("bytes", "errors", "dropped"):
                    page.add(
                        f"sparkthor_link_{way}_{item}_total",
                        f"{item.capitalize()} {told}.",
                        self.number(f"{base}/statistics/{way}_{item}"),
                        "counter",
                        **labels,
                    )
        for name in sorted(wanted):
            there = os.path.exists(self._path(f"/sys/class/net/{name}"))
            page.add("sparkthor_link_present", "1 where the planned NIC is there.", int(there), netdev=name)
            if not there:
                page.add("sparkthor_link_up", "1 with carrier.", 0, netdev=name, planned="yes")

    def pcie(self, page: Page) -> None:
        for device, counted in pcie_errors.read(self._root)["devices"].items():
            for sort, count in counted.items():
                text = "Errors of the PCIe device since boot."
                page.add("sparkthor_pcie_errors_total", text, count, "counter", device=device, type=sort)

    def rdma(self, page: Page) -> None:
        for netdev, gbits in self._speeds.items():
            text = "What the link is planned for."
            page.add("sparkthor_link_planned_bits", text, gbits * 1e9, netdev=netdev)
        for device in self.names("/sys/class/infiniband"):
            for port in self.names(f"/sys/class/infiniband/{device}/ports"):
                base = f"/sys/class/infiniband/{device}/ports/{port}"
                labels = {"device": device, "port": port, "netdev": self.text(f"{base}/gid_attrs/ndevs/0").strip()}
                active = self.text(f"{base}/state").strip().endswith("ACTIVE")
                page.add("sparkthor_rdma_port_active", "1 while the port is ACTIVE.", int(active), **labels)
                rate = re.match(r"([0-9.]+) Gb/sec", self.text(f"{base}/rate"))
                if rate:
                    page.add("sparkthor_rdma_port_rate_bits", "Rate of the port.", float(rate[1]) * 1e9, **labels)
                for path, (name, text, factor) in PORT_COUNTERS.items():
                    value = self.number(f"{base}/{path}")
                    scaled = None if value is None else value * factor
                    page.add(f"sparkthor_rdma_port_{name}", text, scaled, "counter", **labels)

    def watchdog(self, own: places.Places) -> str:
        """What the watchdog of a group says; nothing where it is silent, for the last word of one that is gone would
        stand for ever."""
        try:
            age = time.time() - os.stat(self._path(own.metrics)).st_mtime
        except OSError:
            return ""
        return self.text(own.metrics) if abs(age) < limits.WATCHDOG_STALE else ""

    def beside(self, path: str, prefix: str) -> places.Places | None:
        """The group beside the host's own one that a path names, if there is one."""
        name = path[len(prefix) :] if path.startswith(prefix) else ""
        return places.Places(name) if name in self.names(f"{places.ETC}/{places.BESIDE}") else None

    def page(self, planned: Iterable[str]) -> str:
        page = Page()
        self.memory(page)
        self.system(page)
        self.gpus(page)
        self.versions(page)
        self.firewall(page)
        self.api(page)
        self.keys(page)
        self.links(page, planned)
        self.rdma(page)
        self.pcie(page)
        # on the head, the watchdog's own text as well
        return page.text() + "".join(f"{line}\n" for line in self.front.lines()) + self.watchdog(places.OWN)


def engine_place(own: places.Places) -> str:
    """Where the engine of a group listens, as its serving.json says."""
    return str(files.read_json(own.config).get("socket") or own.socket)


def engine_target(own: places.Places) -> str:
    """Where the page of its metrics is there, as its serving.json says which engine it is."""
    try:
        return registry.engine_of(files.read_json(own.config)).metrics.target
    except LookupError:
        return registry.DEFAULT.metrics.target


def engine(place: str, target: str = registry.DEFAULT.metrics.target) -> tuple[int, bytes]:
    """The engine's own metrics, and some of them under names of all engines; 503 while it is away."""
    try:
        status, body = peer.ask(endpoint_of(place).connect(), "GET", target, 5, most=16_000_000)
    except (OSError, http.client.HTTPException) as error:
        return 503, f"the engine does not answer: {error or type(error).__name__}\n".encode()
    text = body.decode("utf-8", "replace")
    common = engine_figures.common_text(text, registry.engine_that_says(text).metrics)
    return status, b"\n".join([body.rstrip(b"\n"), common.encode()]) if common else body


def handler(host: ExportedHost, planned: Sequence[str], place: str = "") -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        server_version = "sparkthor"
        sys_version = ""
        timeout = 10

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, host.page(planned).encode())
            elif path == "/metrics/engine":
                self._answer(*engine(place or engine_place(places.OWN), engine_target(places.OWN)))
            elif own := host.beside(path, "/metrics/engine/"):
                self._answer(*engine(engine_place(own), engine_target(own)))
            elif own := host.beside(path, "/metrics/group/"):
                self._answer(200, host.watchdog(own).encode())
            else:
                self._answer(404, b"only /metrics and /metrics/engine\n")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """A line a scrape would fill the journal."""

    return Handler


def planned_speeds(text: str) -> dict[str, float]:
    """``NIC=GBITS`` by commas; what is none is left out."""
    found = (item.partition("=") for item in text.split(","))
    return {name: float(gbits) for name, _sep, gbits in found if name and re.fullmatch(r"\d{1,4}", gbits)}


def answers(address: tuple[str, int], seconds: float = 10.0) -> bool:
    """Whether the exporter gives its page to one who asks as Prometheus does."""
    try:
        return peer.ask(peer.tcp(*address), "GET", "/metrics", seconds, most=16_000_000).status == 200
    except (OSError, http.client.HTTPException):
        return False


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sparkthor_host exporter", description="Metrics of this host for Prometheus.")
    parser.add_argument("--listen", action="append", required=True, metavar="ADDRESS:PORT")
    parser.add_argument("--planned", default="", help="netdevs of the fabric, by commas")
    parser.add_argument("--kind", default="", help="what the plan says of this host: spark, thor or generic")
    parser.add_argument("--speeds", default="", help="NIC=GBITS that links are planned for, by commas")
    parser.add_argument("--front", metavar="SOCKET", help="where the front proxy says who asked for what")
    given = parser.parse_args(argv)
    planned = [name for name in given.planned.split(",") if name]
    host = ExportedHost(kind=given.kind, speeds=planned_speeds(given.speeds))
    made = handler(host, planned)
    servers = []
    for place in dict.fromkeys(given.listen):
        address, _sep, port = place.rpartition(":")
        try:
            servers.append(Server((address, int(port)), made))
        except (OSError, ValueError) as error:
            # the unit tries again: a fabric address may come a moment later
            print(f"{place}: {error}", file=sys.stderr)
            return 75
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    if given.front:
        lines = front_counts.listen(given.front)
        threads.append(threading.Thread(target=front_counts.follow, args=(host.front, lines), daemon=True))
    for thread in threads:
        thread.start()
    notify(READY)
    address, _sep, port = given.listen[0].rpartition(":")
    # systemd starts anew what says nothing for a minute
    while all(thread.is_alive() for thread in threads):
        if answers((address, int(port))):
            notify(ALIVE)
        threads[0].join(15)
    return 1
