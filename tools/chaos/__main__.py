# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make chaos SEED=7 MINUTES=30``: random faults on a serving lab with clients, and what must hold all the time.

A round lays one to three faults, sometimes beside a play, makes the world whole again, and waits until it serves. The
rounds follow from the seed; they are in ``.lab/results/chaos/NAME/plan.json`` as well, and ``--plan FILE`` lays
exactly those. Exit status 1: something did not hold.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state import controller_lock
from sparklab import Lab, LabError

from tools import leaks
from tools.chaos import judge, schedule
from tools.chaos.clients import FEW_TOKENS, TOKENS, Asking, agreed, reference
from tools.chaos.cluster import CLUSTERS, Cluster, given
from tools.chaos.lay import BLINDING, LAY, make_whole
from tools.faults.__main__ import clean_start
from tools.faults.controller import Ground
from tools.faults.observe import Clients, Watch
from tools.faults.site import FaultError, Site, sleep_until, wait
from tools.faults.table import FACTOR
from tools.playbooks import TOP, Outcome, run_playbook

RESULTS = TOP / ".lab" / "results" / "chaos"
#: a play that is left to its end
PLAY_LIMIT = 1800.0
#: serving again is waited for beyond its limit, so that a miss has a figure
PATIENCE = 3.0
#: a head that is back, or a watchdog that was struck, has at least this long until its state counts
SIGHT = 60.0
#: a clean start of the same lab is measured anew after these seconds
CLEAN_AGE = 1200.0
#: seconds in which a watchdog looks at least once
LOOK = 2.5
GRACE = 60.0
#: what the lab says where something is not there, or does not end
LAB_ERRORS = (FaultError, LabError, OSError, subprocess.SubprocessError)
_UNITS = ("ray", "vllm", "watchdog", "front")
_JOURNAL = "journalctl --no-pager -o short-precise --since=-{minutes}min " + " ".join(
    f"-u sparkthor-{unit}" for unit in _UNITS
)
_FAILED = "systemctl list-units --failed --plain --no-legend 'sparkthor*' | cut -d' ' -f1"


def say(line: str) -> None:
    print(line, flush=True)


