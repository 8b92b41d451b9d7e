# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What vLLM's log says to a person who waits: how far a load is, and why one failed.

Pure text in, small answers out. Used by the watchdog on the head and by the C(vllm_service) module, hence the standard
library alone.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable

from .._lib.printable import printable

#: how far a whole load is at the start and the end of a stage, by experience: weights are most of it
_STAGES: tuple[tuple[str, re.Pattern[str], float, float], ...] = (
    (
        "waiting for the GPUs of all nodes",
        re.compile(r"[Ww]aiting for creating a placement group|placement group .*pending"),
        0.02,
        0.05,
    ),
    (
        "starting",
        re.compile(r"vLLM API server version|non-default args|Resolved architecture|Using max model len"),
        0.02,
        0.04,
    ),
    ("engine starts", re.compile(r"Initializing a V1 LLM engine|Initializing an? .*engine"), 0.06, 0.08),
    (
        "connecting the ranks",
        re.compile(
            r"Connect(?:ing|ed) to (?:existing )?Ray|world_size=|rank \d+ in world size|is using nccl|RayWorkerWrapper"
        ),
        0.08,
        0.15,
    ),
    ("fetching the model", re.compile(r"[Dd]ownloading|Fetching \d+ files|Time spent downloading weights"), 0.15, 0.2),
    (
        "loading weights",
        re.compile(
            r"[Ll]oading safetensors|Loading (?:pt|bin|checkpoint|model|weights)|Starting to load model|Model loading"
        ),
        0.2,
        0.7,
    ),
    ("weights loaded", re.compile(r"Loading weights took|Model loading took"), 0.7, 0.72),
    (
        "compiling",
        re.compile(
            r"torch\.compile|Warming up model|"
            r"Dynamo bytecode|Compiling a graph|[Aa]utotun|JIT|Directly load.* compiled graph"
        ),
        0.72,
        0.82,
    ),
    (
        "KV cache",
        re.compile(r"KV cache size|Available KV cache memory|Maximum concurrency|# GPU blocks|CPU KV cache"),
        0.82,
        0.85,
    ),
    ("capturing graphs", re.compile(r"[Cc]apturing (?:CUDA|cuda) ?graphs|Graph capturing|cudagraph"), 0.85, 0.94),
    ("engine ready", re.compile(r"init engine .*took"), 0.94, 0.96),
    (
        "API server starts",
        re.compile(r"Starting vLLM (?:API )?server|Started server process|Waiting for application startup|Route: "),
        0.97,
        0.98,
    ),
    ("first completion", re.compile(r"Application startup complete|Uvicorn running"), 0.99, 0.99),
)

