# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several clusters side by side on the GPUs of one machine: python -m tools.gpu.suite SUITE [CLUSTER...]

A wave begins when the one before it has ended. Its chains run at the same time, the steps of a chain one after the
other; a chain in the background is only waited for at the end. What is measured has its GPUs to itself. Every step is
a run of ``python -m tools.gpu`` with its own log and keeps what it found, so a run that was cut goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from tools.gpu.clusters import ALONE, CHAOS, DOORS, FOUR, SGLANG, SHARED, SINGLE, TWO, WIDE, Cluster
from tools.playbooks import TOP

RESULTS = TOP / ".lab" / "results" / "gpu"
LONGEST = 1500.0


@dataclass(frozen=True)
class Step:
    cluster: str
    stages: str
    options: str = ""
    #: seconds; a step that hangs must not take the time of all others
    limit: float = LONGEST
    #: or tools.chaos, which has no stages
    program: str = "tools.gpu"


Chain = tuple[Step, ...]


@dataclass(frozen=True)
class Wave:
    chains: tuple[Chain, ...]
    background: tuple[Chain, ...] = ()


#: of its own for the cluster that is measured
_CORES = "--cores 24"
_FIRST = "deploy again verify status doctor report hand"
_PRICE = f"--streams 1,8,64 --tokens 128 --again {_CORES}"
_RATIO = f"--streams 1,64 --seconds 5 --tokens 128 --again {_CORES}"
_SPLITS = ("tp4", "ray3", "tp2pp2", "mp3")
_WORKER = "--faults worker --rounds 1 --away 20 --no-clean"
_FAULTS = "--faults front,engine,wedge,worker,link --rounds 1 --away 20 --cut 30 --no-clean"


def one(cluster: str, stages: str, options: str = "", limit: float = LONGEST) -> Chain:
    return (Step(cluster, stages, options, limit),)


def alone(cluster: str) -> tuple[Wave, ...]:
    """All that no other cluster may disturb. vLLM by hand is started twice: two alike may differ."""
    price = "--streams 1,8,64 --seconds 5 --tokens 128 --again"
    steps = (
        Step(cluster, "deploy hand", "", 480),
        Step(cluster, "byhand", f"--pairs 4 {price}", 480),
        Step(cluster, "unhand hand", "--again", 180),
        Step(cluster, "byhand", f"--pairs 8 {price}", 480),
        Step(cluster, "unhand boot busy", "--again"),
    )
    return (Wave((steps,)),)


def large(cluster: str) -> tuple[Wave, ...]:
    """A model whose steps the GPUs set: its pairs, a stopped rank, a power-on."""
    steps = (
        Step(cluster, "deploy hand", "", 480),
        Step(cluster, "byhand", f"--pairs 8 --seconds 6 {_PRICE}", 900),
        Step(cluster, "unhand faults boot", "--faults wedge --rounds 2 --no-clean --cores 0", 700),
    )
    return (Wave((steps,)),)


def large_again(cluster: str) -> tuple[Wave, ...]:
    """The large model: our engine past the front proxy, a stopped rank, power-on in variants; then other splits."""
    steps = (
        Step(cluster, "byhand", f"--pairs 5 --seconds 5 --ways ours,engine {_PRICE}", 330),
        Step(cluster, "faults", f"--faults wedge --rounds 2 --no-clean {_CORES}", 480),
        Step(cluster, "boots", f"--rounds 2 {_CORES}", 900),
    )
    others = tuple(one(name, "faults", "--faults wedge,worker --rounds 1 --away 20 --no-clean --cores 0", 480)
                   for name in ("mp2", "tp2"))  # fmt: skip
    return (Wave(tuple(one(name, "deploy", "", 480) for name in (cluster, "mp2", "tp2"))), Wave((steps,)), Wave(others))


def shared() -> tuple[Wave, ...]:
    """One GPU holds page (what it costs, prefix cache), guess (speculation, burn) or plain (what page, front proxy and
    the unit's limits cost); two: executor mp against Ray."""
    own = "--tokens 128 --cores 10"
    # two clusters that are compared have all cores, and each the same
    fair = "--tokens 128 --cores 0"
    guessed = f"--ways ours,by-hand --streams 1,8 --seconds 5 {own}"
    own_cores = "--cores 10"
    every = "by-hand,ours,polled,engine,boxed"
    steps = (
        Step("guess", "hand", "--cores 10", 150),
        Step("guess", "byhand", f"--pairs 27 {guessed}", 900),
        Step("guess", "guessing", f"--pairs 8 {guessed}", 400),
        Step("guess", "unhand burn boot", "--again", 350),
        Step("plain", "hand boxed", own_cores, 300),
        Step("plain", "byhand", f"--pairs 14 --streams 8,64,1 --seconds 5 --ways {every} {own}", 1200),
        Step("wmp2", "against", f"--other wray2 --pairs 6 --streams 1,8,64 --seconds 4 {fair}", 300),
        Step("wray2", "boot", "", 200),
        Step("wmp2", "boot", "", 200),
        Step("wray2", "cache", f"--pairs 6 --streams 1,8 --seconds 4 --prompt 2048 {own}", 200),
        Step("page", "page", f"--pairs 8 --streams 1,8,64 --seconds 5 {own}", 420),
        Step("page", "cache", f"--pairs 6 --streams 1,8 --seconds 4 --prompt 2048 {own}", 200),
    )
    return (Wave(tuple(one(name, "deploy", "", 480) for name in SHARED)), Wave((steps,)))


