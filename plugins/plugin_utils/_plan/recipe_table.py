# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows of recipe_catalogue.py in words: a table with a plain verdict, what to do, and one recipe at a glance."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import measured, outlook
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe as _recipe
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_catalogue import (
    ACKNOWLEDGE,
    PLANNED,
    REASONS,
    REFUSED,
    alternatives,
    counts,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import host_counts

#: what a cell says where no number is known
NOBODY, NOT_ESTIMATED, NOT_KNOWN = "nobody yet", "not estimated", "not known"
_HEADINGS = (
    *("RECIPE", "HOSTS", "VERDICT", "SPLIT", "GB TO FETCH", "LONGEST REQUEST", "AT ONCE", "TOKENS/S", "MEASURED"),
)
#: kinds of reasons by which the hosts are too few, too many or of another kind; others are the recipe's own
_OF_HOSTS = ("memory", "hosts", "hardware", "split", "replicas")
_EXPLAINED = (
    "SPLIT: TP, hosts that compute each layer together; PP, hosts that have layers one after the other.",
    "LONGEST REQUEST: tokens of question and answer together. AT ONCE: how many of that length "
    "fit; of shorter ones more.",
    "TOKENS/S: planned, for one request alone that writes prose; a recipe with a drafter writes code faster. MEASURED: "
    "tokens/s by others. The fastest stand first: as measured with the same weights, else as planned.",
)
_CHOOSE = "To choose {}, write in group_vars/cluster.yml of the inventory: vllm_serve_recipe: {}"


def numbers(row: Mapping[str, Any]) -> list[str]:
    """GB to fetch, longest request, requests at once, planned tokens/s and measured ones, for a table."""
    known, speed = row["requests"] is not None, row["tokens_per_second"]
    return [
        f"{row['bytes'] / 1e9:.0f}" if row["bytes"] else NOT_KNOWN,
        f"{row['request_tokens']:,}" if row["request_tokens"] else NOT_KNOWN,
        f"{int(row['requests'])}" if known else NOT_KNOWN,
        outlook.words(speed) if speed else NOT_ESTIMATED,
        measured.speed(row["measured"][0]) if row["measured"] else NOBODY,
    ]


def verdict(row: Mapping[str, Any]) -> str:
    """``fits``, ``fits with …``, ``does not fit: why`` or ``not planned: why``."""
    if row["verdict"] == REFUSED:
        why = _why(row)
        of_hosts = row["kind"] in _OF_HOSTS or why.startswith("it is for ")
        word = {"shape": "not planned"}.get(row["kind"], "does not fit" if of_hosts else "not possible")
        return f"{word}: {why}"
    said = {"fits": "fits", "tight": "fits tightly"}.get(row["memory"])
    needs = ", ".join(row["acknowledge"])
    if said is None:
        return f"not planned: size not known{f', needs {needs}' if needs else ''}"
    return f"{said} with {needs}" if needs else said


def _refusal(row: Mapping[str, Any]) -> str:
    """The verdict below a heading that says already that it is one against these hosts."""
    why = _why(row)
    return why if why.startswith("it is for ") else verdict(row)


def _name(row: Mapping[str, Any]) -> str:
    return str(row.get("name") or os.path.splitext(os.path.basename(row["recipe"]))[0])


def _why(row: Mapping[str, Any]) -> str:
    """The reason in a few words: its first sentence, or of one that only says so the second."""
    reason = str(row["reason"]).removeprefix(f"recipe {_name(row)}").removeprefix(":").strip()
    first, _dot, rest = reason.partition(". ")
    if row["kind"] == "memory" and rest:
        first = rest.partition(". ")[0]
    first = first.partition(" and the group cluster")[0].rstrip(".")
    return f"it {first}" if first.startswith("is ") else first


def _table(sections: Sequence[tuple[str, Sequence[Sequence[str]]]]) -> list[str]:
    """Headings once, and each section's title above its lines; columns that all sections share."""
    lines = [_HEADINGS, *(line for _title, section in sections for line in section)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    text = [_padded(_HEADINGS, widths)]
    for title, section in sections:
        text += ["", title] if title else []
        text += [_padded(line, widths) for line in section]
    return text


def _padded(line: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def divided(number: int, of: int) -> str:
    """How so many hosts are divided into groups of a number: ``2+1``, ``3 x 1``, ``2 x 3 + 2``."""
    times, rest = divmod(of, number)
    if times == 1:
        return f"{number}+{rest}" if rest else str(number)
    return f"{times} x {number}" + (f" + {rest}" if rest else "")


def _title(number: int, kind: str, of: int) -> str:
    """What the rows of a part have in common. ``kind``: only where the hosts are of several."""
    what = f"host{'s' if of > 1 else ''}{f' of kind {kind}' if kind else ''}"
    title = f"{number} of the {of} {what}" if number < of else f"The {of} {what}"
    times, rest = divmod(of, number)
    title += f", or {times} replicas (each as fast, together {times} times as many requests)" if times > 1 else ""
    return f"{title}, and {rest} left for another model:" if rest else f"{title}:"


def run_lines(rows: Sequence[Mapping[str, Any]], parts: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """A table of what all hosts and parts of them can run, and below it what none can, with the reason in a few words.

    ``rows``: of recipe_catalogue.runs. ``parts``: of recipe_catalogue.parts.
    """
    able = [row for row in rows if row["verdict"] != REFUSED]
    together = f"All hosts together:{'' if able else ' no recipe of the collection'}" if parts else ""
    sections = [(together, [_cells(row, str(row["hosts"])) for row in able])]
    for (kind, of, number), group in itertools.groupby(
        parts, key=lambda row: (row["part"]["kind"], row["part"]["of"], row["hosts"])
    ):
        title = _title(number, kind, of)
        sections.append((title, [_cells(row, divided(number, of)) for row in group]))
    text = [*_table(sections), *_measured_lines(able)]
    in_part = {row["name"] for row in parts}
    refused = [row for row in rows if row["verdict"] == REFUSED and _name(row) not in in_part]
    text += ["", "Not on these hosts:"] if refused else []
    text += [f"  {_name(row)}: {_refusal(row)}" for row in refused]
    return [*text, "", *_notes([*able, *parts]), *_what_to_do(able, parts)]


def _cells(row: Mapping[str, Any], hosts: str) -> list[str]:
    return [_name(row), hosts, verdict(row), row["split"], *numbers(row)]


def _notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the columns mean, as far as there are rows."""
    notes = list(_EXPLAINED) if rows else []
    if any(row["acknowledge"] for row in rows):
        notes.append("fits with NAME: set vllm_serve_acknowledged: [NAME] as well.")
    return notes


def _what_to_do(able: Sequence[Mapping[str, Any]], parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """How a part is chosen, and last how all hosts are, with the fastest recipe as it is written."""
    told = ["A part of the hosts is a serving group with a recipe of its own: docs/groups.md"] if parts else []
    which = "one of the first block" if parts else "one"
    told += [_CHOOSE.format(which, _name(able[0]))] if able else []
    return told or ["None of the collection's recipes is for these hosts; of others: docs/recipes.md"]


def _measured_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What others measured on so many hosts, with the engine, the date and the source of each."""
    found = [f"  {row['name']}: {measured.line(one)}" for row in rows for one in row["measured"]]
    return ["", "Measured by others on as many hosts, tokens/s (docs/catalogue.md has all):", *found] if found else []


def check_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A table of the recipes of a file, a folder or a registry, the whole reason of each refusal, and their counts."""
    able = [row for row in rows if row["verdict"] != REFUSED]
    text = _table([("", [[row["recipe"], *_cells(row, str(row["hosts"]))[1:]] for row in able])]) if able else []
    notes = [
        f"  {row['recipe']}: {note}"
        for row in able
        for note in (
            *(f"{line[0].lower()}{line[1:]}" for line in row["unknown"]),
            *(f"not translated: {part}" for part in row["untranslated"]),
        )
    ]
    text += ["", "To know about them:", *notes] if notes else []
    refused = [row for row in rows if row["verdict"] == REFUSED]
    text += ["", "Refused:"] if refused else []
    for row in refused:
        text += [f"  {row['recipe']}: {verdict(row).partition(':')[0]}", f"    {row['reason']}"]
    words = {PLANNED: "planned", ACKNOWLEDGE: "planned, with an acknowledgement"}
    words.update({kind: f"refused: {reason}" for kind, reason in REASONS.items()})
    total = [f"{number:>5}  {words[key]}" for key, number in counts(rows).items()]
    text += ["", *_notes(able), _CHOOSE.format("one", "NAME_OR_FILE")] if able else []
    return [*text, "", f"{len(rows):>5}  recipes", *total]


def list_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of recipe_catalogue.listing: a line each."""
    width = max(len(row["name"]) for row in rows)
    lines = [
        f"{row['name']:<{width}}  hosts {', '.join(map(str, row['hosts'])) or 'any'}: {row['summary']}" for row in rows
    ]
    return [*lines, "", "What your machines can run, and how fast: add -i INVENTORY, or -e recipe_sparks=3"]


def show(recipe: str, folder: str = _recipe.SHIPPED, **cluster: Any) -> str:
    """A recipe as it is understood: a summary as comments, and YAML in the form of this collection.

    ``cluster``: hosts, topology, kinds and version of recipe_catalogue.alternatives.
    """
    data = _recipe.load(recipe, folder)
    rows = alternatives(recipe, folder=folder, **cluster)
    kept = {key: value for key, value in data.items() if value not in (None, "", [], {})}
    # a file of others may say anything
    summary = "\n".join(f"# {printable(' '.join(line.split()))}" for line in _summary(data, rows, recipe))
    return f"{summary}\n---\n{yaml.safe_dump(kept, sort_keys=False)}"


def _summary(data: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], recipe: str) -> list[str]:
    engine = registry.planned_engine(data["engine"]).title
    counted = " or ".join(map(str, host_counts(data))) or "any number of"
    kinds = f" of kind {' or '.join(data['kinds'])}" if data["kinds"] else ""
    where = {"container": "in a container"}.get(data["runtime"], "in a Python environment")
    return [
        f"{data['name']}: {data['summary']}",
        f"Model {data['model']}, served by {engine} {where}, for {counted} host{'s' if counted != '1' else ''}{kinds}.",
        *(_of_row(row) for row in rows),
        _CHOOSE.format("it", recipe),
    ]


def _of_row(row: Mapping[str, Any]) -> str:
    """``On 2 hosts (direct): fits; …``, in one line."""
    number = row.get("hosts")
    cabled = f" ({row['topology']})" if row.get("topology") and number != 1 else ""
    on = f"On {number} host{'s' if number != 1 else ''}{cabled}" if number else "Here"
    if row["verdict"] == REFUSED:
        return f"{on}: {verdict(row)}"
    size, _length, _requests, speed, seen = numbers(row)
    said = [verdict(row), row["split"], f"{size} GB to fetch"]
    said += [outlook.at_once(row["requests"], row["request_tokens"])] if row["requests"] is not None else []
    said.append(f"tokens/s of one request alone: {speed} planned, {seen} measured by others")
    return "; ".join([f"{on}: {said[0]}", *said[1:]])
