# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a benchmark asks for, what it came to, and why it is slower than the last one.  On the controller; pure.

The tool is llama-benchy, by which owners of Sparks compare theirs. Two runs of it give one list of rows: prompts of
growing length with one stream, and growing numbers of streams with one length.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import outlook
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import plain

VERSION = 1
#: a speed below this share of the last one is told, with what changed between the two
SLOWER = 0.95
#: reads the API key from its standard input, so that no process list shows it
LAUNCH = (
    "import json, sys; given = json.load(sys.stdin); sys.argv = given['argv']; "
    "from llama_benchy.__main__ import main; main()"
)


class BenchError(ValueError):
    """One line: the variable, its value and the fix."""


def room(options: Mapping[str, str], tokens: int) -> int:
    """Tokens that a prompt may have beside such an answer; 0 where nobody says how long the context is."""
    length = str(options.get("max-model-len") or "")
    if not length.isdecimal():
        return 0
    if int(length) <= tokens:
        raise BenchError(f"bench_tokens: {tokens}: the context has {length} tokens, and prompts need some; give less")
    return int(length) - tokens


def sweeps(prompts: Sequence[int], streams: Sequence[int], prompt: int, room: int) -> list[tuple[list[int], list[int]]]:
    """(prompt lengths, numbers of streams) of each run of the tool; what the context has no room for is left out."""
    for name, values in (("bench_prompts", prompts), ("bench_streams", streams), ("bench_prompt", [prompt])):
        if not values or min(values) < 1:
            raise BenchError(f"{name}: {list(values)}: numbers from 1 on are needed")
    lengths = [length for length in prompts if not room or length <= room]
    if not lengths or (room and prompt > room):
        raise BenchError(f"bench_prompts, bench_prompt: prompts and answer do not fit: there is room for {room} tokens")
    more = [count for count in streams if count > 1]
    found = [(lengths, [1])] if 1 in streams else []
    return [*found, *([([prompt], more)] if more else [])]


def arguments(
    url: str, model: str, tokenizer: str, prompts: Sequence[int], streams: Sequence[int], tokens: int, runs: int
) -> list[str]:
    """The tool's words but for the key and its files."""
    return [
        *("llama-benchy", "--base-url", url, "--model", model, "--tokenizer", tokenizer),
        *("--pp", *map(str, prompts), "--tg", str(tokens), "--concurrency", *map(str, streams)),
        *("--runs", str(runs), "--exact-tg", "--no-cache", "--latency-mode", "generation", "--format", "json"),
    ]


