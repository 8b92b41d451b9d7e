# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which faults are laid when: a pure function of a seed.  Nothing here touches a host."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

#: faults of a round begin within this many seconds, so that later ones meet the healing of earlier ones
SPREAD = 60.0
#: share of the rounds in which a play runs meanwhile
PLAYS = 0.3


@dataclass(frozen=True)
class Kind:
    #: ``head``, ``worker``, ``any``, ``pair`` (from one host to another) or ``all``
    where: str
    #: shortest and longest time in seconds; nothing for what is done in a moment
    lasts: tuple[float, float] | None = None
    #: one of these is drawn: a percentage, Mbit/s, MB
    amounts: tuple[float, ...] = ()
    #: the executor without which there is nothing to break
    executor: str = ""


#: what fault table and lab can do to a cluster
KINDS: Mapping[str, Kind] = {
    "engine": Kind("head"),
    "service": Kind("any"),
    "rank": Kind("any"),
    "wedge": Kind("any", (5, 90)),
    "raylet": Kind("any", executor="ray"),
    "gcs": Kind("head", executor="ray"),
    "dashboard": Kind("head", (10, 90), executor="ray"),
    "watchdog": Kind("head"),
    "watchdog stopped": Kind("head", (5, 60)),
    "front": Kind("head"),
    "link": Kind("any", (3, 90)),
    "carrier": Kind("any", (3, 90)),
    "management": Kind("any", (3, 60)),
    "loss": Kind("any", (10, 90), (5, 20, 60)),
    "oneway": Kind("pair", (5, 90)),
    "blackhole": Kind("any", (10, 90)),
    "rate": Kind("any", (10, 90), (1, 10)),
    "power": Kind("any", (5, 60)),
    "shutdown": Kind("any", (5, 30)),
    "reboot": Kind("any"),
    "all": Kind("all", (5, 30)),
    "disk": Kind("any", (10, 75)),
    "shm": Kind("any", (10, 75)),
    "inodes": Kind("any", (10, 75)),
    "memory": Kind("any", (10, 75), (200, 2000)),
    "blocked": Kind("any", (10, 75)),
    "half": Kind("any", (10, 90)),
    "duplicate": Kind("pair", (10, 90)),
}
#: what a play changes meanwhile: nothing, a file of the front proxy, an argument of the engine (which is restarted)
CHANGES: tuple[Mapping[str, Any], ...] = (
    {},
    {"vllm_serve_front_retry_after": 17},
    {"vllm_serve_args": {"max-num-seqs": 3}},
)


@dataclass(frozen=True)
class Fault:
    kind: str
    host: str = ""
    #: for ``pair``
    peer: str = ""
    #: seconds after the round began
    at: float = 0.0
    lasts: float = 0.0
    amount: float = 0.0


@dataclass(frozen=True)
class Play:
    """``site.yml`` beside the faults, from the beginning of the round."""

    #: an index of CHANGES
    change: int
    #: seconds after which the controller is killed; 0 = it is left to its end
    killed: float = 0.0


@dataclass(frozen=True)
class Round:
    number: int
    faults: tuple[Fault, ...]
    play: Play | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Round:
        play = Play(**data["play"]) if data.get("play") else None
        return cls(int(data["number"]), tuple(Fault(**fault) for fault in data["faults"]), play)


def _fault(dice: random.Random, hosts: Sequence[str], executor: str, at: float, without: Collection[str] = ()) -> Fault:
    there = sorted(name for name, kind in KINDS.items() if kind.executor in ("", executor) and name not in without)
    name = dice.choice(there)
    kind = KINDS[name]
    host = peer = ""
    if kind.where == "head":
        host = hosts[0]
    elif kind.where != "all":
        host = dice.choice(hosts)
    if kind.where == "pair":
        peer = dice.choice([other for other in hosts if other != host])
    lasts = round(dice.uniform(*kind.lasts), 1) if kind.lasts else 0.0
    return Fault(name, host, peer, at, lasts, dice.choice(kind.amounts) if kind.amounts else 0.0)


def draw(seed: int, number: int, hosts: Sequence[str], executor: str, without: Collection[str] = ()) -> Round:
    """The round of this number; ``hosts`` begins with the head."""
    dice = random.Random(f"{seed} {number}")
    play = None
    if dice.random() < PLAYS:
        play = Play(dice.randrange(len(CHANGES)), dice.choice((0.0, round(dice.uniform(5, 60), 1))))
    moments = sorted(round(dice.uniform(0, SPREAD), 1) for _fault_of_round in range(dice.randint(1, 3)))
    # without a play nobody has to wait for the first fault
    early = 0.0 if play else moments[0]
    faults = tuple(_fault(dice, hosts, executor, round(moment - early, 1), without) for moment in moments)
    return Round(number, faults, play)


def to_plan(cluster: str, seed: int, rounds: Sequence[Round]) -> dict[str, Any]:
    return {"cluster": cluster, "seed": seed, "rounds": [asdict(each) for each in rounds]}


def from_plan(plan: Mapping[str, Any]) -> tuple[str, int, list[Round]]:
    return str(plan["cluster"]), int(plan["seed"]), [Round.from_dict(each) for each in plan["rounds"]]


def words(fault: Fault) -> str:
    """One fault for people."""
    parts = [fault.kind, f"{fault.host} to {fault.peer}" if fault.peer else fault.host]
    if fault.amount:
        parts.append(f"{fault.amount:g}")
    lasts = f" for {fault.lasts:g} s" if fault.lasts else ""
    return f"{' '.join(part for part in parts if part)} at {fault.at:g} s{lasts}"