class Run:
    """One run: the lab, its clients, and the history that is judged."""

    def __init__(self, site: Site, cluster: Cluster, folder: Path, expected: str = "") -> None:
        self.site = site
        self.cluster = cluster
        self.folder = folder
        self.zero = time.monotonic()
        self.history = judge.History()
        self.laid: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.output = ""
        #: since when a fault has left nobody on the head who could keep the state true
        self.blinded: dict[schedule.Fault, float] = {}
        #: nothing expected: the cluster says itself what it answers
        self.own = not expected
        tokens = FEW_TOKENS if self.own else TOKENS
        self.endpoint = Asking(**dataclasses.asdict(site.endpoint), expected=expected, whole=tokens)
        self.limit = 0.0
        #: as SIGHT, on this machine
        self.sight = SIGHT
        #: the play of the newest round; enough, once it has to end
        self.play: threading.Thread | None = None
        self.enough = threading.Event()

    def now(self) -> float:
        return time.monotonic() - self.zero

    def site_yml(self, name: str, **more: Any) -> Outcome:
        variables = {**self.cluster.variables, **more} or None
        outcome = run_playbook(
            "site.yml",
            self.site.inventories,
            extra_vars=variables,
            name=f"{self.site.lab.name}-{name}",
            say=lambda _: None,
        )
        self.output += outcome.output
        say(f"  {self.now():6.0f} s  {name}: site.yml ended with {outcome.rc} after {outcome.seconds:.0f} s")
        return outcome

    # -- a round ----------------------------------------------------------------------------------------------------

    def round(self, each: schedule.Round, clients: Clients, watch: Watch) -> bool:
        """Whether it served again."""
        what = [schedule.words(fault) for fault in each.faults]
        laid = judge.Laid(each.number, what, self.now())
        self.history.rounds.append(laid)
        self.play = self._play(each.play)
        say(f"  {self.now():6.0f} s  round {each.number}: {'; '.join(what)}{'; a play' if each.play else ''}")
        begun = time.monotonic()
        deeds = [(fault.at, 0, fault) for fault in each.faults]
        deeds += [(fault.at + fault.lasts, 1, fault) for fault in each.faults]
        for moment, which, fault in sorted(deeds, key=lambda deed: deed[:2]):
            sleep_until(begun + moment)
            self._deed(fault, which)
        try:
            make_whole(self.site)
        except LAB_ERRORS as error:
            laid.troubles.append(f"the lab cannot be made whole: {error}")
            return False
        self._sees_again()
        if self.play is not None:
            self.play.join()
            outcome = self.site_yml("after")
            if outcome.rc != 0 and any("is changing this cluster" in failure for failure in outcome.failures):
                # the killed play could not give its lock back to a head that was away
                time.sleep(controller_lock.PATIENCE)
                outcome = self.site_yml("after")
            if outcome.rc != 0:
                laid.troubles.append(f"the play after it failed: {outcome.failures}")
        laid.whole = self.now()
        whole = time.monotonic()
        try:
            wait(lambda: self._serves(clients, watch, whole), PATIENCE * self.limit, "serving again")
            # an engine may answer once more while its ranks are being killed
            later = time.monotonic() + LOOK
            wait(lambda: self._serves(clients, watch, later), PATIENCE * self.limit, "serving on")
        except FaultError:
            laid.troubles += self.site.surplus()
            say(f"  {self.now():6.0f} s  round {each.number}: does not serve: {watch.newest.get('line')}")
            return False
        laid.healed = self.now()
        laid.troubles += self.site.surplus()
        failed = self.site.everywhere(_FAILED)
        laid.troubles += [f"{host}: failed: {' '.join(units.split())}" for host, units in failed.items() if units]
        say(f"  {laid.healed:6.0f} s  round {each.number}: serves {laid.healed - laid.whole:.0f} s after all was whole")
        return True

    def _serves(self, clients: Clients, watch: Watch, since: float) -> bool:
        answers = clients.first_success(since) is not None and watch.state == "serving"
        return answers and all(self.site.ranks().values())

    def _play(self, play: schedule.Play | None) -> threading.Thread | None:
        if play is None:
            return None
        ground = Ground(self.site.lab, self.site.inventories[0], "", self.cluster.change(play.change))

        def work() -> None:
            self.output += ground.killed_play(play.killed or PLAY_LIMIT, self.enough)

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def _deed(self, fault: schedule.Fault, which: int) -> None:
        if which == 0 and fault.kind in BLINDING and fault.host in ("", self.site.head):
            self.blinded[fault] = self.now()
        try:
            LAY[fault.kind][which](self.site, fault)
        except LAB_ERRORS as error:
            # what is not there cannot be struck; what was off is made whole at the end of the round
            if which == 0:
                self.missed[fault.kind] += 1
                say(f"  {self.now():6.0f} s  not laid: {schedule.words(fault)}: {str(error)[:120]}")
            return
        if which == 0:
            self.laid[fault.kind] += 1
        else:
            self._sees_again(fault)

    def _sees_again(self, *faults: schedule.Fault) -> None:
        """From now on the head has power and its watchdog may run, as far as these faults go; without any, all."""
        for fault in faults or tuple(self.blinded):
            since = self.blinded.pop(fault, None)
            if since is not None:
                self.history.blind.append((since, self.now() + self.sight))

    # -- around the rounds ------------------------------------------------------------------------------------------

    def evidence(self) -> None:
        minutes = int(self.now() / 60) + 1
        for host in self.site.hosts:
            try:
                text = self.site.on(host, _JOURNAL.format(minutes=minutes), check=False)
            except LAB_ERRORS as error:
                text = f"{error}\n"
            (self.folder / f"{host}.log").write_text(text, encoding="utf-8")

    def end(self) -> None:
        """Two plays, of which the second may change nothing, and a search for secrets."""
        first = self.site_yml("first-at-the-end")
        if first.rc != 0:
            self.history.troubles.append(f"site.yml at the end failed: {first.failures}")
        second = self.site_yml("second-at-the-end")
        self.history.last_play = (second.rc, second.changed)
        secrets = kept_secrets(self.site.secrets)
        self.history.leaks += [f"{name} in what a play printed" for name in leaks.shown(self.output, secrets)]
        try:
            with ThreadPoolExecutor(len(self.site.hosts)) as pool:
                self.history.leaks += itertools.chain(
                    *pool.map(lambda host: self.shown_on(host, secrets), self.site.hosts)
                )
        except LAB_ERRORS as error:
            self.history.troubles.append(f"the search for secrets did not end: {error}")

    def shown_on(self, host: str, secrets: Mapping[str, str]) -> list[str]:
        found = {name: leaks.places(self.site.lab, host, secret) for name, secret in secrets.items()}
        return [f"{name} in {place} of {host}" for name, places in found.items() for place in places]

    def close(self, clients: Clients, watch: Watch) -> None:
        """Moments become seconds since the run began."""

        def moved(requests: Iterable[Any]) -> list[Any]:
            return [
                dataclasses.replace(
                    one, begun=one.begun - self.zero, ended=None if one.ended is None else one.ended - self.zero
                )
                for one in requests
            ]

        self.enough.set()
        if self.play is not None:
            # of a round that was cut short: it must not go on while its lab is taken away
            self.play.join()
        self._sees_again()
        self.history.ended = self.now()
        self.history.requests, self.history.pulses = moved(clients.requests), moved(clients.pulses)
        self.history.states = [(moment - self.zero, state, line) for moment, state, line in watch.changes]
        self.history.stale = [(moment - self.zero, age) for moment, age in watch.stale]


