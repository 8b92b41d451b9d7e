# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this run would take from somebody: ports that the firewall closes, and Wi-Fi that ends with the desktop."""

from __future__ import annotations

import shlex
import typing as t
from collections.abc import Collection, Mapping

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import WARNING, Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall_watch import RULES
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import role_specs
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.facts import Node, interfaces_of
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.network_check import VPNS

#: the inventory's variables that decide what is lost
READS: t.Final = (
    *("firewall_enabled", "firewall_sources", "firewall_interfaces", "firewall_tcp_ports", "firewall_ssh_ports"),
    *("firewall_udp_ports", "firewall_api_port", "vllm_serve_api_port", "ansible_port", "os_hardening_headless"),
)
#: a container engine hands these on before the firewall's table sees them
_FORWARDED = ("docker-proxy",)
#: names of neighbours without a DNS, which systemd-resolved answers on every host whether anybody asks or not
_LLMNR = 5355
#: where programs hear answers, or what others announce: DHCP, NTP, chronyc, printers, SSDP, WS-Discovery, mDNS, and
#: RoCE, which trusted hosts alone send
_ASKING = frozenset((68, 123, 323, 546, 631, 1900, 3702, 4791, 5353, _LLMNR))
#: from here on the kernel gives ports to whoever asks for any (ip_local_port_range)
_GIVEN_OUT = 32768
#: by which a tunnel of a VPN may end here; WireGuard's socket is the kernel's, and has no program
_TUNNELS = frozenset(
    ("", "openvpn", "wireguard-go", "boringtun", "boringtun-cli", "charon", "charon-systemd", "nebula")
)
#: VPNs that open their way from inside
_THROUGH = frozenset(("tailscaled", "netbird", "zerotier-one", "warp-svc"))
_BRIDGES = ("docker", "br-", "podman", "cni")


def exposure_problems(
    host: str,
    exposure: Mapping[str, t.Any],
    node: Node,
    variables: Mapping[str, t.Any],
    roles: Collection[str],
    head: bool = False,
) -> list[Finding]:
    """``exposure`` as the host read it, ``variables`` of :data:`READS`, ``roles`` that this run has."""
    problems = []
    if "firewall" in roles and _is_on(variables, "firewall_enabled"):
        problems += _other_firewalls(host, exposure.get("others", ()))
        if not exposure.get("firewall", True):
            problems += _closed(host, exposure, node, variables, head)
    elif "firewall" in roles and exposure.get("firewall"):
        problems.append(_left_behind(host))
    if "os_hardening" in roles and _is_on(variables, "os_hardening_headless"):
        problems += _lost_wifi(host, exposure.get("wifi") or {})
    return problems


def _is_on(variables: Mapping[str, t.Any], name: str) -> bool:
    try:
        return bool(boolean(variables.get(name, True)))
    except TypeError:
        # what is wrong with the value is told by the check of the roles' arguments
        return True


def _ports(variables: Mapping[str, t.Any], name: str, default: t.Any = ()) -> set[int]:
    values = variables.get(name, default)
    values = values if isinstance(values, (list, tuple)) else [values]
    return {int(value) for value in values if str(value).isdigit()}


class _Kept:
    """What the inventory keeps open, beside what listens on this host alone."""

    def __init__(self, node: Node, variables: Mapping[str, t.Any], head: bool) -> None:
        self.trusted = set(variables.get("firewall_interfaces") or ())
        self.nics = interfaces_of(node)
        self._by_address = {
            item["address"].partition("/")[0]: name
            for name, nic in self.nics.items()
            for item in nic.get("addresses", ())
        }
        self.tcp = _ports(variables, "firewall_tcp_ports") | _ports(variables, "firewall_ssh_ports", [22])
        self.tcp |= _ports(variables, "ansible_port", 22) | {_LLMNR}
        if head:
            api = variables.get("vllm_serve_api_port", role_specs.defaults()["vllm_serve_api_port"])
            self.tcp |= _ports(variables, "firewall_api_port", api)
        self.udp = _ports(variables, "firewall_udp_ports") | _ASKING

    def closed(self, listeners: t.Iterable[Mapping[str, t.Any]], kept: Collection[int]) -> dict[int, str]:
        """Programs by the port that is open to others now, and will not be."""
        programs: dict[int, str] = {}
        for listener in listeners:
            address, port, program = listener["address"], int(listener["port"]), listener["program"]
            local = address.removeprefix("::ffff:").startswith("127.") or address == "::1"
            if local or port in kept or program in _FORWARDED or self._by_address.get(address) in self.trusted:
                continue
            programs.setdefault(port, program)
        return programs

    def closed_udp(self, listeners: t.Iterable[Mapping[str, t.Any]]) -> dict[int, str]:
        """Without what programs ask from: of the ports that the kernel gives out, a tunnel's alone is a service."""
        found = self.closed(listeners, self.udp)
        return {
            port: program
            for port, program in found.items()
            if program not in _THROUGH and (port < _GIVEN_OUT or program in _TUNNELS)
        }

    def outside_is_open(self, node: Node, variables: Mapping[str, t.Any]) -> bool:
        """Whether a tunnel's own packets come in whatever their port."""
        routes = (route["dev"] for route in node.get("routes", ()) if route["dst"] == "default")
        outside = {netdev for netdev in routes if not netdev.startswith(VPNS)}
        everybody = any(str(source).endswith("/0") for source in variables.get("firewall_sources") or ())
        return everybody or (bool(outside) and outside <= self.trusted)


