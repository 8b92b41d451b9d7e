# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the role ``firewall``: which can stand in a ruleset, and addresses as nftables takes them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any

# An interface name ends up between quotes in the ruleset
_INTERFACE = re.compile(r"[A-Za-z0-9_.:@-]{1,15}")


class RulesetValueError(ValueError):
    """A value that cannot stand in a ruleset; the message says the value and the fix."""


def sources(values: Iterable[str]) -> list[str]:
    """``ip saddr { … } `` and ``ip6 saddr { … } ``, as far as there are some.

    Networks are in order of address, none inside another: nftables refuses overlaps in a set.
    Raises RulesetValueError for what is no address and no network.
    """
    networks: dict[int, list[Any]] = {4: [], 6: []}
    for value in values:
        try:
            interface = ipaddress.ip_interface(value)
        except ValueError:
            raise RulesetValueError(
                f"{value!r} is not an address or a network; write it like 192.168.1.0/24 or 2001:db8::1"
            ) from None
        network = interface.network
        if interface.ip != network.network_address:
            raise RulesetValueError(f"{value!r} names a host and a network at once; did you mean {network}?")
        networks[network.version].append(network)
    return [
        f"{family} saddr {{ {', '.join(map(_short, ipaddress.collapse_addresses(networks[version])))} }} "
        for family, version in (("ip", 4), ("ip6", 6))
        if networks[version]
    ]


def _short(network: Any) -> str:
    return str(network).removesuffix(f"/{network.max_prefixlen}")


def _port(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise RulesetValueError(f"{value!r} is not a port; use a number from 1 to 65535")


def _interface(value: Any) -> None:
    if not isinstance(value, str) or not _INTERFACE.fullmatch(value):
        raise RulesetValueError(f"{value!r} is not the name of a network interface; correct it")


def check(given: Mapping[str, Any]) -> dict[str, str]:
    """By variable of the role what is wrong with its value, and after a semicolon the fix."""
    problems = {}
    for name in ("ssh_ports", "tcp_ports", "udp_ports", "ssh_sources", "api_sources", "sources", "interfaces"):
        variable = f"firewall_{name}"
        values = given.get(variable)
        if not isinstance(values, list):
            continue
        try:
            if name.endswith("sources"):
                sources(values)
            for value in values:
                if name.endswith("ports"):
                    _port(value)
                elif name == "interfaces":
                    _interface(value)
        except RulesetValueError as error:
            problems[variable] = str(error)
    if given.get("firewall_ssh_ports") == []:
        problems["firewall_ssh_ports"] = "an empty list would shut every way in; name at least one port"
    return problems
