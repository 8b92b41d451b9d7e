# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make gpu``: the collection on real GPUs of this machine, stage by stage, and docs/developers.md from the results.

A stage's result is kept as soon as it is there, in ``.lab/results/gpu``, and is not measured again. So the run can be
spread over several short calls. ``--table FILE`` only writes the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.groups import names_of
from sparklab import Lab
from sparklab.system import LabError

from tools import marked
from tools.faults import faults, steps
from tools.faults.__main__ import complete
from tools.faults.observe import Watch
from tools.faults.site import RAY, VLLM, FaultError, Site, wait
from tools.gpu import boots as power
from tools.gpu import byhand, clusters, cores, price, start, table
from tools.gpu.clusters import TITLES
from tools.gpu.load import measure
from tools.playbooks import TOP, Outcome, run_playbook

RESULTS = TOP / ".lab" / "results" / "gpu"
FAULTS = ("front", "engine", "wedge", "link", "worker")
#: of an engine whose start nobody measured
LONG_START = 180.0


class GpuError(Exception):
    """One line for the user."""


def say(line: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {line}", flush=True)


class Run:
    """The lab, and what has been found so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        # a path of its own stays what it is
        self.inventory = TOP / "inventories" / options.inventory
        self.folder: Path = options.results
        self.folder.mkdir(parents=True, exist_ok=True)
        self._site: Site | None = None

    def kept(self, stage: str) -> dict[str, Any] | None:
        path = self.folder / f"{stage}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def keep(self, stage: str, found: dict[str, Any]) -> None:
        part = self.folder / f".{stage}.part"
        part.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        part.replace(self.folder / f"{stage}.json")

    @property
    def site(self) -> Site:
        if self._site is None:
            self._site = Site.open(self.options.lab, self.options.inventory)
            [self._site.model, *_others] = names_of(
                self.declared().get("vllm_serve_served_model_name"), self._site.model
            )
        return self._site

    def declared(self) -> dict[str, Any]:
        path = self.inventory / "group_vars" / "cluster.yml"
        return dict(yaml.safe_load(path.read_text(encoding="utf-8")))

    def play(self, playbook: str, name: str, **variables: Any) -> Outcome:
        overlay = TOP / ".lab" / self.options.lab / "inventory.yml"
        wanted = {**self.options.extra, **variables}
        outcome = run_playbook(playbook, [self.inventory, overlay], extra_vars=wanted, name=f"gpu-{name}", say=say)
        (self.folder / f"{name}.log").write_text(outcome.output, encoding="utf-8")
        return outcome

    def must(self, playbook: str, name: str, **variables: Any) -> Outcome:
        outcome = self.play(playbook, name, **variables)
        if outcome.rc:
            raise GpuError(f"{playbook} ended with {outcome.rc}: {'; '.join(outcome.failures)[:2000]}")
        return outcome


# --- stages ----------------------------------------------------------------------------------------------------------


def deploy(run: Run) -> dict[str, Any]:
    begun = time.monotonic()
    lab = Lab.create([run.inventory], name=run.options.lab)
    hosts = time.monotonic() - begun
    outcome = run.must("site.yml", "deploy")
    return {
        "hosts": len(lab.plan.hosts),
        "hosts_seconds": round(hosts, 1),
        "site_seconds": round(outcome.seconds, 1),
        "stages": {name: round(seconds, 1) for name, seconds in outcome.stages.items()},
        "versions": versions(run.site),
        "start": start.steps(power.journal(run.site)),
    }


_VERSIONS = """
import importlib.metadata as known, json, platform
found = {"python": platform.python_version(), "nccl": "none"}
for name in ("vllm", "ray", "sglang", "torch"):
    try:
        found[name] = known.version(name)
    except known.PackageNotFoundError:
        pass
if "torch" in found:
    import torch
    if torch.cuda.is_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
print(json.dumps(found))
"""


def versions(site: Site) -> dict[str, str]:
    """What the figures are about, read where it runs."""
    container = site.on(site.head, "test ! -e /etc/sparkthor/container.json || echo yes").strip()
    python = "docker exec -i sparkthor-vllm python3" if container else "/opt/sparkthor/venv/bin/python -I"
    found = json.loads(site.on(site.head, f"cd /; {python} - <<'END'\n{_VERSIONS}\nEND"))
    smi = "nvidia-smi --query-gpu=name,driver_version,memory.used --format=csv,noheader"
    for host, text in site.everywhere(smi).items():
        found[f"GPU of {host}"] = text.strip()
    found["systemd"] = site.on(site.head, "systemctl --version | head -1").split()[1]
    found["kernel"] = os.uname().release
    return {key: str(value) for key, value in found.items()}


def again(run: Run) -> dict[str, Any]:
    outcome = run.must("site.yml", "again")
    return {"seconds": round(outcome.seconds, 1), "changed": outcome.changed}


def verify(run: Run, name: str = "verify", **variables: Any) -> dict[str, Any]:
    folder = run.folder / "verified"
    # what an earlier call left is no outcome of this one
    before = set(folder.rglob("*.json"))
    outcome = run.play("playbooks/verify.yml", name, verify_folder=str(folder), **variables)
    newest = sorted(set(folder.rglob("*.json")) - before)[-1:]
    lines = json.loads(newest[0].read_text(encoding="utf-8"))["lines"] if newest else []
    return {"rc": outcome.rc, "seconds": round(outcome.seconds, 1), "lines": lines, "failures": outcome.failures}


def status(run: Run) -> dict[str, Any]:
    path = run.folder / "status-document.json"
    outcome = run.play("playbooks/status.yml", "status", status_output="json", status_output_file=str(path))
    return {"rc": outcome.rc, "seconds": round(outcome.seconds, 1), "failures": outcome.failures}


def doctor(run: Run) -> dict[str, Any]:
    path = run.folder / "doctor-document.json"
    path.unlink(missing_ok=True)
    outcome = run.play("playbooks/doctor.yml", "doctor", doctor_json=str(path))
    document = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    found = [one["rule"] for one in document.get("findings", [])]
    return {"rc": outcome.rc, "seconds": round(outcome.seconds, 1), "findings": found, "failures": outcome.failures}


def report(run: Run) -> dict[str, Any]:
    path = run.folder / "report.html"
    path.unlink(missing_ok=True)
    outcome = run.play("playbooks/report.yml", "report", report_path=str(path))
    size = path.stat().st_size if path.exists() else 0
    return {"rc": outcome.rc, "seconds": round(outcome.seconds, 1), "bytes": size, "failures": outcome.failures}


def hand(run: Run) -> dict[str, Any]:
    """vLLM by hand beside ours: it stays until it was compared (``byhand``) and is ended (``unhand``)."""
    return {"seconds": round(byhand.start(run.site), 1)}


def boxed(run: Run) -> dict[str, Any]:
    """A second vLLM by hand in the limits of our unit, until ``unhand``."""
    byhand.start_boxed(run.site)
    return {}


def compare(run: Run) -> dict[str, Any]:
    """The whole of us, our engine alone, and vLLM that a person started with the same arguments on the same GPUs."""
    if "by hand" in run.options.ways and run.kept("hand") is None:
        byhand.start(run.site)
    found = in_turns(run, "byhand", run.options.ways)
    summary = {way: price.summary(found["rows"], "ours", way) for way in ("by hand", "engine", "boxed")}
    # what goes on beside one and the same engine, and two engines by hand
    summary["polled"] = price.summary(found["rows"], "polled", "ours")
    summary["boxed by hand"] = price.summary(found["rows"], "boxed", "by hand")
    return {**found, "summary": summary}


def in_turns(run: Run, name: str, asked: Sequence[str], other: Site | None = None) -> dict[str, Any]:
    """Rows of all ways, kept one by one, and what the first of them costs against the second."""
    options = run.options

    def keep(rows: list[dict[str, Any]]) -> None:
        run.keep(f"{name}-rows", {"rows": rows})

    rows = (run.kept(f"{name}-rows") or {}).get("rows", [])
    byhand.pairs(run.site, options.streams, options.pairs, options.seconds, options.tokens, rows, keep, say,
                 asked, options.prompt, other, options.requests)  # fmt: skip
    summary = price.summary(rows, *asked[:2]) if len(asked) > 1 else []
    long = {"requests": options.requests} if options.requests else {"seconds": options.seconds}
    return {"rows": rows, "summary": summary, **long, "tokens": options.tokens}


def chain(run: Run) -> dict[str, Any]:
    """Another serving group's front proxy, that of the group's own head, its engine; against the engine alone."""
    return in_turns(run, "chain", byhand.CHAIN)


def page(run: Run) -> dict[str, Any]:
    """The cluster while ten browsers keep its page open, against the cluster that nobody looks at."""
    return in_turns(run, "page", byhand.PAGE)


def cache(run: Run) -> dict[str, Any]:
    """Prompts that the prefix cache knows, against new ones."""
    return in_turns(run, "cache", byhand.CACHED)


def against(run: Run) -> dict[str, Any]:
    """This cluster against another one on the same GPUs (``--other``), each through its front proxy."""
    name = run.options.other
    other = Site.open(name, str(clusters.FOLDER / name))
    other.model = run.site.model
    return {**in_turns(run, f"against-{name}", byhand.AGAINST, other), "other": name}


def guessing(run: Run) -> dict[str, Any]:
    """The cluster that speculates against vLLM by hand that does not, but for that with the same arguments."""
    byhand.stop(run.site)
    byhand.start(run.site, without=["speculative-config"])
    return in_turns(run, "guessing", byhand.GUESSING)


def burn(run: Run) -> dict[str, Any]:
    """Every GPU under load for a minute, beside the engine that idles."""
    return verify(run, "burn", verify_parts="burn")


def unhand(run: Run) -> dict[str, Any]:
    byhand.stop(run.site)
    return {}


def busy(run: Run) -> dict[str, Any]:
    """Full load for minutes: the watchdog must not touch the engine, and no request may fail."""
    site, streams = run.site, max(run.options.streams)
    before = site.shown(site.head, VLLM, "InvocationID")
    with Watch(site.leader) as watch:
        wait(lambda: watch.state == "serving", 60, "serving")
        restarts, begun = dict(watch.newest["restarts"]), time.monotonic()
        found = measure(price.front(site, 128, run.options.tokens), streams, 60 * run.options.minutes)
        states = sorted({"serving"} | {state for moment, state, _line in watch.changes if moment >= begun})
        after = dict(watch.newest["restarts"])
    same = site.shown(site.head, VLLM, "InvocationID") == before
    return {**found, "streams": streams, "minutes": run.options.minutes, "states": states, "restarted": not same,
            "restarts": {key: count - restarts.get(key, 0) for key, count in after.items()}}  # fmt: skip


def slow(run: Run) -> dict[str, Any]:
    """A step that takes long is left alone, and a rank that stands still is not."""
    site, seconds = run.site, run.options.step
    stepped = steps.install(site, **run.declared()["vllm_serve_args"])
    outcome = run.must("site.yml", "slow", **stepped, vllm_serve_watchdog_step_patience=int(3 * seconds),
                       vllm_serve_watchdog_wedge_bound=60)  # fmt: skip
    result: dict[str, Any] = {"step": seconds, "site_seconds": round(outcome.seconds, 1)}
    with Watch(site.leader) as watch:
        wait(lambda: watch.state == "serving", 120, "serving")
        restarts = dict(watch.newest["restarts"])
        steps.set_step(site, f"{seconds:g}")
        begun = time.monotonic()
        try:
            result["answer"] = site.endpoint.complete(2, stream=False, timeout=900, prompt=steps.PROMPT)
        finally:
            steps.end_steps(site)
        result["answered"] = round(time.monotonic() - begun, 1)
        result["restarts"] = dict(watch.newest["restarts"]) != restarts
        run.keep("slow-part", result)
        client = threading.Thread(target=lambda: site.endpoint.complete(3000, stream=False, timeout=600), daemon=True)
        client.start()
        time.sleep(3)
        site.signal(site.worker, site.process(site.worker, RAY, "ray::RayWorker"), "STOP")
        stopped = time.monotonic()
        wait(lambda: watch.state != "serving", 240, "the stopped rank to be noticed")
        result["noticed"] = round(time.monotonic() - stopped, 1)
        wait(lambda: watch.state == "serving", 400, "serving again")
        result["again"] = round(time.monotonic() - stopped, 1)
    return result


def fault(run: Run) -> dict[str, Any]:
    faults.AWAY, faults.CUT = run.options.away, run.options.cut
    missed: dict[str, str] = {}
    folder = run.folder / "faults"
    if not run.options.clean:
        folder.mkdir(parents=True, exist_ok=True)
        # limits follow from a clean start: that of the deployment, from the unit's start to the API
        first = sum(seconds for _step, seconds in (run.kept("deploy") or {}).get("start", ())) or LONG_START
        text = json.dumps({"seconds": round(first, 1), "at": time.time()})
        (folder / f"clean-{run.options.lab}.json").write_text(text, encoding="utf-8")
    for number in range(1, run.options.rounds + 1):
        for name in run.options.faults:
            if name in missed:
                continue
            try:
                complete(run.site, name, number, folder=folder, age=7200)
            except (FaultError, LabError) as error:
                say(f"{name}: {error}")
                missed[name] = str(error)
    return {"away": faults.AWAY, "cut": faults.CUT, "missed": missed}


def boot(run: Run) -> dict[str, Any]:
    """All hosts without power, then power: the seconds to what a person waits for."""
    return power.power_on(run.site)


def boots(run: Run) -> dict[str, Any]:
    """Power-on in variants, in turns; the last one laid is what the product does."""

    def keep(runs: list[dict[str, Any]]) -> None:
        run.keep("boots-runs", {"runs": runs})

    runs = (run.kept("boots-runs") or {}).get("runs", [])
    try:
        power.measure(run.site, run.options.variants, run.options.rounds, runs, keep, run.folder)
    finally:
        power.lay(run.site, power.VARIANTS["beside"])
    return {"runs": runs}


STAGES: dict[str, Callable[[Run], dict[str, Any]]] = {
    "deploy": deploy,
    "again": again,
    "verify": verify,
    "status": status,
    "doctor": doctor,
    "report": report,
    "faults": fault,
    "boot": boot,
    "boots": boots,
    "hand": hand,
    "boxed": boxed,
    "byhand": compare,
    "chain": chain,
    "page": page,
    "cache": cache,
    "against": against,
    "guessing": guessing,
    "burn": burn,
    "unhand": unhand,
    "busy": busy,
    "slow": slow,
}
#: need a cluster of their own, or are asked for by name
ASKED = ("boxed", "chain", "page", "cache", "against", "guessing", "burn")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    parser.add_argument("stages", nargs="*", help=f"default: all but {', '.join(ASKED)}, of {', '.join(STAGES)}")
    parser.add_argument("--inventory", default="gpu", help="a folder of inventories/")
    parser.add_argument("--lab", help="name of the lab (default: the inventory's)")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--streams", type=lambda text: [int(word) for word in text.split(",")], default=[1, 8, 64])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="that one figure of a load is measured")
    parser.add_argument("--requests", type=int, default=0, help="of each stream, whole ones, instead of --seconds")
    parser.add_argument("--tokens", type=int, default=256, help="of an answer")
    parser.add_argument("--prompt", type=int, default=128, help="tokens of a prompt")
    parser.add_argument("--other", default="", help="the cluster that another one is compared with")
    ways = list(byhand.WAYS)
    parser.add_argument(
        "--ways", type=lambda text: text.replace("-", " ").split(","), default=ways, help="whom to ask; also by-hand"
    )
    parser.add_argument("--faults", type=lambda text: text.split(","), default=list(FAULTS))
    parser.add_argument("--rounds", type=int, default=2, help="of each fault, or of power-on in variants")
    variants = list(power.VARIANTS)
    parser.add_argument("--variants", type=lambda text: text.split(","), default=variants, help="of power-on")
    parser.add_argument("--away", type=float, default=20.0, help="seconds that a host is without power")
    parser.add_argument(
        "--no-clean", dest="clean", action="store_false", help="take the deployment's start for a clean one"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="of full load")
    parser.add_argument("--step", type=float, default=60.0, help="seconds of a slow step")
    parser.add_argument("--cut", type=float, default=30.0, help="seconds that a link is cut")
    parser.add_argument("--cores", type=int, help="of its own for these hosts, other labs get the rest; 0 = no more")
    parser.add_argument("--extra", type=json.loads, default={}, help="variables for every play, as JSON")
    parser.add_argument("--again", action="store_true", help="measure these stages anew")
    parser.add_argument("--table", type=Path, metavar="FILE", help="only write the tables into FILE")
    options = parser.parse_args(argv)
    unknown = [name for name in options.stages if name not in STAGES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(STAGES)}")
    options.lab = options.lab or Path(options.inventory).name
    return options


def main(argv: Sequence[str] | None = None) -> int:
    options = parse(argv)
    run = Run(options)
    if options.table:
        for name, lines in table.parts(run.folder, list(STAGES), TITLES).items():
            marked.replace(options.table, name, "\n".join(lines))
        return 0
    if options.cores is not None:
        try:
            cores.own(options.lab, options.cores)
        except (OSError, ValueError) as error:
            say(f"--cores {options.cores}: {error}: measured on shared cores")
    bad = 0
    for stage in options.stages or [name for name in STAGES if name not in ASKED]:
        kept = run.kept(stage)
        if kept is not None and not kept.get("missed") and not options.again:
            continue
        say(f"--- {stage}")
        begun = time.monotonic()
        try:
            found = STAGES[stage](run)
        except (GpuError, FaultError, LabError, OSError, subprocess.SubprocessError) as error:
            say(f"{stage}: {error}")
            bad += 1
            if stage == "deploy":
                break
            continue
        run.keep(stage, {**found, "date": time.strftime("%Y-%m-%d"), "took": round(time.monotonic() - begun, 1)})
        brief = {key: value for key, value in found.items() if key not in ("rows", "lines")}
        say(f"{stage}: {json.dumps(brief)[:1500]} ({time.monotonic() - begun:.0f} s)")
        bad += bool(found.get("missed"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
