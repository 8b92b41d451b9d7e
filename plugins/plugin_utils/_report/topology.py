# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drawing of the cluster's cables, as numbers and words: what report.html.j2 draws.  Pure, on the controller."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import SPARK_NETDEVS, half_or_lane

WIDTH, HEIGHT = 900.0, 470.0
#: of two hosts side by side, with room for the words of four halves
PAIR_HEIGHT = 190.0
BOX_WIDTH, BOX_HEIGHT = 190.0, 84.0
#: where the switch or the LAN stands
MIDDLE = (WIDTH / 2, 62.0)
#: topologies in which hosts share one thing in the middle; a fabric without a plan is drawn so as well
SHARED = {"switch": "200 GbE switch", "lan": "LAN (TCP)", "": ""}

Point = tuple[float, float]


class Label(NamedTuple):
    """Words beside a cable's half; ``anchor`` is SVG's text-anchor."""

    x: float
    y: float
    text: str
    wrong: bool
    anchor: str = "middle"


class Cable(NamedTuple):
    """One half of a cable."""

    x1: float
    y1: float
    x2: float
    y2: float
    title: str
    wrong: bool
    label: Label
    #: host and netdev of its ends; one where it leads to what hosts share
    ends: tuple[tuple[str, str], ...] = ()


class Box(NamedTuple):
    """One host."""

    x: float
    y: float
    host: str
    words: str
    address: str
    silent: bool


def places(topology: str, hosts: Sequence[str]) -> dict[str, Point]:
    """Where each host's box has its middle: a row for a switch or LAN, else a regular polygon."""
    count = len(hosts)
    if topology in SHARED:
        step = WIDTH / count
        return {host: (step * (index + 0.5), HEIGHT - 90) for index, host in enumerate(hosts)}
    if count == 2:
        return {hosts[0]: (150.0, PAIR_HEIGHT / 2), hosts[1]: (WIDTH - 150, PAIR_HEIGHT / 2)}
    angles = [-math.pi / 2 + 2 * math.pi * index / count for index in range(count)]
    # as low as the box below all others lets it be
    middle = min(HEIGHT / 2 + 30, HEIGHT - BOX_HEIGHT / 2 - 4 - 175 * max(map(math.sin, angles)))
    return {
        host: (WIDTH / 2 + 310 * math.cos(angle), middle + 175 * math.sin(angle))
        for host, angle in zip(hosts, angles, strict=True)
    }


def link_words(link: Mapping[str, Any]) -> tuple[str, bool]:
    """What stands beside a cable's half, and whether something is wrong with it; who knows no rates has own words."""
    wrong = bool(link["problems"]) or link["state"] != "up"
    if "words" in link:
        return str(link["words"]), wrong
    rate = "no rate" if link["rate_gbits"] is None else f"{link['rate_gbits']:g}G"
    words = f"{rate} MTU {link['mtu'] or '-'}" if link["state"] == "up" else link["state"]
    if link["state"] == "up" and link["planned_mtu"] not in (None, link["mtu"]):
        words += f", not {link['planned_mtu']}"
    elif wrong and link["state"] == "up":
        words += ", wrong"
    return words, wrong


def drawing(status: Mapping[str, Any]) -> dict[str, Any]:
    """Hosts, and a line for each half of each cable, as the live links are."""
    hosts, topology = status["cluster"]["hosts"], status["cluster"]["topology"]
    at = places(topology, hosts)
    shared = topology in SHARED
    # up to eight boxes of full width have room in a polygon
    scale = min(1.0, 4.2 / len(hosts)) if shared else 1.0 if len(hosts) <= 8 else 6.5 / len(hosts)
    return {
        "width": WIDTH,
        "height": PAIR_HEIGHT if len(hosts) == 2 and not shared else HEIGHT,
        "box_width": BOX_WIDTH * scale,
        "box_height": BOX_HEIGHT,
        "told": f"{len(hosts)} hosts on a {topology or 'fabric without a plan'}",
        "cables": list(_to_the_middle(status, at) if shared else _between_hosts(status, at)),
        "boxes": [_box(host, status["hosts"][host], at[host]) for host in hosts],
        "middle": MIDDLE,
        "middle_name": SHARED.get(topology, ""),
    }