def _words(programs: Mapping[int, str]) -> str:
    return ", ".join(f"{port} ({programs[port]})" if programs[port] else str(port) for port in sorted(programs))


def _closed(
    host: str, exposure: Mapping[str, t.Any], node: Node, variables: Mapping[str, t.Any], head: bool
) -> list[Finding]:
    """One warning for all that would be closed; none where the inventory says by address who may reach every port."""
    kept = _Kept(node, variables, head)
    management = str((node.get("management") or {}).get("netdev") or "")
    found: list[Finding] = []
    udp = kept.closed_udp(exposure.get("udp", ()))
    if management.startswith(VPNS) and not kept.outside_is_open(node, variables):
        ends = {port: program for port, program in udp.items() if program in _TUNNELS}
        found += _way_in(host, management, ends)
        udp = {port: program for port, program in udp.items() if port not in ends}
    if variables.get("firewall_sources"):
        return found
    tcp = kept.closed(exposure["listeners"], kept.tcp)
    if management in kept.trusted:
        tcp, udp = {}, {}
    bridges = sorted(
        name
        for name, nic in kept.nics.items()
        if name.startswith(_BRIDGES) and nic.get("carrier") and name not in kept.trusted
    )
    what, fixes = [], []
    if tcp or udp:
        ports = [_words(tcp)] * bool(tcp) + [f"UDP {_words(udp)}"] * bool(udp)
        what.append(f"the firewall will close {' and '.join(ports)}")
        lists = ["firewall_tcp_ports"] * bool(tcp) + ["firewall_udp_ports"] * bool(udp)
        fixes.append(
            f"list in {' and '.join(lists)} what is to stay open to everybody, or in firewall_sources who may reach "
            "all ports"
        )
    if bridges:
        what.append(f"containers on {', '.join(bridges)} will no longer reach the host's own ports")
        fixes.append(f"firewall_interfaces: [{', '.join(bridges)}] keeps them open for containers")
    if what:
        found.append(
            Finding(
                "closed_ports",
                " and ".join(what),
                "; ".join([*fixes, "firewall_enabled: false leaves the host's firewall alone"]),
                host,
                "TCP ports" if tcp else "UDP ports" if udp else "firewall_interfaces",
                sorted(tcp) or sorted(udp) or sorted(kept.trusted),
                severity=WARNING,
            )
        )
    return found


def _way_in(host: str, netdev: str, ends: Mapping[int, str]) -> list[Finding]:
    """A tunnel that ends here goes on while its connection is known, so the change's own proof would not see it."""
    if not ends:
        return []
    return [
        Finding(
            "closed_way_in",
            f"the controller comes in by {netdev}, a VPN, and the firewall will close UDP {_words(ends)}, by which its "
            "tunnel may come in",
            "list the tunnel's port in firewall_udp_ports",
            host,
            "firewall_udp_ports",
            sorted(ends),
        )
    ]


def _left_behind(host: str) -> Finding:
    units = "sparkthor-firewall.service sparkthor-firewall-watch.service"
    return Finding(
        "firewall_left",
        "the firewall of a former run stays loaded as it is, and knows no host that comes after it",
        f"remove firewall_enabled: false to keep it, or take it away on the host: sudo systemctl disable --now {units} "
        f"&& sudo rm {RULES}",
        host,
        "firewall_enabled",
        False,
        severity=WARNING,
    )


def _other_firewalls(host: str, tables: Collection[str]) -> list[Finding]:
    if not tables:
        return []
    return [
        Finding(
            "other_firewall",
            f"another firewall is active (nftables {', '.join(sorted(tables))}): what it does not accept stays closed, "
            "to the hosts of the cluster as well",
            "switch it off (sudo ufw disable, or sudo systemctl disable --now firewalld), or let it accept the hosts' "
            "addresses and what others are to reach",
            host,
            severity=WARNING,
        )
    ]


def _lost_wifi(host: str, wifi: Mapping[str, t.Any]) -> list[Finding]:
    if not wifi or not (wifi["users"] or wifi["asks"]):
        return []
    name, causes = repr(wifi["name"]), []
    if wifi["users"]:
        causes.append(f"belongs to the desktop session of {', '.join(wifi['users'])}")
    if wifi["asks"]:
        causes.append("gets its password from a desktop session")
    return [
        Finding(
            "wifi",
            f"the controller comes in by Wi-Fi {wifi['netdev']}, whose connection {name} {' and '.join(causes)}: "
            "without a desktop it does not connect after a reboot",
            f"give it to the system (sudo nmcli connection modify {shlex.quote(wifi['name'])} "
            "connection.permissions '' wifi-sec.psk-flags 0 wifi-sec.psk PASSWORD), use the wired port, set "
            "os_hardening_headless: false, or list wifi in preflight_accept",
            host,
            "os_hardening_headless",
            True,
        )
    ]