def sglang(cluster: str) -> Wave:
    """SGLang from a container: deployed twice, against itself by hand, three faults; of three engines only pairs."""
    # of a large model whole answers
    whole = "--requests 1 --tokens 512"
    if cluster in ("sglp", "sglt"):
        own = "--cores 10" if cluster == "sglp" else _CORES
        every = f"--ways by-hand,ours,engine,boxed --pairs 36 --streams 8,1 {whole} {own}"
        return Wave(((Step(cluster, "deploy hand boxed", "", 700), Step(cluster, "byhand", every)),))
    # its own engine past the front proxy among them
    long = f"{whole} --pairs 10 --ways ours,engine,by-hand"
    price = long if cluster == "sglw" else "--seconds 6 --tokens 64 --pairs 3 --ways ours,by-hand"
    steps = (
        Step(cluster, "deploy again hand", "", 700),
        Step(cluster, "byhand", f"--streams 1,8 {price} --again", 700),
        Step(cluster, "unhand faults", "--faults engine,worker,wedge --rounds 1 --away 10 --no-clean --again", 700),
    )
    return Wave((steps,))


def compared(clusters: tuple[str, ...], pairs: int, limit: float) -> Chain:
    """Each against vLLM by hand, one after the other; pairs that are there already count."""
    return tuple(Step(name, "byhand", f"--pairs {pairs} {_RATIO}", limit) for name in clusters)


def chaotic(seed: int = 1, minutes: float = 10.0, ends: float | None = None) -> tuple[Wave, ...]:
    """All clusters, the way through two front proxies, then chaos on all of CHAOS, each with a seed of its own."""
    until = f" --ends {ends:.0f}" if ends else ""
    chains = tuple(
        (Step(name, "", f"--seed {seed + number} --minutes {minutes:g}{until}", program="tools.chaos"),)
        for number, name in enumerate(CHAOS)
    )
    deployed = tuple(one(name, "deploy", "", 540) for name in (*DOORS, *CHAOS))
    chain = Wave((one("doors", "chain", "--pairs 6 --streams 1,8,64 --seconds 5 --tokens 128", 480),))
    return Wave(deployed), chain, Wave(chains)


SUITES: Mapping[str, tuple[Mapping[str, Cluster], tuple[Wave, ...]]] = {
    "alone": (ALONE, alone("alone")),
    "chaos": ({**CHAOS, **DOORS}, chaotic()),
    "shared": (SHARED, shared()),
    "sglang": (SGLANG, tuple(map(sglang, SGLANG))),
    "single": (SINGLE, alone("one")),
    "large": (WIDE, large("large")),
    "again": ({**WIDE, "mp2": TWO["mp2"], "tp2": TWO["tp2"]}, large_again("large")),
    "four": (
        FOUR,
        (
            Wave(
                (
                    *(one(name, "deploy again") for name in ("gpu", *_SPLITS)),
                    *(one(name, "deploy") for name in ("fault1", "fault2", "load")),
                )
            ),
            # nothing else computes
            Wave((tuple(Step(name, "verify", _CORES, 120) for name in _SPLITS),)),
            Wave(
                (
                    *((Step(name, "faults", _WORKER, 300), Step(name, "hand", "", 180)) for name in _SPLITS),
                    one("gpu", "hand", "--cores 0", 180),
                ),
                # on GPUs 2 and 3
                (
                    (Step("fault1", "faults", _FAULTS), Step("fault1", "slow")),
                    one("fault2", "faults", _FAULTS),
                    one("load", "busy boot"),
                ),
            ),
            # on GPUs 0 and 1
            Wave((one("gpu", "byhand", f"--pairs 5 --seconds 8 {_PRICE}", 480),)),
            Wave((compared(_SPLITS, 2, 150),)),
            Wave((one("gpu", "verify status doctor report", _CORES, 120),)),
            Wave((compared(_SPLITS, 5, 300),)),
        ),
    ),
    "two": (
        TWO,
        (
            Wave(
                (
                    one("gpu", _FIRST),
                    *(one(name, "deploy again hand verify") for name in ("mp2", "tp2")),
                    *(one(name, "deploy") for name in ("fault1", "fault2", "load")),
                )
            ),
            Wave((one("gpu", "byhand", f"--pairs 5 --seconds 8 {_PRICE}"),)),
            Wave((compared(("mp2", "tp2"), 5, 300),)),
            Wave(
                (
                    *(one(name, "faults", _FAULTS) for name in ("fault1", "fault2")),
                    # a slow step needs a worker of its own, which a start after it would have as well
                    one("gpu", "unhand boot slow"),
                ),
                (one("load", "busy"),),
            ),
        ),
    ),
}