def merged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several reports of the tool as one, in its own form."""
    benchmarks = [row for report in reports for row in report["benchmarks"]]
    most = max((int(row["concurrency"]) for row in benchmarks), default=1)
    return {**reports[0], "max_concurrency": most, "benchmarks": benchmarks}


Key = tuple[int, int, int]


def windows(progress: str) -> dict[Key, list[tuple[float, float, int]]]:
    """By (prompt, answer, streams), from when to when requests were open, run by run, and how many tokens came."""
    begun: dict[int, tuple[Key, int, float]] = {}
    totals: dict[tuple[Key, int], tuple[float, float, int]] = {}
    for line in progress.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("type") == "request_start":
            key = (int(event["prompt_size"]), int(event["response_size"]), int(event["concurrency"]))
            begun[event["request_id"]] = (key, int(event["run_index"]), float(event["ts"]))
        elif event.get("type") == "request_end" and event.get("request_id") in begun:
            key, run, moment = begun[event["request_id"]]
            first, last, tokens = totals.get((key, run), (moment, moment, 0))
            totals[key, run] = (min(first, moment), max(last, float(event["ts"])), tokens + int(event["total_tokens"]))
    by_key: dict[Key, list[tuple[float, float, int]]] = {}
    for (key, _run), window in sorted(totals.items()):
        by_key.setdefault(key, []).append(window)
    return by_key


#: a host that says more, or no number, says nothing
MOST_WATTS = 100_000.0


def samples(text: str) -> list[tuple[float, float]]:
    """(moment, watts) of a host: each line has the time and a number for each GPU, joined by a plus sign."""
    readings = []
    for line in text.splitlines():
        moment, _space, numbers = line.partition(" ")
        try:
            at, watts = float(moment), sum(float(number) for number in numbers.split("+"))
        except ValueError:
            continue
        if 0 <= watts < MOST_WATTS:
            readings.append((at, watts))
    return readings


def energy(
    by_host: Mapping[str, Sequence[tuple[float, float]]], spans: Sequence[tuple[float, float, int]]
) -> tuple[float, float] | None:
    """(watts of all hosts, joules per token) while requests were open; None where a host tells no power."""
    watts = 0.0
    for values in by_host.values():
        inside = [power for moment, power in values if any(begin <= moment <= end for begin, end, _tokens in spans)]
        if not inside:
            return None
        watts += sum(inside) / len(inside)
    seconds = sum(end - begin for begin, end, _tokens in spans)
    tokens = sum(count for _begin, _end, count in spans)
    return (round(watts, 1), round(watts * seconds / tokens, 3)) if by_host and tokens else None


def _mean(row: Mapping[str, Any], name: str) -> float | None:
    value = (row.get(name) or {}).get("mean")
    return None if value is None else round(float(value), 3)


def rows(
    report: Mapping[str, Any], spans: Mapping[Key, Any], by_host: Mapping[str, Sequence[tuple[float, float]]]
) -> list[dict[str, Any]]:
    """One for each prompt length and number of streams."""
    measured = []
    for row in report["benchmarks"]:
        key = (int(row["prompt_size"]), int(row["response_size"]), int(row["concurrency"]))
        each = _mean(row, "tg_req_throughput")
        power = energy(by_host, spans.get(key, []))
        measured.append(
            {
                "prompt": key[0],
                "answer": key[1],
                "streams": key[2],
                "runs": len((row.get("tg_throughput") or {}).get("values") or []),
                "prefill": _mean(row, "pp_throughput"),
                "throughput": _mean(row, "tg_throughput"),
                "spread": round(float((row.get("tg_throughput") or {}).get("std") or 0.0), 3),
                "ttft_ms": _mean(row, "e2e_ttft"),
                "tpot_ms": round(1000 / each, 3) if each else None,
                "watts": power[0] if power else None,
                "joules_per_token": power[1] if power else None,
            }
        )
    return measured


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What changed of the things that a speed depends on, in words."""
    return [
        f"{name}: {before.get(name, 'nothing')} -> {after.get(name, 'nothing')}"
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def slower(document: Mapping[str, Any], earlier: Mapping[str, Any] | None) -> list[str]:
    """Speeds that fell since the last run, and what changed."""
    if earlier is None:
        return []
    known = {(row["prompt"], row["answer"], row["streams"]): row for row in earlier["rows"]}
    regressions = []
    for row in document["rows"]:
        old = known.get((row["prompt"], row["answer"], row["streams"]), {})
        for name in ("throughput", "prefill"):
            now, then = row.get(name), old.get(name)
            if now and then and now < SLOWER * then:
                where = f"prompt {row['prompt']}, {row['streams']} stream{'s' if row['streams'] > 1 else ''}"
                regressions.append(
                    f"{name} with {where}: {now:g} tokens/s, {100 - 100 * now / then:.0f} % below {then:g}"
                )
    if not regressions:
        return []
    changed = differing(earlier.get("with") or {}, document["with"])
    return [*regressions, "changed since then: " + ("; ".join(changed) if changed else "nothing that is recorded")]


def history(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Earlier documents, oldest first; a file that is torn or of another kind is passed over."""
    reports = []
    for text in texts:
        try:
            one = json.loads(text)
        except ValueError:
            continue
        if isinstance(one, dict) and one.get("version") == VERSION and isinstance(one.get("rows"), list):
            reports.append(one)
    return sorted(reports, key=lambda one: str(one.get("taken", "")))


def catalogue_rows(document: Mapping[str, Any], hosts: int, head: str, source: str) -> list[dict[str, Any]]:
    """What was measured on so many hosts, as rows of a recipe's field ``measured``.

    A row without a ``source`` is refused by the catalogue until somebody writes where the numbers stand.
    """
    used = document["with"]
    engines = ((engine.title, name) for engine in registry.ENGINES.values() for name in engine.packages[:1])
    engine = next((f"{title} {used[key]}" for title, name in engines if (key := f"{name} of {head}") in used), "")
    drafts = used.get("option speculative-config")
    return [
        {
            "hosts": hosts,
            "tokens_per_second": row["throughput"],
            "streams": row["streams"],
            "prompt": f"llama-benchy, {row['prompt']:,} tokens in, {row['answer']:,} out",
            "engine": engine,
            **({"note": f"with a drafter, {drafts}"} if drafts else {}),
            "date": document["taken"][:10],
            "source": source,
        }
        for row in document["rows"]
        if row.get("throughput")
    ]


def catalogue_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as they are written into a recipe."""
    return yaml.safe_dump({"measured": plain(rows)}, sort_keys=False, width=120)


def check_source(source: str) -> None:
    """Raises BenchError for an address that no row may have."""
    if source and not source.startswith("https://"):
        raise BenchError(
            f"bench_source: {source} is no address: give the https:// address where you publish the result"
        )


#: heading, key of a row
COLUMNS = (
    *(("PROMPT", "prompt"), ("STREAMS", "streams"), ("PREFILL t/s", "prefill"), ("DECODE t/s", "throughput")),
    *(("TTFT ms", "ttft_ms"), ("TPOT ms", "tpot_ms"), ("W", "watts"), ("J/token", "joules_per_token")),
)


def cells(row: Mapping[str, Any]) -> list[str]:
    return ["-" if row.get(key) is None else f"{row[key]:g}" for _heading, key in COLUMNS]


def text(document: Mapping[str, Any]) -> str:
    """The table for a screen, with the bound and what fell."""
    table = [[heading for heading, _key in COLUMNS], *(cells(row) for row in document["rows"])]
    widths = [max(len(line[column]) for line in table) for column in range(len(COLUMNS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in table]
    if document.get("bound"):
        lines.append(f"memory bandwidth allows one stream {outlook.most(document['bound'])} tokens/s")
    return "\n".join([*lines, *document.get("slower", [])])
