# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks: small questions to what the hosts told, each the eye of one rule.

Pure, on the controller.  A check takes the :class:`Case` and yields a :class:`~_doctor.Hit` for each place where its
trouble shows; it never decides what the trouble means, that is the rule's.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import typing as t
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Interface, IPv4Network, ip_address

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.versions import release
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import SizingError
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import neighbors
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.diagnosis import Hit, Log, tidy
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import parallel
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_args import REMOVED, UTILIZATION_EDGE
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import fabric_check

GIB: t.Final = 1 << 30
#: seconds that the clocks of two hosts may be apart
SKEW: t.Final = 5.0

Evidence = Mapping[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Serve:
    """The arguments that an engine was, or would be, started with, and where that was read."""

    host: str
    where: str
    args: Mapping[str, t.Any]
    version: str = ""

    def get(self, name: str, default: t.Any = None) -> t.Any:
        value = self.args.get(name)
        return default if value is None else value

    @property
    def model(self) -> str:
        return str(self.get("model", self.get("model-tag", "")))


@dataclasses.dataclass
class Case:
    """All that is known of the cluster when it is judged."""

    hosts: list[str]
    evidence: dict[str, Evidence] = dataclasses.field(default_factory=dict)
    unreachable: dict[str, str] = dataclasses.field(default_factory=dict)
    unreadable: dict[str, str] = dataclasses.field(default_factory=dict)
    cluster: Mapping[str, t.Any] | None = None
    fabric: Mapping[str, t.Any] | None = None
    plan_error: str = ""
    #: nobody was asked: there are only the logs that somebody sent
    logs_only: bool = False
    #: by host, between how many and how many seconds its clock is ahead of the controller's
    clocks: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    serves: list[Serve] = dataclasses.field(default_factory=list)

    @property
    def roce(self) -> bool:
        return bool(self.cluster) and self.cluster["profile"] == "roce"  # type: ignore[index]

    def node(self, host: str) -> Mapping[str, t.Any]:
        return self.evidence.get(host, {}).get("node") or {}

    def interfaces(self, host: str) -> dict[str, Mapping[str, t.Any]]:
        return {link["name"]: link for link in self.node(host).get("interfaces") or ()}

    def links(self, host: str) -> Sequence[Mapping[str, t.Any]]:
        """The links that this collection configures on a host; none on a lan."""
        entry = (self.fabric or {}).get(host) or {}
        return entry.get("links") or () if entry.get("addressing") == "managed" else ()


# --- reading what hosts and logs told ---------------------------------------------------------------------------------


def parse_argv(argv: Sequence[str]) -> dict[str, t.Any]:
    """``vllm serve MODEL --key value --flag --no-flag --key=value`` as options by name."""
    found: dict[str, t.Any] = {}
    words = list(argv)
    if "serve" in words[:4]:
        words = words[words.index("serve") + 1 :]
        if words and not words[0].startswith("-"):
            found["model"] = words.pop(0)
    short = {"-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-q": "quantization"}
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("-"):
            continue
        name, sep, value = word.partition("=")
        name = short.get(name, name.lstrip("-")).replace("_", "-")
        if sep:
            found[name] = _plain(value)
        elif index < len(words) and not (words[index].startswith("-") and not _number(words[index])):
            found[name] = _plain(words[index])
            index += 1
        elif name.startswith("no-"):
            found[name[3:]] = False
        else:
            found[name] = True
    return found


def _number(text: str) -> bool:
    return re.fullmatch(r"-?\d+(?:\.\d+)?", text) is not None


def _plain(text: str) -> t.Any:
    try:
        return json.loads(text) if _number(text) else text
    except ValueError:
        # 007 is a name, and no number of JSON
        return text


_ARGUMENTS = re.compile(r"non-default args: (\{.*\})\s*$")
_VERSION = re.compile(r"(?:vLLM API server version|LLM engine \(v)\s*(\d+\.\d+(?:\.\d+)?[^\s)]*)")


def log_arguments(log: Log) -> Iterator[Serve]:
    """What vLLM itself printed of its arguments, newest last; only the newest start of a log counts."""
    position = log.text.rfind("non-default args: {")
    if position < 0:
        return
    start = log.text.rfind("\n", 0, position) + 1
    end = log.text.find("\n", position)
    match = _ARGUMENTS.search(log.text[start : end if end > 0 else len(log.text)])
    if not match:
        return
    try:
        given = ast.literal_eval(match[1])
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return
    if not isinstance(given, dict):
        return
    versions = _VERSION.findall(log.text[max(0, start - 4000) : start + 20_000])
    args = {str(key).replace("_", "-"): value for key, value in given.items()}
    yield Serve(log.host, log.name, args, versions[0] if versions else "")


def serve_arguments(host: str, evidence: Evidence, read_yaml: Callable[[str], t.Any]) -> Iterator[Serve]:
    """Arguments out of our configuration file and out of the command lines of running engines.

    ``read_yaml`` gives None for what is no YAML; this file itself needs the standard library alone.
    """
    version = ((evidence.get("engine") or {}).get("versions") or {}).get("vllm", "")
    files = evidence.get("files") or {}
    if files.get("vllm.yaml"):
        given = read_yaml(files["vllm.yaml"])
        if isinstance(given, Mapping):
            args = {str(key).replace("_", "-"): value for key, value in given.items()}
            yield Serve(host, "/etc/sparkthor/vllm.yaml", args, version)
    for process in evidence.get("processes") or ():
        if process["program"] == "vllm":
            args = parse_argv(process["argv"])
            if "config" not in args:
                yield Serve(host, f"process {process['pid']}", args, version)


def _hosts(case: Case) -> Iterator[tuple[str, Evidence]]:
    for host in case.hosts:
        if host in case.evidence:
            yield host, case.evidence[host]


def _file_environment(evidence: Evidence, name: str = "fabric.env") -> dict[str, str]:
    return environment_file.parse((evidence.get("files") or {}).get(name, ""))


def _json_file(evidence: Evidence, name: str) -> dict[str, t.Any]:
    try:
        value = json.loads((evidence.get("files") or {}).get(name) or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _environments(evidence: Evidence) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Every environment by which an engine finds its network: ours, and that of what runs."""
    environment = _file_environment(evidence)
    if environment:
        yield "/etc/sparkthor/fabric.env", environment
    for process in evidence.get("processes") or ():
        if process["env"]:
            yield f"{process['program']} (process {process['pid']})", process["env"]


def _engine_runs(evidence: Evidence) -> bool:
    return any(process["program"] in ("vllm", "worker") for process in evidence.get("processes") or ())


def _gib(number: float) -> str:
    return f"{number / GIB:.1f} GiB"


CHECKS: dict[str, Callable[[Case], Iterable[Hit]]] = {}


def check(function: Callable[[Case], Iterable[Hit]]) -> Callable[[Case], Iterable[Hit]]:
    CHECKS[function.__name__] = function
    return function


# --- hosts ------------------------------------------------------------------------------------------------------------


@check
def host_unreachable(case: Case) -> Iterator[Hit]:
    for host, reason in case.unreachable.items():
        yield Hit(host, [reason.strip().split("\n")[0][:300] or "no answer"])


@check
def host_unreadable(case: Case) -> Iterator[Hit]:
    for host, reason in case.unreadable.items():
        yield Hit(host, [line[:300] for line in reason.strip().splitlines()[-3:]] or ["the answer was empty"])


@check
def no_cluster(case: Case) -> Iterator[Hit]:
    if not case.hosts and not case.logs_only:
        yield Hit("", ["the inventory has no host in group cluster"])


@check
def plan_impossible(case: Case) -> Iterator[Hit]:
    if case.hosts and case.plan_error:
        yield Hit("", [line.strip(" -") for line in case.plan_error.splitlines() if line.strip()][:6])


@check
def known_bad_kernel(case: Case) -> Iterator[Hit]:
    for host, _evidence in _hosts(case):
        for problem in fabric_check.known_bad_problems(host, case.node(host), fabric_check.KNOWN_BAD):
            yield Hit(host, [problem.message], mend=problem.mend)


@check
def versions_differ(case: Case) -> Iterator[Hit]:
    """Kernel, driver, firmware and image of the hosts of one kind."""
    plan = {
        host: {"kind": case.node(host).get("kind", "generic"), "addressing": "managed", "links": []}
        for host, _evidence in _hosts(case)
        if case.node(host)
    }
    nodes = {host: case.node(host) for host in plan}
    probes = {host: {"rdma": case.evidence[host].get("rdma") or {}} for host in plan}
    for problem in fabric_check.parity_problems(plan, nodes, probes):
        for host in problem.host.split(", "):
            yield Hit(host, [problem.message])


@check
def engine_differs(case: Case) -> Iterator[Hit]:
    for name in ("python", "ray", "vllm", "torch"):
        by_value: dict[str, list[str]] = {}
        for host, evidence in _hosts(case):
            engine = evidence.get("engine") or {}
            if not engine.get("present"):
                continue
            # the same release built for another machine carries another local part
            by_value.setdefault(str(engine["versions"].get(name, "none")).partition("+")[0], []).append(host)
        if len(by_value) < 2:
            continue
        usual = max(by_value, key=lambda value: len(by_value[value]))
        for value, hosts in by_value.items():
            if value != usual and not (name == "ray" and value == "none"):
                for host in hosts:
                    yield Hit(host, [f"{name} is {value}, but {usual} on {', '.join(by_value[usual])}"])


@check
def hostname_loopback(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        node = case.node(host)
        pinned = any("GLOO_SOCKET_IFNAME" in environment for _where, environment in _environments(evidence))
        # Debian and Ubuntu write that line themselves: it hurts only where nothing pins Gloo to a NIC
        if node.get("hostname_on_loopback") and not pinned and len(case.hosts) > 1:
            name = node.get("hostname", host)
            lines = ((evidence.get("files") or {}).get("hosts") or "").splitlines()
            line = next((text.strip() for text in lines if text.startswith("127.") and name in text.split()), "")
            yield Hit(host, [f"/etc/hosts: {line or name}", "GLOO_SOCKET_IFNAME is set nowhere"])


@check
def desktop_running(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        units = evidence.get("units") or {}
        # graphical.target alone holds nothing: a host without a display manager is none the poorer for it
        manager = units.get("display-manager.service", {})
        active = [manager.get("Id") or "display-manager.service"] if manager.get("ActiveState") == "active" else []
        if active:
            target = (evidence.get("desktop") or {}).get("default_target") or "unknown"
            yield Hit(host, [f"{', '.join(active)} active, default target {target}"])


@check
def swap_in_use(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        memory = evidence.get("memory") or {}
        used = memory.get("SwapTotal", 0) - memory.get("SwapFree", 0)
        if used > GIB // 2:
            yield Hit(host, [f"{_gib(used)} of {_gib(memory['SwapTotal'])} swap used"])


def _wanted_share(case: Case) -> float:
    """The largest share of memory that our configuration asks for; 0 where none does, or the cache has a fixed size."""
    return max(
        (
            _share(serve)
            for serve in case.serves
            if serve.where.endswith(".yaml") and 0 < _share(serve) <= 1 and not serve.get("kv-cache-memory-bytes")
        ),
        default=0.0,
    )


@check
def memory_short(case: Case) -> Iterator[Hit]:
    share = _wanted_share(case)
    for host, evidence in _hosts(case):
        memory = evidence.get("memory") or {}
        total, available = memory.get("MemTotal", 0), memory.get("MemAvailable", 0)
        if share and total and not _engine_runs(evidence) and available < share * total:
            yield Hit(
                host,
                [
                    f"MemAvailable {_gib(available)}, gpu-memory-utilization {share:g} asks for {_gib(share * total)} "
                    f"of {_gib(total)}, and no engine runs here"
                ],
            )


@check
def page_cache(case: Case) -> Iterator[Hit]:
    """Available memory suffices only by counting the page cache, and the engine fails to start."""
    share = _wanted_share(case)
    for host, evidence in _hosts(case):
        memory = evidence.get("memory") or {}
        total = memory.get("MemTotal", 0)
        unit = (evidence.get("units") or {}).get("sparkthor-vllm.service") or {}
        failing = unit.get("ActiveState") in ("failed", "activating") and int(unit.get("NRestarts") or 0) > 0
        head_fails = failing or any(
            ((other.get("units") or {}).get("sparkthor-vllm.service") or {}).get("ActiveState") == "failed"
            for other in case.evidence.values()
        )
        wanted = share * total
        if head_fails and wanted and memory.get("MemFree", 0) < wanted <= memory.get("MemAvailable", 0):
            yield Hit(
                host,
                [
                    f"MemFree {_gib(memory.get('MemFree', 0))}, page cache {_gib(memory.get('Cached', 0))}, "
                    f"the engine asks for {_gib(wanted)}"
                ],
            )


@check
def disk_full(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        for disk in evidence.get("disks") or ():
            if not disk["total"]:
                continue
            share = disk["free"] / disk["total"]
            # a small file system in memory is small by design: only its share counts
            if (disk["free"] < GIB // 2 and disk["total"] > 8 * GIB) or (share < 0.05 and disk["free"] < 20 * GIB):
                yield Hit(host, [f"{disk['path']}: {_gib(disk['free'])} of {_gib(disk['total'])} free"])
            elif disk["inodes"] and disk["inodes_free"] / disk["inodes"] < 0.01:
                yield Hit(host, [f"{disk['path']}: {disk['inodes_free']} of {disk['inodes']} inodes free"])


@check
def clock_skew(case: Case) -> Iterator[Hit]:
    """Clocks that are certainly apart, whatever part of the time between question and answer was the way."""
    clocks = {host: case.clocks[host] for host in case.hosts if host in case.clocks}
    apart: dict[str, list[str]] = {}
    for host, (low, high) in clocks.items():
        for other, (their_low, their_high) in clocks.items():
            gap = max(low - their_high, their_low - high)
            if other != host and gap > SKEW:
                apart.setdefault(host, []).append(other)
    while apart:
        odd = max(apart, key=lambda host: (len(apart[host]), host != case.hosts[0]))
        others = apart.pop(odd)
        low, high = clocks[odd]
        middle = sorted(sum(clocks[other]) / 2 for other in others)[len(others) // 2]
        ahead = (low + high) / 2 - middle
        yield Hit(
            odd,
            [f"its clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} {', '.join(others)}"],
        )
        for other in others:
            if other in apart:
                apart[other] = [name for name in apart[other] if name != odd]
                if not apart[other]:
                    del apart[other]


# --- network ----------------------------------------------------------------------------------------------------------

End = tuple[str, str]


def _cables(case: Case) -> Iterator[dict[str, list[End]]]:
    """Cables as halves: name of a half → its ends.  A cable to a switch has one end that we can see."""
    seen: set[End] = set()
    for host in case.hosts:
        ports: dict[tuple[str, str], list[Mapping[str, t.Any]]] = {}
        for link in case.links(host):
            ports.setdefault((neighbors.port_of(link["netdev"]), link.get("peer") or ""), []).append(link)
        for (_port, peer), links in ports.items():
            if (host, links[0]["netdev"]) in seen:
                continue
            halves: dict[str, list[End]] = {}
            for link in links:
                ends = [(host, link["netdev"])]
                if peer and link.get("peer_netdev"):
                    ends.append((peer, link["peer_netdev"]))
                seen.update(ends)
                halves[link["netdev"]] = ends
            yield halves


def _carrier(case: Case, end: End) -> bool | None:
    host, netdev = end
    if host not in case.evidence:
        return None
    interface = case.interfaces(host).get(netdev)
    return bool(interface and interface["carrier"])


def _words(case: Case, end: End) -> str:
    interface = case.interfaces(end[0]).get(end[1])
    if interface is None:
        return f"{end[0]}: {end[1]} is absent"
    if not interface["up"]:
        return f"{end[0]}: {end[1]} is set down"
    return f"{end[0]}: {end[1]} has {'a' if interface['carrier'] else 'no'} carrier"


def _dark(case: Case, ends: Sequence[End]) -> bool:
    return any(_carrier(case, end) is False for end in ends)


@check
def half_cable(case: Case) -> Iterator[Hit]:
    for halves in _cables(case):
        dark = [name for name, ends in halves.items() if _dark(case, ends)]
        if dark and len(dark) < len(halves):
            ends = [end for name in dark for end in halves[name]]
            hosts = tuple(dict.fromkeys(host for host, _netdev in ends))
            seen = [_words(case, end) for end in ends if end[0] in case.evidence]
            seen.append(f"the other half, {', '.join(name for name in halves if name not in dark)}, is up")
            yield Hit(hosts[0], seen, ", ".join(dark), hosts)


@check
def cable_down(case: Case) -> Iterator[Hit]:
    for halves in _cables(case):
        if halves and all(_dark(case, ends) for ends in halves.values()):
            ends = [end for each in halves.values() for end in each]
            hosts = tuple(dict.fromkeys(host for host, _netdev in ends))
            seen = [_words(case, end) for end in ends if end[0] in case.evidence]
            yield Hit(hosts[0], seen, ", ".join(halves), hosts)


def _failing_pairs(case: Case, failed: Callable[[Mapping[str, t.Any]], bool]) -> Iterator[tuple[End, list[End], str]]:
    """Who cannot talk to whom, told by the fewest ends that explain it: one dead port is not a failure per peer."""
    owners = {
        link["address"].partition("/")[0]: (host, link["netdev"]) for host in case.hosts for link in case.links(host)
    }
    pairs: dict[frozenset[End], str] = {}
    for host, evidence in _hosts(case):
        for ping in evidence.get("pings") or ():
            end, other = (host, ping["netdev"]), owners.get(ping["address"])
            if other is None or other[0] not in case.evidence or not failed(ping):
                continue
            if _carrier(case, end) and _carrier(case, other):
                pairs.setdefault(
                    frozenset((end, other)), f"{host}: {ping['netdev']} to {ping['address']}: {ping['error']}"
                )
    while pairs:
        degree: dict[End, int] = {}
        for pair in pairs:
            for end in pair:
                degree[end] = degree.get(end, 0) + 1
        worst = max(sorted(degree), key=lambda end: degree[end])
        mine = [pair for pair in pairs if worst in pair]
        others = sorted(end for pair in mine for end in pair if end != worst)
        text = pairs[mine[0]]
        for pair in mine:
            del pairs[pair]
        yield worst, others, text


@check
def link_silent(case: Case) -> Iterator[Hit]:
    for end, others, text in _failing_pairs(case, lambda ping: not ping["small"]):
        hosts = tuple(dict.fromkeys((end[0], *(host for host, _netdev in others))))
        peers = ", ".join(f"{host} {netdev}" for host, netdev in others)
        yield Hit(end[0], [f"{end[1]} has a carrier, yet nothing passes to {peers}", text], end[1], hosts)


@check
def path_mtu(case: Case) -> Iterator[Hit]:
    for end, others, text in _failing_pairs(case, lambda ping: ping["small"] and not ping["full"]):
        hosts = tuple(dict.fromkeys((end[0], *(host for host, _netdev in others))))
        peers = ", ".join(f"{host} {netdev}" for host, netdev in others)
        yield Hit(end[0], [f"{end[1]}: small packets reach {peers}, full ones do not", text], end[1], hosts)


@check
def mtu_mismatch(case: Case) -> Iterator[Hit]:
    by_subnet: dict[IPv4Network, list[tuple[str, Mapping[str, t.Any], int]]] = {}
    for host, _evidence in _hosts(case):
        for link in case.links(host):
            interface = case.interfaces(host).get(link["netdev"])
            if interface:
                by_subnet.setdefault(IPv4Interface(link["address"]).network, []).append((host, link, interface["mtu"]))
    for ends in by_subnet.values():
        planned = next((link["mtu"] for _host, link, _mtu in ends if link.get("mtu")), None)
        values = [mtu for _host, _link, mtu in ends]
        usual = planned or max(sorted(values, reverse=True), key=values.count)
        for host, link, mtu in ends:
            if mtu != usual:
                others = tuple(other for other, _link, _mtu in ends if other != host)
                what = f"planned are {usual}" if planned else f"the other end has {usual}"
                yield Hit(host, [f"{link['netdev']} has an MTU of {mtu}, {what}"], link["netdev"], (host, *others))


@check
def address_missing(case: Case) -> Iterator[Hit]:
    for host, _evidence in _hosts(case):
        interfaces = case.interfaces(host)
        for link in case.links(host):
            interface = interfaces.get(link["netdev"])
            if interface is None or not interface["carrier"]:
                continue
            have = [item["address"] for item in interface["addresses"] if item["family"] == "inet"]
            if link["address"] not in have:
                peers = (link["peer"],) if link.get("peer") else ()
                seen = f"{link['netdev']} lacks {link['address']}, it has {', '.join(have) or 'no address'}"
                yield Hit(host, [seen], link["netdev"], (host, *peers))


@check
def same_subnet(case: Case) -> Iterator[Hit]:
    for host, _evidence in _hosts(case):
        found: list[tuple[str, str, IPv4Network]] = []
        for name, interface in case.interfaces(host).items():
            if interface.get("virtual") or name == "lo":
                continue
            for item in interface["addresses"]:
                network = fabric_check.network_of(item["address"])
                if network is None or item.get("scope") == "link" or network.prefixlen == 32:
                    continue
                for other, address, existing in found:
                    if other != name and existing.overlaps(network):
                        yield Hit(host, [f"{other} has {address} and {name} has {item['address']}"], f"{other}, {name}")
                found.append((name, item["address"], network))


@check
def foreign_route(case: Case) -> Iterator[Hit]:
    for host, _evidence in _hosts(case):
        own = {}
        for link in case.links(host):
            own[IPv4Interface(link["address"]).network] = link["netdev"]
        interfaces = case.interfaces(host).values()
        addresses = {item["address"].partition("/")[0] for link in interfaces for item in link["addresses"]}
        for route in case.node(host).get("routes") or ():
            network = fabric_check.network_of(route["dst"])
            if network is None or route.get("protocol") == "kernel" or network.prefixlen == 0:
                continue
            hit = next((netdev for subnet, netdev in own.items() if subnet.overlaps(network)), "")
            if hit:
                via = f" via {route['gateway']}" if route.get("gateway") else ""
                self_made = ", its own address" if route.get("gateway") in addresses else ""
                seen = f"{route['dst']}{via} dev {route['dev']} proto {route.get('protocol') or '-'}{self_made}"
                yield Hit(host, [f"{seen}: covers the subnet of {hit}"], route["dev"])


@check
def rdma_absent(case: Case) -> Iterator[Hit]:
    if not case.roce:
        return
    for host, evidence in _hosts(case):
        by_netdev = {link["netdev"]: link for link in (evidence.get("rdma") or {}).get("links") or ()}
        lacking = [
            link["netdev"]
            for link in case.links(host)
            if link["netdev"] not in by_netdev and link["netdev"] in case.interfaces(host)
        ]
        if lacking:
            yield Hit(host, [f"no RDMA device belongs to {', '.join(lacking)}"], ", ".join(lacking))


@check
def nic_throttled(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        planned = {link["netdev"] for link in case.links(host)}
        for link in (evidence.get("rdma") or {}).get("links") or ():
            rate = link.get("rate")
            if link["netdev"] in planned and link["state"] == "up" and rate and rate < 200:
                yield Hit(host, [f"{link['device']} runs at {rate:g} of 200 Gb/s"], link["netdev"])
        for netdev, values in (evidence.get("pcie") or {}).items():
            if netdev not in planned:
                continue
            for key, unit in (("width", " lanes"), ("speed", "")):
                now, most = values.get(f"current_link_{key}", ""), values.get(f"max_link_{key}", "")
                # a ConnectX-7 has more lanes than the four that each half of a Spark's cage gives it
                limit = min(_first(most), 4.0) if key == "width" else _first(most)
                if now and most and _first(now) < limit:
                    yield Hit(host, [f"{netdev}: PCIe {key} is {now}{unit}, it could be {most}{unit}"], netdev)


def _first(text: str) -> float:
    match = re.match(r"\s*(\d+(?:\.\d+)?)", text)
    return float(match[1]) if match else 0.0


@check
def gid_moved(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        pinned: dict[str, str] = {}
        for name, content in (evidence.get("nccl") or {}).items():
            if "NCCL_IB_GID_INDEX" in content["settings"]:
                pinned[name] = content["settings"]["NCCL_IB_GID_INDEX"]
        for where, environment in _environments(evidence):
            if "NCCL_IB_GID_INDEX" in environment:
                pinned[where] = environment["NCCL_IB_GID_INDEX"]
        planned = {link["netdev"] for link in case.links(host)}
        for where, value in pinned.items():
            if not value.strip().isdigit():
                continue
            for link in (evidence.get("rdma") or {}).get("links") or ():
                if link["netdev"] in planned and link.get("gid_index") not in (None, int(value)):
                    real = f"the RoCE v2 address of {link['device']} is at index {link['gid_index']}"
                    yield Hit(host, [f"{where} pins NCCL_IB_GID_INDEX={value.strip()}, {real}"], where)


@check
def forward_drop(case: Case) -> Iterator[Hit]:
    """Somebody routes through this host, and this host's FORWARD chain drops it."""
    for host, evidence in _hosts(case):
        forward = evidence.get("forward") or {}
        if forward.get("policy") != "drop":
            continue
        own = {link["address"].partition("/")[0] for link in case.links(host)}
        netdevs = {link["netdev"] for link in case.links(host)}
        if netdevs and netdevs <= set(forward.get("accepts") or ()):
            continue
        for other, _theirs in _hosts(case):
            through = [
                route for route in case.node(other).get("routes") or () if other != host and route.get("gateway") in own
            ]
            if through:
                routes = ", ".join(f"{route['dst']} via {route['gateway']}" for route in through)
                by = " (Docker's)" if forward.get("docker") else ""
                yield Hit(
                    host,
                    [f"{other} routes {routes}", f"{host}: policy of chain FORWARD is DROP{by}"],
                    hosts=(host, other),
                )


# --- NCCL -------------------------------------------------------------------------------------------------------------


def _is_on(value: str) -> bool:
    return value.strip() not in ("", "0")


@check
def ib_disabled_host(case: Case) -> Iterator[Hit]:
    if not case.roce:
        return
    for host, evidence in _hosts(case):
        for name, content in (evidence.get("nccl") or {}).items():
            if _is_on(content["settings"].get("NCCL_IB_DISABLE", "0")):
                yield Hit(host, [f"{name}: NCCL_IB_DISABLE={content['settings']['NCCL_IB_DISABLE']}"], name)
        value = _file_environment(evidence).get("NCCL_IB_DISABLE", "0")
        if _is_on(value):
            yield Hit(host, [f"/etc/sparkthor/fabric.env: NCCL_IB_DISABLE={value}"], "/etc/sparkthor/fabric.env")


@check
def ib_disabled_engine(case: Case) -> Iterator[Hit]:
    """In the engine's own environment, or in the file that its image carries."""
    if not case.roce:
        return
    for host, evidence in _hosts(case):
        file_says = _is_on(_file_environment(evidence).get("NCCL_IB_DISABLE", "0"))
        for process in evidence.get("processes") or ():
            name = f"{process['program']} (process {process['pid']})"
            value = process["env"].get("NCCL_IB_DISABLE")
            if value is not None and _is_on(value) and not file_says:
                yield Hit(host, [f"environment of {name}: NCCL_IB_DISABLE={value}"], name)
            elif value is None and _is_on((process.get("nccl_conf") or {}).get("NCCL_IB_DISABLE", "0")):
                yield Hit(host, [f"/etc/nccl.conf inside the image of {name}: NCCL_IB_DISABLE=1"], name)


@check
def mixed_transport(case: Case) -> Iterator[Hit]:
    """On a lan all ranks need sockets; one that may use RDMA makes the others fail."""
    if not case.cluster or case.cluster["profile"] != "tcp" or len(case.hosts) < 2:
        return
    for host, evidence in _hosts(case):
        if not (evidence.get("rdma") or {}).get("links"):
            continue
        for where, environment in _environments(evidence):
            conf = (evidence.get("nccl") or {}).get("/etc/nccl.conf", {}).get("settings", {})
            if not _is_on(environment.get("NCCL_IB_DISABLE", conf.get("NCCL_IB_DISABLE", "0"))):
                yield Hit(
                    host, [f"{where}: NCCL_IB_DISABLE is not 1, though this host has RDMA and others do not"], where
                )


@check
def nccl_line_ineffective(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        for name, content in (evidence.get("nccl") or {}).items():
            for line in content["ineffective"]:
                yield Hit(host, [f"{name} line {line['line']}: {tidy(line['text'])!r}: {line['reason']}"], name)


def _absent_names(key: str, value: str, nics: Iterable[str], devices: Iterable[str]) -> list[str]:
    """Names in one variable that nothing on the host answers to, as the library reads it."""
    value = value.strip()
    if not value or value.startswith("^") or value in ("all", "any"):
        return []
    exact = not key.startswith("NCCL_") or value.startswith("=")
    wanted = [item.strip() for item in value.lstrip("=").split(",") if item.strip()]
    known = list(devices) if key == "NCCL_IB_HCA" else [*nics, *devices]
    missing = []
    for item in wanted:
        name = item.split(":")[0]
        if not any(have == name if exact else have.startswith(name) for have in known):
            missing.append(name)
    # a prefix list is an offer: one that is there will do
    return missing if exact or len(missing) == len(wanted) else []


_NAMING = (
    *("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES"),
    *("OMPI_MCA_btl_tcp_if_include", "NCCL_IB_HCA"),
)


@check
def nic_name_absent(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        nics = case.interfaces(host)
        devices = [link["device"] for link in (evidence.get("rdma") or {}).get("links") or ()]
        if not nics:
            continue
        for where, environment in _environments(evidence):
            for key in _NAMING:
                missing = _absent_names(key, environment.get(key, ""), nics, devices)
                if missing:
                    yield Hit(host, [f"{where}: {key}={environment[key]}, but {', '.join(missing)} is not here"], where)


@check
def environment_differs(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        environment = _file_environment(evidence)
        planned = ((case.fabric or {}).get(host) or {}).get("env") or {}
        if not environment:
            continue
        wrong = [
            f"{key} is {environment.get(key, 'absent')}, planned {value}"
            for key, value in sorted(planned.items())
            if environment.get(key) != str(value)
        ]
        extra = sorted(key for key in environment if key.startswith("NCCL_") and key not in planned)
        wrong += [f"{key}={environment[key]} is not planned" for key in extra]
        if planned and wrong:
            yield Hit(host, wrong, "/etc/sparkthor/fabric.env")


# --- Ray --------------------------------------------------------------------------------------------------------------


def _flag(argv: Sequence[str], name: str) -> str:
    for word in argv:
        key, _sep, value = word.partition("=")
        if key.lstrip("-").replace("-", "_") == name:
            return value
    return ""


def _raylets(evidence: Evidence) -> Iterator[Mapping[str, t.Any]]:
    return (process for process in evidence.get("processes") or () if process["program"] == "raylet")


@check
def ray_wrong_nic(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        planned = ((case.fabric or {}).get(host) or {}).get("control_address")
        for process in _raylets(evidence):
            used = _flag(process["argv"], "node_ip_address")
            if planned and used and used != planned:
                nic = next(
                    (
                        name
                        for name, link in case.interfaces(host).items()
                        if any(item["address"].startswith(f"{used}/") for item in link["addresses"])
                    ),
                    "no NIC of this host",
                )
                yield Hit(host, [f"raylet runs on {used} ({nic}), planned is {planned}"], f"process {process['pid']}")


@check
def ray_absent(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        engine = evidence.get("engine") or {}
        wants = any(
            str(serve.get("distributed-executor-backend", "")) == "ray" and serve.where.endswith(".yaml")
            for serve in case.serves
        ) or bool((evidence.get("files") or {}).get("ray.json"))
        if engine.get("present") and engine["versions"].get("vllm") and "ray" not in engine["versions"] and wants:
            yield Hit(host, [f"/opt/sparkthor/venv has vllm {engine['versions']['vllm']} and no ray"])


@check
def object_store_large(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        total = (evidence.get("memory") or {}).get("MemTotal", 0)
        for process in _raylets(evidence):
            value = _flag(process["argv"], "object_store_memory")
            if value.isdigit() and int(value) > 8 * GIB:
                seen = f"object store of {_gib(int(value))} of {_gib(total)} memory"
                yield Hit(host, [seen], f"process {process['pid']}")


@check
def memory_monitor_on(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        for process in _raylets(evidence):
            value = process["env"].get("RAY_memory_monitor_refresh_ms")
            if process["env"] and value != "0":
                seen = f"RAY_memory_monitor_refresh_ms is {value or 'not set'} in raylet's environment"
                yield Hit(host, [seen], f"process {process['pid']}")


@check
def ray_without_token(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        for process in _raylets(evidence):
            if process["env"] and process["env"].get("RAY_AUTH_MODE") != "token":
                yield Hit(host, ["RAY_AUTH_MODE is not token in raylet's environment"], f"process {process['pid']}")


@check
def gpus_invented(case: Case) -> Iterator[Hit]:
    """Ray was told of more GPUs than the host has."""
    for host, evidence in _hosts(case):
        real = int(case.node(host).get("gpus") or 0)
        for process in _raylets(evidence):
            match = re.search(r"(?:^|,)GPU,(\d+)", _flag(process["argv"], "static_resource_list"))
            if match and real and int(match[1]) > real:
                yield Hit(host, [f"Ray books {match[1]} GPUs, nvidia-smi lists {real}"], f"process {process['pid']}")


@check
def token_differs(case: Case) -> Iterator[Hit]:
    values: dict[str, list[str]] = {}
    for host, evidence in _hosts(case):
        secret = (evidence.get("secrets") or {}).get("ray_token")
        if secret:
            values.setdefault(secret["sha256"], []).append(host)
    if len(values) < 2:
        return
    # the head's counts: workers join it
    heads = [value for value, hosts in values.items() if case.hosts[0] in hosts]
    usual = heads[0] if heads else max(values, key=lambda value: len(values[value]))
    for value, hosts in values.items():
        if value != usual:
            for host in hosts:
                yield Hit(
                    host, [f"its token is not that of {', '.join(values[usual])}"], "/etc/sparkthor/secrets/ray_token"
                )


@check
def dashboard_open(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        port = int((_json_file(evidence, "ray.json").get("ports") or {}).get("dashboard", 8265) or 8265)
        for listener in evidence.get("listeners") or ():
            if listener["port"] == port and not _is_loopback(listener["address"]):
                yield Hit(host, [f"{listener['program'] or 'a program'} listens on {listener['address']}:{port}"])


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


@check
def ray_unhealthy(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        for problem in (evidence.get("ray") or {}).get("problems") or ():
            if problem["code"] in ("token_missing", "token_refused", "engine_absent"):
                continue
            about = problem.get("node") or host
            about = about if about in case.hosts else host
            yield Hit(about, [problem["cause"]], mend=problem["mend"], hosts=(about,))


@check
def unit_down(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        units = evidence.get("units") or {}
        paused = "maintenance" in (evidence.get("files") or {})
        for name in ("sparkthor-ray", "sparkthor-vllm", "sparkthor-front", "sparkthor-watchdog"):
            unit = units.get(f"{name}.service") or {}
            if unit.get("LoadState") != "loaded" or unit.get("UnitFileState") not in ("enabled", "static", "linked"):
                continue
            state, restarts = unit.get("ActiveState", ""), int(unit.get("NRestarts") or 0)
            stuck = state == "activating" and (unit.get("SubState") == "auto-restart" or restarts > 2)
            if state in ("failed", "inactive") or stuck:
                if paused and name in ("sparkthor-vllm", "sparkthor-watchdog"):
                    continue
                how = f"{state} ({unit.get('SubState')}), result {unit.get('Result')}, {restarts} restarts"
                seen = f"{name}.service is {how}"
                yield Hit(host, [seen], f"{name}.service")


@check
def memlock_limited(case: Case) -> Iterator[Hit]:
    if not case.roce:
        return
    for host, evidence in _hosts(case):
        for name in ("sparkthor-ray.service", "sparkthor-vllm.service"):
            unit = (evidence.get("units") or {}).get(name) or {}
            limit = unit.get("LimitMEMLOCK", "")
            if unit.get("LoadState") == "loaded" and limit not in ("", "infinity", str(2**64 - 1)):
                yield Hit(host, [f"{name}: LimitMEMLOCK is {limit} bytes"], name)
        for process in evidence.get("processes") or ():
            if process.get("contained") and 0 < process["memlock"] < GIB:
                who = f"{process['program']} (process {process['pid']}, in a container)"
                yield Hit(host, [f"{who} may lock {process['memlock'] // 1024} KiB"], who)


@check
def not_serving(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        state = _json_file(evidence, "state.json")
        if not state or "maintenance" in (evidence.get("files") or {}):
            continue
        old = float(evidence.get("ended") or 0) - float(state.get("updated") or 0) > 60
        if not old and state.get("state") in ("degraded", "restarting"):
            yield Hit(host, [str(state.get("line") or state["state"])], "the watchdog")


# --- arguments of the engine ------------------------------------------------------------------------------------------


def _share(serve: Serve) -> float:
    try:
        return float(serve.get("gpu-memory-utilization", 0))
    except (TypeError, ValueError):
        return 0.0


@check
def utilization_high(case: Case) -> Iterator[Hit]:
    for serve in case.serves:
        if UTILIZATION_EDGE < _share(serve) <= 1:
            yield Hit(serve.host, [f"gpu-memory-utilization {_share(serve):g}"], serve.where)


@check
def tool_parser_alone(case: Case) -> Iterator[Hit]:
    for serve in case.serves:
        parser, auto = serve.get("tool-call-parser"), bool(serve.get("enable-auto-tool-choice"))
        if parser and not auto:
            yield Hit(serve.host, [f"tool-call-parser {parser} without enable-auto-tool-choice"], serve.where)
        elif auto and not parser:
            yield Hit(serve.host, ["enable-auto-tool-choice without tool-call-parser"], serve.where)


@check
def think_swallowed(case: Case) -> Iterator[Hit]:
    for serve in case.serves:
        old = bool(serve.version) and release(serve.version)[:2] <= (0, 11)
        if old and serve.get("reasoning-parser") == "qwen3" and "thinking" in serve.model.lower():
            yield Hit(serve.host, [f"reasoning-parser qwen3 for {serve.model} with vLLM {serve.version}"], serve.where)


def _tensor_parallel(serve: Serve) -> int:
    try:
        return int(serve.get("tensor-parallel-size", 1))
    except (TypeError, ValueError):
        return 1


def _indivisible(case: Case, blocks: bool) -> Iterator[Hit]:
    for serve in case.serves:
        served = (case.evidence.get(serve.host) or {}).get("served_model") or {}
        if not served.get("config") or served.get("path") != serve.model:
            continue
        try:
            experts = bool(serve.get("enable-expert-parallel"))
            problems = parallel.tensor_problems(served["config"], _tensor_parallel(serve), experts)
        except (SizingError, KeyError, TypeError, ValueError):
            continue
        mine = [problem for problem in problems if ("FP8 block" in problem) is blocks]
        if mine:
            yield Hit(serve.host, [f"tensor-parallel-size {_tensor_parallel(serve)}: {mine[0]}"], serve.where)


@check
def heads_indivisible(case: Case) -> Iterator[Hit]:
    return _indivisible(case, blocks=False)


@check
def fp8_block_indivisible(case: Case) -> Iterator[Hit]:
    return _indivisible(case, blocks=True)


@check
def option_gone(case: Case) -> Iterator[Hit]:
    for serve in case.serves:
        for name in sorted(set(serve.args) & set(REMOVED)):
            if name == "swap-space" and serve.version and release(serve.version)[:2] < (0, 20):
                continue
            yield Hit(serve.host, [f"{name}: {serve.args[name]!r}"], serve.where, mend=f"{name}: {REMOVED[name]}")


@check
def quantization_nvfp4(case: Case) -> Iterator[Hit]:
    for serve in case.serves:
        if serve.get("quantization") == "nvfp4":
            yield Hit(serve.host, ["quantization: nvfp4"], serve.where)


@check
def eager_enforced(case: Case) -> Iterator[Hit]:
    for serve in case.serves:
        if serve.get("enforce-eager") is True:
            yield Hit(serve.host, ["enforce-eager is on"], serve.where)


@check
def executor_not_named(case: Case) -> Iterator[Hit]:
    for serve in case.serves:
        try:
            world = _tensor_parallel(serve) * int(serve.get("pipeline-parallel-size", 1))
        except (TypeError, ValueError):
            continue
        gpus = int(case.node(serve.host).get("gpus") or 1)
        named = serve.get("distributed-executor-backend") or serve.get("nnodes")
        if world > gpus and not named and serve.host in case.evidence:
            yield Hit(serve.host, [f"{world} ranks, {gpus} GPU here, and no distributed-executor-backend"], serve.where)


@check
def api_key_empty(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        secret = (evidence.get("secrets") or {}).get("api_key")
        if secret is not None and secret["characters"] < 16:
            seen = f"{secret['characters']} characters" if secret["characters"] else "empty"
            yield Hit(host, [f"/etc/sparkthor/secrets/api_key is {seen}"], "/etc/sparkthor/secrets/api_key")
        for process in evidence.get("processes") or ():
            if process["program"] == "vllm" and process["api_key"] == "empty":
                yield Hit(host, ["VLLM_API_KEY is set and empty"], f"process {process['pid']}")


@check
def api_open(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        for process in evidence.get("processes") or ():
            args = parse_argv(process["argv"])
            if process["program"] != "vllm" or process["api_key"] or "config" in args:
                continue
            address = str(args.get("host", "0.0.0.0"))
            if "api-key" not in args and "uds" not in args and not _is_loopback(address):
                port = args.get("port", 8000)
                yield Hit(host, [f"vllm serve listens on {address}:{port} without a key"], f"process {process['pid']}")


# --- models -----------------------------------------------------------------------------------------------------------


@check
def hub_links_broken(case: Case) -> Iterator[Hit]:
    for host, evidence in _hosts(case):
        for model in evidence.get("models") or ():
            if model["broken_count"]:
                names = ", ".join(model["broken"][:3])
                yield Hit(
                    host, [f"{model['path']}: {model['broken_count']} links lead nowhere: {names}"], model["path"]
                )


@check
def revision_differs(case: Case) -> Iterator[Hit]:
    by_name: dict[str, dict[str, list[str]]] = {}
    for host, evidence in _hosts(case):
        for model in evidence.get("models") or ():
            if model["revision"]:
                by_name.setdefault(model["name"], {}).setdefault(model["revision"], []).append(host)
    for name, revisions in by_name.items():
        if len(revisions) < 2:
            continue
        with_it = [host for host in case.hosts if any(host in hosts for hosts in revisions.values())]
        usual = max(revisions, key=lambda value: (len(revisions[value]), with_it[0] in revisions[value]))
        for revision, hosts in revisions.items():
            if revision != usual:
                for host in hosts:
                    yield Hit(host, [f"{name} is at {revision}, but {usual} on {', '.join(revisions[usual])}"], name)


@check
def model_absent(case: Case) -> Iterator[Hit]:
    paths = {serve.model for serve in case.serves if serve.where.endswith(".yaml") and serve.model.startswith("/")}
    for host, evidence in _hosts(case):
        known = {model["path"] for model in evidence.get("models") or ()}
        served = evidence.get("served_model") or {}
        for path in sorted(paths):
            here = served.get("present") if served.get("path") == path else path in known
            if not here:
                yield Hit(host, [f"{path} has no config.json" if path in known else f"{path} is not there"], path)
