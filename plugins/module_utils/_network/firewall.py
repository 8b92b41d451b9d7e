# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cluster's own nftables table: from what may come in to the ruleset's text.

Only the table ``inet sparkthor`` is ours, and only what is addressed to the host itself is judged in it.  Forwarding
(Docker's business) and every other table stay as they are.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall_watch import TABLE

MARKER = "# Ansible managed: sparkthor.cluster"
# An interface name ends up between quotes in the ruleset
_INTERFACE = re.compile(r"[A-Za-z0-9_.:@-]{1,15}")
# Neighbour discovery and path MTU discovery; without them IPv6 does not work at all
_ICMPV6 = (
    "destination-unreachable, packet-too-big, time-exceeded, parameter-problem, echo-request, "
    "nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, "
    "mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report"
)


class FirewallError(ValueError):
    """A value that cannot stand in a ruleset; the message names the variable, the value and the fix."""


@dataclass(frozen=True)
class Policy:
    """What may come in besides answers to what the host itself asked for."""

    trusted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ssh_ports: Sequence[int] = (22,)
    ssh_sources: Sequence[str] = ()
    api_port: int = 0
    api_sources: Sequence[str] = ()
    sources: Sequence[str] = ()
    interfaces: Sequence[str] = ()
    tcp_ports: Sequence[int] = ()
    udp_ports: Sequence[int] = ()
    mdns: bool = False
    #: other hosts that may say over VRRP who has the virtual address
    vrrp_peers: Sequence[str] = ()


def _port(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise FirewallError(f"{name}: {value!r} is not a port; use a number from 1 to 65535")
    return value


def _interface(value: Any, name: str) -> str:
    if not isinstance(value, str) or not _INTERFACE.fullmatch(value):
        raise FirewallError(f"{name}: {value!r} is not the name of a network interface")
    return value


def _networks(values: Iterable[str], name: str) -> dict[int, list[str]]:
    """IP version → networks in order of address, none inside another (nftables refuses overlaps in a set)."""
    found: dict[int, list[Any]] = {4: [], 6: []}
    for value in values:
        try:
            interface = ipaddress.ip_interface(value)
        except ValueError:
            raise FirewallError(
                f"{name}: {value!r} is not an address or a network; write it like 192.168.1.0/24 or 2001:db8::1"
            ) from None
        network = interface.network
        if interface.ip != network.network_address:
            raise FirewallError(f"{name}: {value!r} names a host and a network at once; did you mean {network}?")
        found[network.version].append(network)
    texts: dict[int, list[str]] = {}
    for version, networks in found.items():
        merged = ipaddress.collapse_addresses(networks)
        single = f"/{32 if version == 4 else 128}"
        texts[version] = [str(network).removesuffix(single) for network in merged]
    return texts


def _set(items: Iterable[Any]) -> str:
    return "{ " + ", ".join(str(item) for item in items) + " }"


def _from(sources: Sequence[str], name: str, rest: str) -> list[str]:
    """``rest`` for these sources, or for everybody if there are none named."""
    if not sources:
        return [rest]
    networks = _networks(sources, name)
    return [
        f"{family} saddr {_set(networks[version])} {rest}"
        for family, version in (("ip", 4), ("ip6", 6))
        if networks[version]
    ]


def ruleset(policy: Policy) -> str:
    """The whole file.  Loading it replaces our table in one transaction and touches no other."""
    ssh_ports = sorted({_port(port, "firewall_ssh_ports") for port in policy.ssh_ports})
    if not ssh_ports:
        raise FirewallError("firewall_ssh_ports: an empty list would shut every way in; name at least one port")
    rules = [
        'iifname "lo" accept',
        "ct state established,related accept",
        "ip protocol icmp icmp type { destination-unreachable, time-exceeded, parameter-problem, echo-request } accept",
        f"meta l4proto ipv6-icmp icmpv6 type {{ {_ICMPV6} }} accept",
        "ct state invalid drop",
        "udp sport 67 udp dport 68 accept",
        "ip6 saddr fe80::/10 udp sport 547 udp dport 546 accept",
    ]
    for netdev, addresses in sorted(policy.trusted.items()):
        name = _interface(netdev, "trusted")
        if addresses:
            # By interface and source: an address of the fabric means nothing on another network
            rules += _from(addresses, f"trusted on {name}", f'iifname "{name}" accept')
    for netdev in sorted({_interface(name, "firewall_interfaces") for name in policy.interfaces}):
        rules.append(f'iifname "{netdev}" accept')
    if policy.sources:
        rules += _from(policy.sources, "firewall_sources", "accept")
    rules += _from(policy.ssh_sources, "firewall_ssh_sources", f"tcp dport {_set(ssh_ports)} accept")
    if policy.api_port:
        port = _port(policy.api_port, "firewall_api_port")
        rules += _from(policy.api_sources, "firewall_api_sources", f"tcp dport {port} accept")
    for protocol, ports in (("tcp", policy.tcp_ports), ("udp", policy.udp_ports)):
        numbers = sorted({_port(port, f"firewall_{protocol}_ports") for port in ports})
        if numbers:
            rules.append(f"{protocol} dport {_set(numbers)} accept")
    if policy.vrrp_peers:
        rules += _from(policy.vrrp_peers, "vrrp_peers", "ip protocol 112 accept")
    if policy.mdns:
        rules.append("ip daddr 224.0.0.251 udp dport 5353 accept")
        rules.append("ip6 daddr ff02::fb udp dport 5353 accept")
    lines = [
        "#!/usr/sbin/nft -f",
        MARKER,
        "# What may reach this host. Edits are overwritten: change firewall_* in the inventory instead.",
        f"table inet {TABLE}",
        f"delete table inet {TABLE}",
        f"table inet {TABLE} {{",
        "\tchain input {",
        "\t\ttype filter hook input priority filter; policy drop;",
        *(f"\t\t{rule}" for rule in rules),
        "\t}",
        "}",
    ]
    return "\n".join(lines) + "\n"


def restore_text(listing: str) -> str:
    """A ruleset that brings our table back to a listing taken before, or takes it away if there was none."""
    return f"table inet {TABLE}\ndelete table inet {TABLE}\n{listing}"


# Judges nothing.  While it is loaded the kernel starts to follow the connections that are already there.
WARM_UP = f"""table inet {TABLE}
delete table inet {TABLE}
table inet {TABLE} {{
\tchain input {{
\t\ttype filter hook input priority filter; policy accept;
\t\tct state new accept
\t}}
}}
"""
