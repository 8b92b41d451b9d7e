# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is at the other ends of a host's QSFP cables, while nobody has planned yet who should be.

Our own frames (:mod:`neighbors`) tell of hosts that look at the same time; LLDP, where lldpd runs, tells of switches.
Standard library only: this runs on the hosts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import neighbors, rdma

Runner = Callable[[list[str]], tuple[int, str, str]]


def _items(value: Any) -> list[Any]:
    """lldpctl writes one thing as itself and several as a list; with ``json0`` always as a list."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _text(value: Any) -> str:
    first = next(iter(_items(value)), "")
    return str(first.get("value", "") if isinstance(first, dict) else first)


def parse_lldp(text: str) -> dict[str, dict[str, Any]]:
    """``lldpctl -f json0`` as, by NIC, the neighbour's ``name`` and ``port`` and whether it is a ``bridge``."""
    try:
        interfaces = _items(foreign.parse_object(text)["lldp"])[0]["interface"]
    except (ValueError, KeyError, IndexError, TypeError):
        return {}
    heard = {}
    for entry in _items(interfaces):
        if not isinstance(entry, dict):
            continue
        chassis, port = (next(iter(_items(entry.get(part))), None) or {} for part in ("chassis", "port"))
        if not isinstance(chassis, dict) or not isinstance(port, dict) or not chassis or not entry.get("name"):
            continue
        capabilities = [item for item in _items(chassis.get("capability")) if isinstance(item, dict)]
        heard[str(entry["name"])] = {
            "name": _text(chassis.get("name")) or _text(chassis.get("id")),
            "port": _text(port.get("descr")) or _text(port.get("id")),
            "bridge": any(item.get("type") == "Bridge" and item.get("enabled") for item in capabilities),
        }
    return heard


def survey(
    name: str,
    states: Callable[[], Mapping[str, Mapping[str, Any]]],
    run: Runner,
    seconds: float = 5.0,
    training: float = 5.0,
    change_nothing: bool = False,
    open_netdev: Callable[[str], tuple[neighbors.CagePort, bytes]] = neighbors.open_port,
    root: str = "/",
) -> dict[str, Any]:
    """``{name, ports, neighbours, lldp, raised, errors, seconds}``; all hosts have to do it at the same time.

    ``name`` is what the others see.  ``ports`` holds ``cage, half, up, carrier, plugged, rate`` per NIC of a QSFP cage:
    ``plugged`` is also true where the cable trained although the interface is set down.  Ports that are set down are
    set up for these seconds, unless ``change_nothing``.
    """
    started = time.monotonic()
    before = states()
    here = [netdev for netdev in (*neighbors.SPARK_PORTS, *neighbors.THOR_LANES) if netdev in before]
    errors: dict[str, str] = {}
    down = [netdev for netdev in here if not before[netdev]["up"]]
    with neighbors.raised([] if change_nothing else down, run, errors) as done:
        usable = [netdev for netdev in here if before[netdev]["up"] or netdev in done]
        dark: set[str] = set()

        def now_dark() -> set[str]:
            nonlocal dark
            live = states()
            dark = {netdev for netdev in usable if not live.get(netdev, {}).get("carrier")}
            return dark

        seen, problems = neighbors.exchange(
            name,
            # nobody in particular is expected, so every port listens until nothing more can come
            dict.fromkeys(usable, ("", "")),
            seconds,
            open_netdev,
            dark=now_dark,
            training=training,
            settled=[netdev for netdev in usable if netdev not in done],
        )
        errors.update(problems)
        now_dark()
        links = {link["netdev"]: link for link in rdma.read_links(run, root)["links"]}
    lit = {netdev for netdev in usable if netdev not in dark or seen.get(netdev)}
    rc, out, _err = run(["lldpctl", "-f", "json0"])
    return {
        "name": name,
        "ports": {name: _port(name, bool(before[name]["up"]), name in lit, links.get(name) or {}) for name in here},
        "neighbours": neighbors.plain(seen),
        "lldp": {netdev: item for netdev, item in parse_lldp(out if rc == 0 else "").items() if netdev in here},
        "raised": done,
        "errors": errors,
        "seconds": round(time.monotonic() - started, 2),
    }


def _port(netdev: str, up: bool, carrier: bool, link: Mapping[str, Any]) -> dict[str, Any]:
    """A port as it is; ``link`` is what RDMA says of it."""
    return {
        "cage": rdma.cage_of(netdev, str(link.get("phys_port_name") or "")),
        "half": rdma.half_of(netdev, str(link.get("pci") or "")),
        "up": up,
        "carrier": carrier,
        "plugged": carrier or str(link.get("phys_state", "")).upper().replace("_", "") == "LINKUP",
        "rate": link.get("rate"),
    }