def ended(words: Sequence[str], log: IO[str], limit: float, cut: threading.Event) -> int:
    """The exit status of a program, which is ended with all that it started once its time is over, or all is cut."""
    begun = time.monotonic()
    with subprocess.Popen(words, cwd=TOP, stdout=log, stderr=subprocess.STDOUT, start_new_session=True) as program:
        while program.poll() is None and time.monotonic() - begun < limit and not cut.wait(0.2):
            pass
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            print("interrupted" if cut.is_set() else f"ended after {limit:g} s", file=log, flush=True)
    return program.returncode


class Runner:
    def __init__(self, clusters: Mapping[str, Cluster], only: Sequence[str]) -> None:
        self.only = list(only) or list(clusters)
        self.places = {name: cluster.write(name, number) for number, (name, cluster) in enumerate(clusters.items())}
        self.bad: list[str] = []
        #: once the run was interrupted
        self.cut = threading.Event()
        self.begun = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.strftime('%H:%M:%S')}] {time.monotonic() - self.begun:5.0f} s  {text}", flush=True)

    def chain(self, steps: Chain) -> None:
        for step in steps:
            if step.cluster not in self.only or self.cut.is_set():
                continue
            folder = RESULTS / step.cluster
            folder.mkdir(parents=True, exist_ok=True)
            words = [sys.executable, "-m", step.program, *step.stages.split(), *step.options.split()]
            words += ["--inventory", str(self.places[step.cluster]), "--results", str(folder)]
            words += ["--lab", step.cluster]
            begun = time.monotonic()
            with (folder / "run.log").open("a", encoding="utf-8") as log:
                rc = ended(words, log, step.limit, self.cut)
            stages = step.stages or step.program.rpartition(".")[2]
            word = "ended well" if not rc else f"ended with {rc}"
            self.say(f"{step.cluster}: {stages}: {word} after {time.monotonic() - begun:.0f} s")
            if rc:
                self.bad.append(f"{step.cluster}: {stages}")

    def together(self, chains: Sequence[Chain]) -> dict[str, threading.Thread]:
        threads = {chain[0].cluster: threading.Thread(target=self.chain, args=(chain,)) for chain in chains}
        for thread in threads.values():
            thread.start()
        return threads

    def run(self, waves: Sequence[Wave]) -> int:
        waiting: dict[str, threading.Thread] = {}
        for number, wave in enumerate(waves, 1):
            self.say(f"wave {number} of {len(waves)}")
            waiting |= self.together(wave.background)
            for thread in self.together(wave.chains).values():
                thread.join()
        for thread in waiting.values():
            thread.join()
        self.say("all is done" if not self.bad else f"not well: {'; '.join(self.bad)}")
        return 1 if self.bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu.suite", description=__doc__)
    parser.add_argument("suite", choices=sorted(SUITES), help="by the number of GPUs; alone, large = two, chaos = one")
    parser.add_argument("clusters", nargs="*", help="only these")
    parser.add_argument("--seed", type=int, default=1, help="of the first cluster of chaos, the next has the next one")
    parser.add_argument("--minutes", type=float, default=10.0, help="in which rounds of chaos begin")
    parser.add_argument("--ends", type=float, help="minutes after which chaos is cut short and judged, deploy included")
    options = parser.parse_intermixed_args()
    clusters, waves = SUITES[options.suite]
    if options.suite == "chaos":
        ends = time.time() + 60 * options.ends if options.ends else None
        waves = chaotic(options.seed, options.minutes, ends)
    unknown = [name for name in options.clusters if name not in clusters]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(clusters)}")
    runner = Runner(clusters, options.clusters)
    try:
        return runner.run(waves)
    except KeyboardInterrupt:
        # the chains run in threads that an interrupt does not reach, their programs in sessions of their own
        runner.cut.set()
        return 130


if __name__ == "__main__":
    sys.exit(main())
