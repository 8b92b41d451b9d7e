# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/developers.md from the results: only what was measured, with its date.  Nothing here touches a host."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.faults.table import BY_NAME, Run, middle
from tools.gpu import boots, price
from tools.gpu.start import BOOT, STEPS

Documents = Mapping[str, Mapping[str, Any]]
#: whose results stand for a stage that was not measured by itself; faults are those of all of them
SHARED: Mapping[str, tuple[str, ...]] = {
    "slow": ("fault1",), "busy": ("load",), "boot": ("load",),
    "faults": ("fault1", "fault2", "large"),
}  # fmt: skip


def read(folder: Path, stages: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What was found by stage, in a folder of results or in those of its clusters."""
    results = {}
    for stage in stages:
        for place in (folder, *(folder / name for name in SHARED.get(stage, ()))):
            path = place / f"{stage}.json"
            if stage not in results and path.exists():
                results[stage] = json.loads(path.read_text(encoding="utf-8"))
    return results


def _rows(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    text = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return [*text, *(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)]


def machine(documents: Documents) -> list[str]:
    deploy = documents.get("deploy")
    if not deploy:
        return ["Not measured yet."]
    return _rows(("what", "version"), [*deploy["versions"].items(), ("measured on", deploy["date"])])


def runs(documents: Documents) -> list[str]:
    rows: list[tuple[str, Any, str]] = []
    if found := documents.get("deploy"):
        rows.append(("hosts made and booted", found["hosts_seconds"], f"{found['hosts']} hosts"))
        parts = ", ".join(f"{name} {seconds:g}" for name, seconds in found["stages"].items() if seconds >= 1)
        rows.append(("`site.yml` on bare hosts", found["site_seconds"], parts))
    if found := documents.get("again"):
        rows.append(("`site.yml` again", found["seconds"], f"changed {sum(found['changed'].values())}"))
    for name in ("verify", "status", "doctor", "report"):
        if found := documents.get(name):
            note = "ended well" if not found["rc"] else f"ended with {found['rc']}"
            if name == "doctor":
                note += f"; findings: {', '.join(found['findings']) or 'none'}"
            rows.append((f"`playbooks/{name}.yml`", found["seconds"], note))
    if found := documents.get("boot"):
        rows.append(("power-on of all hosts to the first answer", found["answer"], f"ssh after {found['ssh']} s"))
    return _rows(("step", "seconds", "outcome"), rows) if rows else ["Not measured yet."]


def started(documents: Documents, beside: Documents) -> list[str]:
    """Steps of a first start, one beside others, and one after a power-on, with what was compiled before."""
    ways = [dict((one.get(name) or {}).get("start") or ()) for one, name in
            ((documents, "deploy"), (beside, "deploy"), (documents, "boot"))]  # fmt: skip
    steps = [step for step in (BOOT, *(step for step, _words in STEPS)) if any(step in way for way in ways)]
    rows: list[tuple[Any, ...]] = [(step, *(way.get(step, "–") for way in ways)) for step in steps]
    rows.append(("all", *(round(sum(way.values()), 1) if way else "–" for way in ways)))
    head = ("step", "first start, s", "first start beside others, s", "after power-on, s")
    return _rows(head, rows) if steps else ["Not measured yet."]


def booted(folder: Path, names: Sequence[tuple[str, str]]) -> list[str]:
    """Power-on in variants, of the first cluster that has them."""
    for place in (folder, *(folder / name for name, _title in names)):
        path = place / "boots-runs.json"
        if path.exists():
            return _rows(*boots.rows(json.loads(path.read_text(encoding="utf-8"))["runs"]))
    return ["Not measured yet."]


def verified(documents: Documents) -> list[str]:
    found = documents.get("verify") or {}
    rows = [
        (one.get("check"), one.get("where"), one.get("value"), one.get("unit", ""), one.get("verdict"))
        for one in found.get("lines", [])
    ]
    return _rows(("check", "where", "value", "unit", "verdict"), rows) if rows else ["Not measured yet."]


_PRICED = (
    *("streams", "pairs", "ours, tokens/s", "without us", "ratio (interval)"),
    *("added TTFT p50, ms (interval; both)", "failed"),
)


def _priced(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        row["streams"], row["pairs"], f"{row['ours']:.0f}", f"{row['bare']:.0f}",
        f"**{row['ratio']:.3f}** ({row['ratios'][0]:.3f}, {row['ratios'][1]:.3f})",
        f"{row['ttft_added']:+.1f} ({row['ttft_spread'][0]:+.1f}, {row['ttft_spread'][1]:+.1f}; "
        f"{row['ttft_ours']:.1f} and {row['ttft_bare']:.1f})", row["failed"],
    )  # fmt: skip


def compared(folder: Path, bare: str = "by hand") -> list[dict[str, Any]]:
    """Pairs against vLLM by hand, or our engine alone, which count as soon as they are there."""
    path = folder / "byhand-rows.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return price.summary(rows, "ours", bare)


def priced(folder: Path, names: Sequence[tuple[str, str]], bare: str = "by hand") -> list[str]:
    places = [("`make gpu`", folder), *((title, folder / name) for name, title in names)]
    rows = [(title, *_priced(row)) for title, place in places for row in compared(place, bare)]
    return _rows(("executor, split", *_PRICED), rows) if rows else ["Not measured yet."]


def paged(folder: Path, names: Sequence[tuple[str, str]]) -> list[str]:
    """The cluster while browsers keep its page open, beside the same cluster without them."""
    rows = []
    for name, title in names:
        # browsers may also be one of the ways that are compared in turns
        for path in (folder / name / f"{kind}-rows.json" for kind in ("page", "byhand")):
            kept = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
            rows += [(title, *_priced(row)) for row in price.summary(kept, "polled", "ours")]
    head = [cell.replace("ours", "ten look").replace("without us", "nobody looks") for cell in _PRICED]
    return _rows(("executor, split", *head), rows) if rows else ["Not measured yet."]


def ringed(folder: Path) -> list[str]:
    """What NCCL did on a ring of four, by case."""
    path = folder / "ring.json"
    if not path.exists():
        return ["Not measured yet."]
    rows = []
    for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
        reason = case["reasons"][0].rpartition(" : ")[2] if case["reasons"] else "no answer"
        done = f"{len(case['done'])} collectives right" if case["done"] else "nothing came through"
        rows.append((case["case"], done if case["whole"] else f"{done}, then: {reason}",
                     ", ".join(f"{sent:g}" for sent in case["sent_mib"])))  # fmt: skip
    return _rows(("case", "outcome", "MiB sent to the right and to the left by host 0, 1, 2, 3"), rows)


def clusters(folder: Path, names: Sequence[tuple[str, str]]) -> list[str]:
    """A row for each cluster that stood beside others on the same GPUs; what was not measured is a dash."""
    rows = []
    for name, title in names:
        kept = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (folder / name).glob("*.json")}
        if "deploy" not in kept:
            continue
        lines = {(one["check"], one["where"]): one for one in kept.get("verify", {}).get("lines", [])}
        reduced: Mapping[str, Any] = next((one for (check, _where), one in lines.items() if check == "all-reduce"), {})
        transports = sorted({str(one["value"]) for (check, _where), one in lines.items() if check == "transport"})
        bad = [check for (check, _where), one in lines.items() if one["verdict"] == "fail"]
        ratios = ", ".join(
            f"{one['ratio']:.3f} at {one['streams']} (n={one['pairs']})" for one in compared(folder / name)
        )
        lost = folder / name / "faults" / "worker.json"
        healed = json.loads(lost.read_text(encoding="utf-8"))[0] if lost.exists() else {}
        heals = [healed.get("noticed"), healed.get("again"), *healed.get("troubles", ())] if healed else "–"
        rows.append(
            (
                title, f"{kept['deploy']['hosts']}", f"{kept['deploy']['site_seconds']:.0f}",
                sum(kept["again"]["changed"].values()) if "again" in kept else "–",
                f"{reduced.get('value', '–')}, {'/'.join(transports) or '–'}",
                f"{lines.get(('decode', '1 stream'), {}).get('value', '–')}",
                ", ".join(sorted(set(bad))) or ("none" if lines else "–"), ratios or "–",
                ", ".join(map(str, heals)),
            )
        )  # fmt: skip
    head = (
        *("executor, split", "hosts", "`site.yml`, s", "changed by the second run", "all-reduce GB/s, transport"),
        *("tokens/s of 1 stream", "verify below", "tokens/s, ours ÷ by hand at streams"),
        "worker lost: noticed, serving again, s",
    )
    return _rows(head, rows) if rows else ["Not measured yet."]


def faulted(folder: Path, settings: Mapping[str, Any]) -> list[str]:
    rows = []
    places = [folder, *(folder / name for name in SHARED["faults"])]
    for name, row in BY_NAME.items():
        kept = [
            Run.from_dict(one)
            for path in (place / "faults" / f"{name}.json" for place in places)
            if path.exists()
            for one in json.loads(path.read_text(encoding="utf-8"))
        ]
        if not kept:
            continue
        clean = middle(run.clean_start for run in kept if run.clean_start)
        title = {"link": f"network of the worker cut for {settings.get('cut', 0):g} s (silent)"}.get(name, row.title)
        title = f"power loss of a worker, back after {settings.get('away', 0):g} s" if name == "worker" else title
        clients = [max(run.clients) for run in kept if run.clients]
        rows.append(
            (
                title, len(kept), ", ".join("–" if run.noticed is None else f"{run.noticed:g}" for run in kept),
                ", ".join("–" if run.again is None else f"{run.again:g}" for run in kept) + f" after {row.since}",
                f"{max(clients):g}" if clients else "–", "–" if clean is None else f"{clean:g}",
                "; ".join(sorted({trouble for run in kept for trouble in run.troubles})) or "none",
            )
        )  # fmt: skip
    head = ("fault", "n", "noticed, s", "serving again, s", "clients ended, s", "clean start, s", "trouble")
    return _rows(head, rows) if rows else ["Not measured yet."]


def loaded(documents: Documents) -> list[str]:
    found = documents.get("busy")
    if not found:
        return ["Not measured yet."]
    head = ("streams", "minutes", "requests", "tokens/s", "failed", "restarts", "engine started anew", "states seen")
    started = "yes" if found["restarted"] else "no"
    return _rows(head, [
        (found["streams"], f"{found['minutes']:g}", found["requests"], f"{found['tokens_per_second']:.0f}",
         found["failed"], sum(found["restarts"].values()), started, ", ".join(found["states"])),
    ])  # fmt: skip


def slowed(documents: Documents) -> list[str]:
    found = documents.get("slow")
    if not found:
        return ["Not measured yet."]
    head = ("step", "outcome")
    answered = "whole" if not found["answer"] else found["answer"]
    return _rows(head, [
        (f"a step of {found['step']:g} s", f"answered after {found['answered']} s, {answered}; "
         f"{'restarted' if found['restarts'] else 'no restart'}"),
        ("then a worker's rank stopped", f"noticed after {found.get('noticed', '–')} s, serving again after "
         f"{found.get('again', '–')} s"),
    ])  # fmt: skip


def parts(folder: Path, stages: Iterable[str], names: Sequence[tuple[str, str]] = ()) -> dict[str, list[str]]:
    """Every marked part of docs/developers.md."""
    documents = read(folder, stages)
    return {
        "gpu clusters": clusters(folder, names),
        "gpu machine": machine(documents),
        "gpu runs": runs(documents),
        "gpu start": started(documents, read(folder / "load", ["deploy"])),
        "gpu boots": booted(folder, names),
        "gpu verify": verified(documents),
        "gpu price": priced(folder, names, "engine"),
        "gpu by hand": priced(folder, names),
        "gpu page": paged(folder, names),
        "gpu ring": ringed(folder),
        "gpu faults": faulted(folder, documents.get("faults") or {}),
        "gpu load": loaded(documents),
        "gpu slow": slowed(documents),
    }