def kept_secrets(folder: Path) -> dict[str, str]:
    """By name of its file; a file with a leading dot, such as .gitignore, is none."""
    files = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    return {path.name: secret for path in files if (secret := path.read_text(encoding="utf-8").strip())}


def rounds_of(run: Run, seed: int, minutes: float, plan: Sequence[schedule.Round] | None) -> Iterator[schedule.Round]:
    if plan is not None:
        yield from plan
        return
    for number in itertools.count(1):
        if run.now() > 60 * minutes:
            return
        yield schedule.draw(seed, number, run.site.hosts, run.cluster.executor, run.cluster.without)


def prepare(run: Run) -> None:
    """A clean start, from which all limits follow; and the reference, where the cluster is its own."""
    if run.own:
        run.endpoint.expected = agreed(run.endpoint)
    clean = clean_start(run.site, CLEAN_AGE)
    if run.own and agreed(run.endpoint) != run.endpoint.expected:
        raise FaultError("no reference: after a clean start it answers otherwise")
    run.limit = FACTOR * clean + GRACE + judge.BACKOFF
    # a watchdog comes back with its unit or its host, which takes a slow machine as much longer as a clean start does
    run.sight = max(SIGHT, clean)
    say(f"serving again may take {run.limit:.0f} s; load {os.getloadavg()[0]:.1f}")


def chaos(run: Run, name: str, seed: int, minutes: float, plan: Sequence[schedule.Round] | None) -> list[str]:
    prepare(run)
    run.zero = time.monotonic()
    done: list[schedule.Round] = []
    with Clients(run.endpoint, tokens=run.endpoint.whole) as clients, Watch(run.site.leader) as watch:
        wait(lambda: watch.state == "serving" and clients.first_success(0.0) is not None, 180, "the first completion")
        serves = True
        try:
            for each in rounds_of(run, seed, minutes, plan):
                done.append(each)
                # a plan that is laid again stays whole, however early this run ends
                text = json.dumps(schedule.to_plan(name, seed, plan or done), indent=1) + "\n"
                (run.folder / "plan.json").write_text(text, encoding="utf-8")
                serves = run.round(each, clients, watch)
                keep(run, name, seed, None)
                if not serves:
                    break
            if serves:
                run.end()
        except KeyboardInterrupt:
            say("interrupted: what was seen until here is judged")
            run.history.cut = True
        except LAB_ERRORS as error:
            run.history.troubles.append(f"the lab could not be asked: {error}")
        signal.setitimer(signal.ITIMER_REAL, 0)
        run.close(clients, watch)
    # the watchdog's patience, and one start as long as it may be here
    found = judge.findings(run.history, run.limit, max(judge.DEADLINE, judge.PATIENCE + run.limit))
    (run.folder / "history.json").write_text(
        json.dumps(dataclasses.asdict(run.history), indent=1) + "\n", encoding="utf-8"
    )
    (run.folder / "findings.txt").write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    if found:
        run.evidence()
    return found


def keep(run: Run, name: str, seed: int, found: Sequence[str] | None) -> None:
    """What one line of a summary needs; no findings yet while rounds go on."""
    rounds, laid = run.history.rounds, dict(sorted(run.laid.items()))
    brief = {"cluster": name, "seed": seed, "executor": run.cluster.executor, "rounds": len(rounds), "laid": laid,
             "minutes": round((run.history.ended or run.now()) / 60, 1), "limit": round(run.limit), "findings": found,
             "healed": [round(each.healed - each.whole) for each in rounds if each.healed is not None],
             "cut": run.history.cut, "missed": dict(run.missed)}  # fmt: skip
    (run.folder / "result.json").write_text(json.dumps(brief) + "\n", encoding="utf-8")


