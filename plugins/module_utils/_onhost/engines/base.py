# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host has to know of an engine, whichever it is: how it is started, asked, counted and read.

An engine is one file beside this one with an :class:`EngineOnHost`, and its line in :mod:`registry`. Data alone: what
is done with it stands where it is done. Pure, and the standard library alone.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence

#: every host starts the same program as its own rank, the head's first
HEAD_FIRST = "head_first"
#: workers start a server that knows no model, and the head's program comes once all of them listen
WORKERS_FIRST = "workers_first"
#: the head alone starts a program, which starts the workers' parts itself
LAUNCHER = "launcher"
LAUNCHES = (HEAD_FIRST, WORKERS_FIRST, LAUNCHER)

#: the line of an error that ended a Python program, or of an argument that its parser refused
PYTHON_ERROR = re.compile(
    r"^(?:[\w.]+\.)?(?:\w*(?:Error|Exception|Timeout|Interrupt)|SystemExit|AssertionError)\b.*|"
    r"^(?:usage: )?.*: error: .*|^Value error, .*"
)
#: matches no line
NEVER = re.compile(r"(?!)")


@dataclasses.dataclass(frozen=True)
class Stage:
    """A part of a load that the log speaks of, and how far the whole load is at its start and end (0 to 1)."""

    name: str
    pattern: re.Pattern[str]
    start: float
    end: float


@dataclasses.dataclass(frozen=True)
class KnownFailure:
    """A line that says why a start failed, what to do, and whether another try with the same files must fail too."""

    pattern: re.Pattern[str]
    fix: str
    final: bool


@dataclasses.dataclass(frozen=True)
class LogForm:
    """How an engine's log reads."""

    stages: tuple[Stage, ...]
    known: tuple[KnownFailure, ...]
    #: begins lines, and says nothing
    prefix: re.Pattern[str]
    #: lines of the engine's logger, unlike those that Python's warnings quote
    logged: re.Pattern[str]
    #: whole lines that say nothing about a load
    dull: re.Pattern[str]
    #: the line of an error itself, and those of them that only say that there was one
    error: re.Pattern[str]
    vague: re.Pattern[str] = NEVER
    #: said once by an engine that is ready for requests
    serves: re.Pattern[str] = NEVER
    #: the share of a stage in one of its lines, in percent; never where a load must be followed by what it reads
    percent: re.Pattern[str] = NEVER


@dataclasses.dataclass(frozen=True)
class MetricNames:
    """Names on the engine's page of metrics (Prometheus text); several where releases differ."""

    #: name -> number of the sum that it belongs to: these move only when the engine works, within one long request too
    moves: Mapping[str, int]
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    #: where that page is
    target: str = "/metrics"
    #: share of the cache that is in use, 0 to 1
    cache_share: tuple[str, ...] = ()
    #: counters of what requests said and got
    prompt_tokens: str = ""
    tokens: str = ""
    #: a histogram's name without its ending
    first_token: str = ""
    #: the same of the time that one more token of a request takes
    token_time: str = ""
    drafted: str = ""
    accepted: str = ""

    def figures(self) -> dict[str, str]:
        """The engine's names by ours, without those that it has not."""
        found = {
            "running": self.running[0] if self.running else "",
            "waiting": self.waiting[0] if self.waiting else "",
            "tokens": self.tokens,
            "prompt_tokens": self.prompt_tokens,
            "first_token_sum": f"{self.first_token}_sum" if self.first_token else "",
            "first_token_count": f"{self.first_token}_count" if self.first_token else "",
            "drafted": self.drafted,
            "accepted": self.accepted,
        }
        return {ours: theirs for ours, theirs in found.items() if theirs}


@dataclasses.dataclass(frozen=True)
class ProbeRoute:
    """A question whose answer proves all ranks: where, with what beside the model's name, and what the answer has."""

    target: str
    body: Mapping[str, object]
    field: str


#: one token, and of a pooling model one of its vectors
COMPLETION = ProbeRoute("/v1/completions", {"prompt": "1", "max_tokens": 1, "temperature": 0}, "choices")


@dataclasses.dataclass(frozen=True)
class EngineOnHost:
    """An engine as the programs on a host see it."""

    #: the value of ``serving_engine``, and the name of its files
    name: str
    #: as people write it
    title: str
    launch: str
    log: LogForm
    metrics: MetricNames
    #: how titles of its processes begin, as far as the kernel keeps them (15 characters), and those of its ranks
    titles: tuple[str, ...]
    rank_titles: tuple[str, ...]
    #: its program as people start it, and that one's command line, words joined by NUL
    program: str
    command_line: re.Pattern[str]
    #: the file of its arguments below a group's folder, and the line of it that names the model; empty without one
    config: str = ""
    model_key: str = ""
    #: whether the program reads no file: the lines of ``config`` are its options
    spelled: bool = False
    #: before the model on the command line; empty where it follows the word ``after``
    model_option: str = ""
    after: str = ""
    #: whether its command must name the model, although its configuration does
    names_model: bool = False
    #: asked in turn, the next one where the model has no such route
    probes: tuple[ProbeRoute, ...] = (COMPLETION,)
    #: variable of its environment with a key that nobody but the front proxy may know; empty without one
    key_variable: str = ""
    #: distributions, by the names of their metadata folders, whose versions say which engine it is
    packages: tuple[str, ...] = ()
    #: variables that lead to caches of its own, each with its folder below ours, and those that keep it from reporting
    caches: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: folders below ours with what it compiled and named by its content, so that a host like this may have it as well
    compiled: tuple[str, ...] = ()
    no_reports: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: its names of options that are called otherwise here
    alike: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: all that it is made of, where it is no Python package; the first of ``packages`` is the wheel with them
    programs: tuple[str, ...] = ()
    #: ending of the one file that the program is given, where a model's folder holds more; empty for the folder
    ending: str = ""
    #: folders where it looks for options by itself, which nobody here has seen: its unit does not see them either
    hidden: tuple[str, ...] = ()
    #: whether its server answers while it loads, everything with 503, and nothing with 503 afterwards
    says_loading: bool = False
    #: whether its head goes on answering about itself when an idle worker has died
    keeps_serving_when_worker_idle_dead: bool = False
    #: what to do about answers that make no sense, besides looking at the model's files
    nonsense: str = ""

    def load(self, command: Sequence[str], model: str) -> list[str]:
        """The command that loads this model, whatever its configuration names."""
        if self.model_option in command[:-1] and self.model_option:
            at = list(command).index(self.model_option)
            return [*command[: at + 1], model, *command[at + 2 :]]
        if self.model_option:
            return [*command, self.model_option, model]
        at = list(command).index(self.after)
        return [*command[: at + 1], model, *command[at + 1 :]]

    def named_model(self, text: str) -> str:
        """The folder or name of the model in the text of its configuration; empty where that cannot be told."""
        key = f"{self.model_key}:"
        lines = text.splitlines() if self.model_key else []
        return next((line[len(key) :].strip(" '\"") for line in lines if line.startswith(key)), "")

    def spell(self, command: Sequence[str], text: str) -> list[str]:
        """The command with the options that the text of its configuration has, in place of the file."""
        at = list(command).index("--config")
        words: list[str] = []
        # other signs that end a line may stand in a value
        for line in text.split("\n"):
            name, colon, value = line.partition(": ")
            if not colon or name.startswith("#"):
                continue
            given = json.loads(value)
            if given is True:
                words.append(f"--{name}")
            elif given is not False:
                words += [f"--{name}", str(given)]
        return [*command[:at], *words, *command[at + 2 :]]
