# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands for a MikroTik switch (CRS5xx, CRS8xx), as far as its recorded configuration lacks them. Pure.

The configuration is what ``/export`` prints. Nothing here talks to a switch: the commands are for a person to read and
to paste.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

_PORT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_PATH_ENDS = ("add", "set")
#: keys of an export whose values are names of ports
_OF_PORTS = ("interface", "slaves", "tagged", "untagged")
#: how RouterOS says a port's fixed speed
_SPEEDS = {100: "100G-baseCR4", 200: "200G-baseCR4"}
#: a cost that RSTP takes only where there is no other way
_LAST_RESORT = "200000000"
ETHERNET, PORTS, VLANS, BRIDGES = (
    "/interface ethernet",
    "/interface bridge port",
    "/interface bridge vlan",
    "/interface bridge",
)
SWITCH, QOS = "/interface ethernet switch", "/interface ethernet switch qos"


class SwitchError(ValueError):
    """What cannot be rendered; the message names the variable, the value and the fix."""


@dataclass(frozen=True)
class ExportRow:
    """One line of an export: what it sets, and of which item."""

    selector: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class SwitchWish:
    """What the owner says of one switch; names are the ports' names there."""

    ports: Sequence[str]
    #: ports to another switch of the fabric
    links: Sequence[str] = ()
    #: ports to the house's network
    uplinks: Sequence[str] = ()
    bridge: str = "bridge"
    vlan: int = 1
    mtu: int = 9000
    #: Gb/s to fix the ports at, without negotiation; 0 leaves them
    speed: int = 0
    qos: bool = False
    #: every port of the fabric
    fabric: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fabric", (*self.ports, *self.links))
        named = [*self.fabric, *self.uplinks]
        for variable, names in (
            ("switch_ports", self.ports),
            ("switch_links", self.links),
            ("switch_uplinks", self.uplinks),
            ("switch_bridge", [self.bridge]),
        ):
            for name in names:
                if not isinstance(name, str) or not _PORT.fullmatch(name):
                    raise SwitchError(f"{variable}: {name!r} is not a name that a port or bridge of RouterOS can have")
                if named.count(name) > 1:
                    raise SwitchError(f"{variable}: {name} is named twice; a port has one purpose")
        if not self.ports:
            raise SwitchError("switch_ports is empty; name the ports that the hosts are on")
        for variable, value, least, most in (
            ("switch_vlan", self.vlan, 1, 4094),
            ("switch_mtu", self.mtu, 1280, 9216),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise SwitchError(f"{variable}: {value!r} is not a whole number from {least} to {most}")
        if self.speed not in (0, *_SPEEDS):
            raise SwitchError(f"switch_speed: {self.speed!r} is not 0, 100 or 200")


def parse(export: str) -> dict[str, list[ExportRow]]:
    """The rows of an export by path, such as ``/interface bridge port``. Raises SwitchError for other text."""
    rows: dict[str, list[ExportRow]] = {}
    path = ""
    for line in re.sub(r"\\\r?\n\s*", "", export).splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if text.startswith("/"):
            words = text.split()
            cut = next((index for index, word in enumerate(words) if word in _PATH_ENDS), len(words))
            path, text = " ".join(words[:cut]), " ".join(words[cut:])
            if not text:
                continue
        if not path:
            raise SwitchError(f"switch_export: {text[:60]!r} is no line of an export; give what /export printed")
        rows.setdefault(path, []).append(_row(text))
    if not rows:
        raise SwitchError("switch_export holds no configuration; give what /export printed")
    return rows


def _row(text: str) -> ExportRow:
    _verb, _space, rest = text.partition(" ")
    selector = ""
    match = re.match(r"\[ ?find ([^\]]*)\] ?", rest)
    if match:
        selector, rest = match[1].strip(), rest[match.end() :]
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    if words and "=" not in words[0]:
        selector, words = words[0], words[1:]
    return ExportRow(selector, dict(word.split("=", 1) for word in words if "=" in word))


def commands(export: str, wanted: SwitchWish) -> list[str]:
    """What to type, in an order in which each line is safe by itself; empty where all of it is there."""
    there = parse(export)
    _check_names(there, wanted)
    lines = [
        *_ethernet(there, wanted),
        *_bridge(there, wanted),
        *(_qos(there, wanted) if wanted.qos else ()),
    ]
    return ["/export file=before-sparkthor", *lines] if lines else []


def _check_names(there: Mapping[str, Sequence[ExportRow]], wanted: SwitchWish) -> None:
    """A command for a port that the switch does not have would find nothing there, and say nothing."""
    known: set[str] = set()
    renamed: dict[str, str] = {}
    for row in there.get(ETHERNET, ()):
        default = row.selector.partition("default-name=")[2].strip()
        name = row.values.get("name") or default or row.selector
        known.add(name)
        if default not in ("", name):
            renamed[default] = name
    for rows in there.values():
        for row in rows:
            known.update(name for key in _OF_PORTS for name in row.values.get(key, "").split(",") if name)
    for variable, names in (
        ("switch_ports", wanted.ports),
        ("switch_links", wanted.links),
        ("switch_uplinks", wanted.uplinks),
    ):
        for name in names:
            if name in renamed and name not in known:
                raise SwitchError(f"{variable}: {name} is called {renamed[name]} on the switch: give that name")
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                raise SwitchError(
                    f"{variable}: {name} is nowhere in the export{f' (did you mean {near[0]}?)' if near else ''}; "
                    "names are those of /interface print; for a port with its factory settings and in no bridge, give "
                    "what /export verbose printed"
                )


def _lacking(values: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in wanted.items() if values.get(key) != value)


def _ethernet(there: Mapping[str, Sequence[ExportRow]], wanted: SwitchWish) -> Iterator[str]:
    """MTU of every fabric port, and its speed where that is fixed; the port's own limit counts, not the bridge's."""
    known: dict[str, Mapping[str, str]] = {}
    for row in there.get(ETHERNET, ()):
        default = row.selector.partition("default-name=")[2].strip()
        known[row.values.get("name") or default or row.selector] = row.values
    settings = {"l2mtu": str(max(9216, wanted.mtu)), "mtu": str(wanted.mtu)}
    if wanted.speed:
        settings |= {"auto-negotiation": "no", "speed": _SPEEDS[wanted.speed]}
    for port in wanted.fabric:
        if text := _lacking(known.get(port, {}), settings):
            yield f"{ETHERNET} set [find name={port}] {text}"


def _bridge(there: Mapping[str, Sequence[ExportRow]], wanted: SwitchWish) -> Iterator[str]:
    """One bridge, which the switch chip forwards for, with a VLAN of the fabric's; no detour by the uplinks."""
    bridges = {row.values.get("name", row.selector): row.values for row in there.get(BRIDGES, ())}
    members = {row.values.get("interface", ""): row.values for row in there.get(PORTS, ())}
    if wanted.bridge not in bridges:
        yield f"{BRIDGES} add name={wanted.bridge}"
    for port in (*wanted.fabric, *wanted.uplinks):
        other = members.get(port, {}).get("bridge", wanted.bridge)
        if other != wanted.bridge:
            raise SwitchError(
                f"switch_bridge: {port} is in the bridge {other}, and the switch chip forwards for one bridge alone (a "
                f"second one goes through its CPU): set switch_bridge: {other}, or move the port"
            )
        settings = {} if port in wanted.uplinks else {"pvid": str(wanted.vlan)}
        if port in wanted.uplinks:
            settings["path-cost"] = _LAST_RESORT
        elif port in wanted.ports:
            settings["edge"] = "yes"
        factory = {"pvid": "1"} if port in members else {}
        if text := _lacking({**factory, **members.get(port, {})}, settings):
            item = f"set [find interface={port}]" if port in members else f"add bridge={wanted.bridge} interface={port}"
            yield f"{PORTS} {item} {text}"
    if wanted.vlan == 1:
        return
    rows = [row.values for row in there.get(VLANS, ()) if row.values.get("bridge") == wanted.bridge]
    own = next((row for row in rows if row.get("vlan-ids") == str(wanted.vlan)), {})
    if not set(wanted.fabric) <= set(own.get("untagged", "").split(",")):
        joined = ",".join(dict.fromkeys([*filter(None, own.get("untagged", "").split(",")), *wanted.fabric]))
        item = f"set [find bridge={wanted.bridge} vlan-ids={wanted.vlan}]" if own else f"add bridge={wanted.bridge}"
        yield f"{VLANS} {item} untagged={joined}" + ("" if own else f" vlan-ids={wanted.vlan}")
    if bridges.get(wanted.bridge, {}).get("vlan-filtering") != "yes":
        # last of these: from here on a port reaches only its own VLAN
        yield f"{BRIDGES} set [find name={wanted.bridge}] vlan-filtering=yes"


def _qos(there: Mapping[str, Sequence[ExportRow]], wanted: SwitchWish) -> Iterator[str]:
    """RoCE (DSCP 26) lossless with ECN in class 3, its congestion notices (DSCP 48) first in class 6.

    All but the last line only define what that line switches on.
    """

    def known(path: str, key: str) -> dict[str, Mapping[str, str]]:
        rows = there.get(f"{QOS} {path}", ())
        return {row.values.get(key) or row.selector.removeprefix(f"{key}="): row.values for row in rows}

    for path, key, rows in (
        ("profile", "name", {"roce": {"traffic-class": "3"}, "cnp": {"traffic-class": "6"}}),
        ("map ip", "dscp", {"26": {"profile": "roce"}, "48": {"profile": "cnp"}}),
        ("priority-flow-control", "name", {"pfc-tc3": {"traffic-class": "3", "rx": "yes", "tx": "yes"}}),
    ):
        there_now = known(path, key)
        for name, values in rows.items():
            if text := _lacking(there_now.get(name, {}), values):
                item = f"set [find {key}={name}]" if name in there_now else f"add {key}={name}"
                yield f"{QOS} {path} {item} {text}"
    queues = known("tx-manager queue", "traffic-class")
    for number, values in (
        ("3", {"schedule": "high-priority-group", "weight": "1", "ecn": "yes"}),
        ("6", {"schedule": "strict-priority"}),
    ):
        if text := _lacking(queues.get(number, {}), values):
            yield f"{QOS} tx-manager queue set [find traffic-class={number}] {text}"
    ports = known("port", "name")
    for port in wanted.fabric:
        if text := _lacking(ports.get(port, {}), {"trust-l3": "keep", "pfc": "pfc-tc3"}):
            yield f"{QOS} port set [find name={port}] {text}"
    if not any(row.values.get("qos-hw-offloading") == "yes" for row in there.get(SWITCH, ())):
        yield f"{SWITCH} set switch1 qos-hw-offloading=yes"