def report(run: Run, name: str, seed: int, found: Sequence[str]) -> None:
    answered = sum(one.ok for one in (*run.history.requests, *run.history.pulses))
    minutes = run.history.ended / 60
    say(f"{len(run.history.rounds)} rounds in {minutes:.0f} min, {answered} right answers, load {os.getloadavg()}")
    say("laid: " + ", ".join(f"{kind} {count}" for kind, count in sorted(run.laid.items())))
    if run.missed:
        say("not there to be struck: " + ", ".join(f"{kind} {count}" for kind, count in sorted(run.missed.items())))
    for line in found:
        say(f"FINDING  {line}")
    again = f"PLAN={run.folder / 'plan.json'}"
    if run.own:
        # it was not made here
        again += f" ARGS='--lab {name} --inventory {run.cluster.inventory}'"
    say(f"seed {seed}: {len(found)} findings; the same again: make chaos {again}")


def serve(name: str, cluster: Cluster, lab_name: str) -> Site:
    """The lab as the play makes it; what is there already is used."""
    subprocess.run([sys.executable, str(TOP / "lab/engine/prepare.py")], check=True, stdout=subprocess.DEVNULL)
    Lab.create([TOP / "inventories" / cluster.inventory], home=TOP / ".lab", name=lab_name, subnet=cluster.subnet)
    site = Site.open(lab_name, cluster.inventory)
    outcome = run_playbook("site.yml", site.inventories, extra_vars=dict(cluster.variables) or None, name=name, say=say)
    if outcome.rc != 0:
        raise FaultError("\n".join(outcome.failures))
    return site


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--cluster", choices=sorted(CLUSTERS), help="PP=3 with Ray, PP=3 with mp, TP=2 on direct")
    parser.add_argument("--seed", type=int, help="default: drawn and printed")
    parser.add_argument("--minutes", type=float, default=30.0, help="no round begins after these")
    parser.add_argument("--ends", type=float, metavar="EPOCH", help="cut short at this moment, and judged")
    parser.add_argument("--plan", type=Path, metavar="FILE", help="lay the rounds of this plan.json instead")
    parser.add_argument("--keep", action="store_true", help="leave the lab for a look, and for the next run")
    parser.add_argument("--lab", help="one that serves already, and stays; it says itself what it answers")
    parser.add_argument("--inventory", help="of --lab: a folder of inventories/, or a path")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    # lab is a folder of inventories/, and the simulator's folder as well
    if options.inventory and not (TOP / "inventories" / options.inventory).is_dir():
        options.inventory = str(Path(options.inventory).resolve())
    if bool(options.lab) != bool(options.inventory) or (options.lab and options.cluster):
        parser.error("--lab and --inventory go together, without --cluster")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.ends:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, max(1.0, options.ends - time.time()))
    name, seed, plan = options.cluster or "ray", options.seed, None
    if options.plan:
        name, seed, plan = schedule.from_plan(json.loads(options.plan.read_text(encoding="utf-8")))
    elif seed is None:
        seed = random.SystemRandom().randrange(1_000_000)
    name = options.lab or name
    say(f"cluster {name}, seed {seed}")
    folder = options.results / f"{name}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    lab_name = options.lab or f"chaos-{name}"
    try:
        run = opened(options, folder) if options.lab else made(name, lab_name, folder)
        found = chaos(run, name, seed, options.minutes, plan)
        keep(run, name, seed, found)
        report(run, name, seed, found)
        return 1 if found else 0
    except LAB_ERRORS as error:
        say(str(error))
        return 2
    finally:
        if not (options.keep or options.lab):
            try:
                Lab(lab_name, home=TOP / ".lab").destroy()
            except LabError as error:  # such as one that was not made
                say(f"the lab is not taken away: {error}")


def opened(options: argparse.Namespace, folder: Path) -> Run:
    cluster = given(options.inventory)
    site = Site.open(options.lab, options.inventory)
    site.model = cluster.model or site.model
    return Run(site, cluster, folder)


def made(name: str, lab_name: str, folder: Path) -> Run:
    expected = reference()
    return Run(serve(name, CLUSTERS[name], lab_name), CLUSTERS[name], folder, expected)


if __name__ == "__main__":
    sys.exit(main())
