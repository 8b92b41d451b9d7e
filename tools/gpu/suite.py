# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several clusters side by side on the GPUs of one machine: python -m tools.gpu.suite four|two [CLUSTER...]

A wave begins when the one before it has ended. Its chains run at the same time, the steps of a chain one after the
other; a chain in the background is only waited for at the end. What is measured has its GPUs to itself. Every step is
a run of ``python -m tools.gpu`` with its own log and keeps what it found, so a run that was cut goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tools.gpu.clusters import FOUR, TWO, Cluster
from tools.playbooks import TOP

RESULTS = TOP / ".lab" / "results" / "gpu"


@dataclass(frozen=True)
class Step:
    cluster: str
    stages: str
    options: str = ""


Chain = tuple[Step, ...]


@dataclass(frozen=True)
class Wave:
    chains: tuple[Chain, ...]
    background: tuple[Chain, ...] = ()
    #: clusters whose chain in the background has to end first
    needs: tuple[str, ...] = ()


def one(cluster: str, stages: str, options: str = "") -> Chain:
    return (Step(cluster, stages, options),)


_FIRST = "deploy again verify status doctor report hand"
_PRICE = "--pairs 5 --streams 1,8,64 --seconds 5"
_RATIO = "--pairs 1 --streams 1,64 --seconds 5 --tokens 128 --again"
_SPLITS = ("tp4", "ray3", "tp2pp2", "mp3")
_WORKER = "--faults worker --rounds 1 --away 20 --no-clean"
_FAULTS = "--faults front,engine,wedge,worker,link --rounds 1 --away 20 --cut 30"
_FAULTY = (one("fault1", "faults", _FAULTS), one("fault2", "faults", _FAULTS))
_LAST = one("gpu", "unhand slow boot")
SUITES: Mapping[str, tuple[Mapping[str, Cluster], tuple[Wave, ...]]] = {
    "four": (
        FOUR,
        (
            Wave(
                (
                    one("gpu", _FIRST),
                    *(one(name, "deploy again") for name in _SPLITS),
                    *(one(name, "deploy") for name in ("fault1", "fault2", "load")),
                )
            ),
            Wave(
                (*_FAULTY, *((Step(name, "faults", _WORKER), Step(name, "hand verify")) for name in _SPLITS)),
                (one("load", "busy"),),
            ),
            Wave(((Step("gpu", "byhand", _PRICE), Step("gpu", "verify", "--again")),)),
            # the GPUs of the load are those of the splits, too
            Wave((tuple(Step(name, "byhand", _RATIO) for name in _SPLITS),), (_LAST,), needs=("load",)),
            Wave((tuple(Step(name, "byhand", _RATIO.replace("1", "3", 1)) for name in _SPLITS),), needs=("gpu",)),
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
            Wave((one("gpu", "byhand", _PRICE),)),
            Wave((tuple(Step(name, "byhand", _RATIO) for name in ("mp2", "tp2")),)),
            Wave((*_FAULTY, _LAST), (one("load", "busy"),)),
        ),
    ),
}


class Runner:
    def __init__(self, clusters: Mapping[str, Cluster], only: Sequence[str]) -> None:
        self.only = list(only) or list(clusters)
        self.places = {name: cluster.write(name, number) for number, (name, cluster) in enumerate(clusters.items())}
        self.bad: list[str] = []
        self.begun = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.strftime('%H:%M:%S')}] {time.monotonic() - self.begun:5.0f} s  {text}", flush=True)

    def chain(self, steps: Chain) -> None:
        for step in steps:
            if step.cluster not in self.only:
                continue
            folder = RESULTS / step.cluster
            folder.mkdir(parents=True, exist_ok=True)
            words = [sys.executable, "-m", "tools.gpu", *step.stages.split(), *step.options.split()]
            words += ["--inventory", str(self.places[step.cluster]), "--results", str(folder)]
            begun = time.monotonic()
            with (folder / "run.log").open("a", encoding="utf-8") as log:
                rc = subprocess.run(words, cwd=TOP, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
            word = "ended well" if not rc else f"ended with {rc}"
            self.say(f"{step.cluster}: {step.stages}: {word} after {time.monotonic() - begun:.0f} s")
            if rc:
                self.bad.append(f"{step.cluster}: {step.stages}")

    def together(self, chains: Sequence[Chain]) -> dict[str, threading.Thread]:
        threads = {chain[0].cluster: threading.Thread(target=self.chain, args=(chain,)) for chain in chains}
        for thread in threads.values():
            thread.start()
        return threads

    def run(self, waves: Sequence[Wave]) -> int:
        waiting: dict[str, threading.Thread] = {}
        for number, wave in enumerate(waves, 1):
            for name in wave.needs:
                if name in waiting:
                    waiting[name].join()
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
    parser.add_argument("suite", choices=sorted(SUITES), help="by the number of GPUs")
    parser.add_argument("clusters", nargs="*", help="only these")
    options = parser.parse_args()
    clusters, waves = SUITES[options.suite]
    unknown = [name for name in options.clusters if name not in clusters]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(clusters)}")
    return Runner(clusters, options.clusters).run(waves)


if __name__ == "__main__":
    sys.exit(main())
