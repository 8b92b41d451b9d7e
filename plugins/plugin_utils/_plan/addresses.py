# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses and networks: netaddr is the one library for them on the controller.

Hosts need not have it, so nothing that runs on a host imports this file.
"""

from __future__ import annotations

import importlib
import re
import sys
import typing as t
from collections.abc import Iterable
from functools import lru_cache

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError

if t.TYPE_CHECKING:
    from netaddr import IPAddress, IPNetwork


# An address, for IPv6 with or without a zone, and a length or mask; what stands in them is netaddr's to judge.
_INTERFACE_RE: t.Final = re.compile(r"([0-9A-Fa-f:.]+)(%[^\s/%]+)?(/[0-9.]+)?")


def netaddr() -> t.Any:
    """The package that computes with addresses. Its import takes a while, so it waits until there is a plan to make."""
    try:
        return importlib.import_module("netaddr")
    except ImportError:
        raise FabricError(
            "Python package netaddr",
            "not installed",
            "the controller plans the fabric with it",
            f"install it there: {sys.executable} -m pip install netaddr",
        ) from None


def interface_of(text: str) -> IPNetwork:
    """An address in its network; without a length it stands for itself alone. Anything else is a ValueError."""
    library = netaddr()
    match = _INTERFACE_RE.fullmatch(text)
    if match is None or (match[2] and ":" not in match[1]):
        raise ValueError(text)
    try:
        return library.IPNetwork(match[1] + (match[3] or ""))
    except library.AddrFormatError as error:
        raise ValueError(str(error)) from None


def ipv4_interface_of(text: str) -> IPNetwork:
    interface = interface_of(text)
    if interface.version != 4:
        raise ValueError(text)
    return interface


def overlap(one: IPNetwork, other: IPNetwork) -> bool:
    return bool(one.first <= other.last and other.first <= one.last)


def is_everywhere(network: IPNetwork) -> bool:
    """Whether a route to it is a default route: VPNs write that as its two halves, 0.0.0.0/1 and 128.0.0.0/1."""
    return bool(network.prefixlen <= 1)


@lru_cache(4096)
def ipv4_network_of(text: str) -> IPNetwork | None:
    """The IPv4 network that an address with its length, or a network, lies in; None for anything else."""
    try:
        network: IPNetwork = ipv4_interface_of(text).cidr
    except FabricError:
        raise
    except ValueError:
        return None
    return network


@lru_cache(4096)
def subnet_of(text: str) -> str:
    """The network of an address with its length, as text: ``10.0.0.1/24`` is in ``10.0.0.0/24``."""
    return str(interface_of(text).cidr)


def address_of(text: str) -> IPAddress:
    """An address alone, of either version; anything else is a ValueError."""
    library = netaddr()
    try:
        return library.IPAddress(text)
    except library.AddrFormatError as error:
        raise ValueError(str(error)) from None


def common_network(addresses: Iterable[IPAddress]) -> IPNetwork:
    """The smallest network that holds all of these addresses."""
    found = list(addresses)
    return netaddr().spanning_cidr([*found, found[0]])  # it wants two at least