def planned_drawing(topology: str, head: str, fabric: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The same without words, for who knows how the links are: places as whole numbers, and the ends of each half."""
    live = {"state": "up", "rate_gbits": None, "planned_mtu": None, "problems": ()}
    hosts = {
        host: {
            "reachable": True,
            "kind": str(own.get("kind", "")),
            "role": "head" if host == head else "worker",
            "control_address": str(own["control_address"]),
            "links": [{**link, **live} for link in own["links"]],
        }
        for host, own in fabric.items()
    }
    made = drawing({"cluster": {"hosts": list(hosts), "topology": topology}, "hosts": hosts})
    return {
        **{name: round(made[name]) for name in ("width", "height", "box_width", "box_height")},
        "told": made["told"],
        "middle": [round(number) for number in made["middle"]] if made["middle_name"] else None,
        "middle_name": made["middle_name"],
        "boxes": [
            {"host": box.host, "x": round(box.x), "y": round(box.y), "words": box.words} for box in made["boxes"]
        ],
        "cables": [
            {
                "line": [round(number) for number in (cable.x1, cable.y1, cable.x2, cable.y2)],
                "ends": [list(end) for end in cable.ends],
                "label": [round(cable.label.x), round(cable.label.y), cable.label.anchor],
            }
            for cable in made["cables"]
        ],
    }


def _box(host: str, found: Mapping[str, Any], place: Point) -> Box:
    silent = not found["reachable"]
    words = "no answer" if silent else f"{found['kind']}{', head' if found['role'] == 'head' else ''}"
    return Box(*place, host, words, found.get("control_address") or found["management"], silent)


def _title(host: str, link: Mapping[str, Any], words: str) -> str:
    return f"{host} {link['netdev']}, {half_or_lane(link)}, {link['address']}: {words}"


def _cage(link: Mapping[str, Any]) -> int:
    """The cage of a Spark's NIC; all others have one."""
    return SPARK_NETDEVS.get(link["netdev"], (0, 0))[0]


def _cages(links: Sequence[Mapping[str, Any]]) -> list[int]:
    return sorted({_cage(link) for link in links})


def _part(link: Mapping[str, Any], links: Sequence[Mapping[str, Any]]) -> str:
    """Which half or lane it is, and of which cage where a host's cables to one place are in both."""
    return f"cage {_cage(link)} {half_or_lane(link)}" if len(_cages(links)) > 1 else half_or_lane(link)


def _to_the_middle(status: Mapping[str, Any], at: Mapping[str, Point]) -> Iterator[Cable]:
    """Ports of a switch or LAN: every host's cables lead to what they share."""
    for host in status["cluster"]["hosts"]:
        links = status["hosts"][host]["links"]
        for index, link in enumerate(links):
            words, wrong = link_words(link)
            spread = 26.0 * (index - (len(links) - 1) / 2)
            x, y = at[host]
            target = MIDDLE[0] + (x - MIDDLE[0]) * 0.35 + spread
            # a LAN port has no halves
            beside = words if status["cluster"]["topology"] == "lan" else f"{_part(link, links)}: {words}"
            label = Label(x, y + BOX_HEIGHT / 2 + 18 + 17 * index, beside, wrong)
            line = (x + spread * 1.6, y - BOX_HEIGHT / 2, target, MIDDLE[1] + 26)
            yield Cable(*line, _title(host, link, words), wrong, label, ((host, link["netdev"]),))


def _between_hosts(status: Mapping[str, Any], at: Mapping[str, Point]) -> Iterator[Cable]:
    """Cables from host to host, each half once; what is wrong at the far end counts."""
    drawn: set[frozenset[tuple[str, str]]] = set()
    for host in status["cluster"]["hosts"]:
        for link in status["hosts"][host]["links"]:
            peer = link["peer"]
            key = frozenset(((host, link["netdev"]), (peer, link["peer_netdev"])))
            if key in drawn or peer not in at:
                continue
            drawn.add(key)
            words, wrong = link_words(link)
            for other in status["hosts"][peer]["links"]:
                if other["netdev"] == link["peer_netdev"] and not wrong:
                    far_words, wrong = link_words(other)
                    words = far_words if wrong else words
            # of a pair all cables lie side by side
            pair = status["hosts"][host]["links"] if len(at) == 2 else [link]
            place = link["half"] + 2 * _cages(pair).index(_cage(link))
            line = _parallel(at[host], at[peer], place)
            other_half = _parallel(at[host], at[peer], place ^ 1)
            label = _beside(line, other_half, f"{_part(link, pair)}: {words}", wrong)
            ends = ((host, link["netdev"]), (peer, link["peer_netdev"]))
            yield Cable(*line, _title(host, link, words), wrong, label, ends)


def _parallel(a: Point, b: Point, place: int) -> tuple[float, float, float, float]:
    """Parallel lines, one for each half of each cable or each lane; the first two are of one cable."""
    dx, dy = b[0] - a[0], b[1] - a[1]
    length = math.hypot(dx, dy) or 1.0
    # the same side whichever end is drawn first
    sign = 1 if (a <= b) else -1
    # a second cable and a Thor's lanes go on outwards, with room for words
    offset = (-10, 10, -44, 44)[place % 4] * sign
    ox, oy = -dy / length * offset, dx / length * offset
    return a[0] + ox, a[1] + oy, b[0] + ox, b[1] + oy


def _beside(line: Sequence[float], other: Sequence[float], text: str, wrong: bool) -> Label:
    """Beside the cable, each half on its own side of it, so that the words keep apart."""
    x, y = (line[0] + line[2]) / 2, (line[1] + line[3]) / 2
    if abs(line[3] - line[1]) <= 40:
        above = y < (other[1] + other[3]) / 2
        return Label(x, y - 11 if above else y + 21, text, wrong)
    # two thirds down, where cables that meet at the top have room between them
    part = 0.66 if line[3] > line[1] else 0.34
    left = x < (other[0] + other[2]) / 2
    x, y = line[0] + (line[2] - line[0]) * part, line[1] + (line[3] - line[1]) * part
    return Label(x - 12 if left else x + 12, y, text, wrong, "end" if left else "start")