_PERCENT = re.compile(r"(\d{1,3})%(?:\s*(?:Completed|\|))")
_COUNT = re.compile(r"\b(\d+)/(\d+)\b")
#: what vLLM and Ray put in front of a line
_PREFIX = re.compile(
    r"^(?:\(\w+(?: [\w-]+)*(?: pid=\d+)?(?:, ip=[0-9a-fA-F.:]+)?\)\s*|"
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):?\s+(?:\d\d-\d\d \d\d:\d\d:\d\d\s+)?(?:\[[\w./-]+\.py:\d+\]\s*)?)+"
)
#: a line of vLLM's logger, unlike the source lines that Python's warnings quote
_LOGGED = re.compile(r"\b(?:INFO|WARNING|ERROR|CRITICAL):?\s+\d\d-\d\d \d\d:\d\d")
_DULL = re.compile(
    r"^(?:\W*|.*(?:Route: /|Avg prompt throughput|GET /|POST /|FutureWarning|UserWarning|warnings\.warn|"
    r"Found ulimit of|[Tt]riton (?:is )?not |Triton is installed but|No module named '?triton|LD_PRELOAD|"
    # what the API server and a rank that waits in vain say, too, while the engine does nothing
    r"No available shared memory broadcast block|(?:Received|Added|Aborted) request|"
    r"requires Triton|usage stats|Enabled custom fusions).*)$"
)


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where a load stands. C(mark) changes whenever the log shows anything new."""

    text: str = ""
    fraction: float | None = None
    mark: str = ""
    stage: int = -1
    share: float = 0.0

    @property
    def name(self) -> str:
        """Of the stage; empty before the first one."""
        return _STAGES[self.stage][0] if self.stage >= 0 else ""


def plain(line: str) -> str:
    """A log line without colours, logger prefixes and all but the newest state of a progress bar."""
    parts = [part for part in map(printable, line.split("\r")) if part.strip()]
    line = parts[-1] if parts else ""
    return _PREFIX.sub("", line.strip()).strip()


def messages(journal_json: str) -> list[str]:
    """Messages out of C(journalctl -o json); a message with control characters comes as a list of bytes."""
    found: list[str] = []
    for row in journal_json.splitlines():
        try:
            message = json.loads(row).get("MESSAGE")
        except (ValueError, AttributeError):
            continue
        if isinstance(message, list):
            raw = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256)
            message = raw.decode("utf-8", "replace")
        if isinstance(message, str):
            found.append(message)
    return found


def progress(lines: Iterable[str], earlier: Progress | None = None) -> Progress:
    """The furthest stage that the lines speak of, with the newest meaningful line.

    The lines may be the tail of a log: what an earlier call already saw is not unseen again.
    """
    reached = earlier.stage if earlier else -1
    share = earlier.share if earlier else 0.0
    text = ""
    mark = ""
    shown = ""
    for raw in lines:
        line = plain(raw)
        if not line:
            continue
        if _DULL.match(line):
            continue
        mark = line
        if _LOGGED.search(raw):
            shown = line
        # A line speaks of one stage, the first that fits: the engine's first line names all its settings.
        index = next((number for number, stage in enumerate(_STAGES) if stage[1].search(line)), -1)
        if index < 0 or index < reached:
            continue
        if index > reached:
            share = 0.0
        reached = index
        part = _part(line)
        # every rank draws its own bar, and a checkpoint may have several: a bar never runs backwards
        share = max(share, part) if part is not None else share
        text = line
        shown = ""
    if reached < 0:
        return Progress(_short(mark), None, mark)
    mark = mark or (earlier.mark if earlier else "")
    name, _pattern, start, end = _STAGES[reached]
    fraction = start + (end - start) * share
    stage = f"{name} {round(share * 100)} %" if share and end - start > 0.05 else name
    newest = _short(shown if shown != text else "")
    return Progress(f"{stage}: {newest}" if newest else stage, round(fraction, 3), mark, reached, share)


def _part(line: str) -> float | None:
    percent = _PERCENT.search(line)
    if percent:
        return min(1.0, int(percent.group(1)) / 100)
    count = _COUNT.search(line)
    if count and int(count.group(2)) > 0 and int(count.group(1)) <= int(count.group(2)):
        return int(count.group(1)) / int(count.group(2))
    return None


def _short(line: str, limit: int = 110) -> str:
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


#: text -> (what to do about it, whether another try with the same files must fail the same way)
_KNOWN: tuple[tuple[re.Pattern[str], str, bool], ...] = (
    (
        re.compile(r"attention heads.*divisible by tensor parallel"),
        "choose a tensor parallel size that divides the heads, or pipeline parallelism",
        True,
    ),
    (
        re.compile(r"Free memory on device.*less than desired GPU memory utilization"),
        "lower gpu-memory-utilization or free memory on that host",
        False,
    ),
    (
        re.compile(r"No available memory for the cache blocks"),
        "raise gpu-memory-utilization, shorten max-model-len or use more hosts",
        True,
    ),
    (
        re.compile(r"KV cache is needed, which is larger than the available KV cache|estimated maximum model length"),
        "lower max-model-len to what the message names",
        True,
    ),
    (
        re.compile(r"max_model_len .*greater than the derived max_model_len"),
        "lower vllm_serve_max_model_len to the model's own length",
        True,
    ),
    (
        re.compile(r"CUDA out of memory|OutOfMemoryError|NV_ERR_NO_MEMORY"),
        "lower gpu-memory-utilization or use more hosts",
        False,
    ),
    (
        re.compile(r"unrecognized arguments|invalid choice|error: argument|expected one argument"),
        "correct vllm_serve_args",
        True,
    ),
    (
        re.compile(
            r"does not appear to have a file named|Repo id must be in the form|is not a local folder|"
            r"Invalid repository ID"
        ),
        "check vllm_serve_model: the model is not complete on this host",
        True,
    ),
    (
        re.compile(r"Model architectures? .* (?:are|is) not supported"),
        "this vLLM does not know the model: use a newer engine",
        True,
    ),
    (
        # the engine logs all its settings at every start, this one by name among them
        re.compile(r"(?:set the option|pass the argument) .?trust_remote_code|contains custom code which must", re.I),
        "the model wants code of its own: acknowledge trust-remote-code for it",
        True,
    ),
    (
        re.compile(r"Unknown quantization method|Invalid value for .*quantization"),
        "omit quantization for pre-quantized checkpoints",
        True,
    ),
    (
        re.compile(r"[Pp]lacement group.*(?:timed? ?out|cannot be|exceed)"),
        "a GPU of the cluster is missing or taken",
        False,
    ),
    (re.compile(r"No space left on device"), "free the disk of the head", False),
    (re.compile(r"Address already in use"), "another program holds the port or socket", False),
    (re.compile(r"validation errors? for"), "correct vllm_serve_args", True),
)
_ERROR_LINE = re.compile(
    r"^(?:[\w.]+\.)?(?:\w*(?:Error|Exception|Timeout|Interrupt)|SystemExit|AssertionError)\b.*|"
    r"^(?:usage: )?.*: error: .*|^Value error, .*"
)
_VAGUE = re.compile(
    r"Engine core initialization failed|See root cause above|EngineCore (?:failed|encountered)|"
    r"Failed core proc|WorkerProc initialization failed|EngineDeadError"
)


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why a start failed, what to do, and whether trying again is pointless."""

    reason: str = ""
    fix: str = ""
    final: bool = False


def explain(lines: Iterable[str]) -> Failure:
    """The cause among the last lines of a failed start: the first precise error, not the last traceback's tail."""
    precise = ""
    vague = ""
    last = ""
    cleaned = [plain(raw) for raw in lines]
    for pattern, fix, final in _KNOWN:
        for line in cleaned:
            if pattern.search(line):
                return Failure(_short(line, 400), fix, final)
    for line in cleaned:
        if not line or _DULL.match(line):
            continue
        last = line
        if not _ERROR_LINE.match(line):
            continue
        if _VAGUE.search(line):
            vague = vague or line
        else:
            precise = precise or line
    return Failure(_short(precise or vague or last, 400))
