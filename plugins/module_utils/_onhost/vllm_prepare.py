# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in vLLM's unit:
# pylint: disable=ansible-bad-function
"""Right before vLLM starts, as root: pause after starts that failed, note what this one is made with, free memory."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._lib import environment_file, files
from .._lib.command import run_limited
from . import places, series, serving

DROP_CACHES = "/usr/local/lib/sparkthor/sparkthor-drop-caches"
#: seconds; it writes all disks back, and one that is gone never answers: this unit's start has no limit of its own
DROP_LIMIT = 300.0
#: where caches are unless serving.json says otherwise
CACHE = "/var/lib/sparkthor/cache"


def say(text: str) -> None:
    print(text, flush=True)


def pause(delay: float, bytecode: str, cache: str = CACHE, sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait ``delay`` seconds because the last starts never served, and remove the compiled modules before.

    A folder of compiled modules that is not below ``cache`` stays: it is not ours.
    """
    say(f"several starts in a row never served: waiting {delay:.0f} s before this one")
    bytecode = os.path.normpath(bytecode)
    if bytecode.startswith(f"{cache.rstrip('/')}/"):
        series.remove_bytecode(bytecode, say)
    sleep(delay)


def choose_size(smaller: Mapping[str, Any], without: Mapping[str, str]) -> None:
    """Degraded mode: point the unit's link at the whole recipe, or at the smaller one where hosts are left out.

    ``smaller`` has the paths ``whole``, ``config`` (the smaller recipe) and ``link``; ``without`` is the name by
    address of the hosts that are left out.
    """
    chosen = smaller["config"] if without else smaller["whole"]
    if without:
        say(f"starting without {', '.join(without)}: {chosen}")
    files.make_link(smaller["link"], chosen)


def record_vllm_start(inputs: Sequence[str], environment: Mapping[str, str], path: str = serving.STARTED_WITH) -> None:
    """Write what this engine is started with, by which ``vllm_service`` knows whether it is what is declared."""
    try:
        serving.record_start(inputs, environment.get("INVOCATION_ID", ""), path)
    except OSError as error:
        # not worth a start that fails: the next play restarts the engine once more than needed
        print(f"{path} cannot be written: {error.strerror}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sparkthor_host vllm-prepare", description="Steps before a start of vLLM.")
    parser.add_argument("config", nargs="?", default=serving.CONFIG)
    config = files.read_json(parser.parse_args(argv).config)
    paths = places.Places(str(config.get("beside") or ""))
    delay = serving.note_start(paths.starts)
    if delay:
        engine = environment_file.read((environment_file.ENGINE, paths.environment))
        pause(delay, engine.get("PYTHONPYCACHEPREFIX", ""), str(config.get("cache") or CACHE))
    smaller = config.get("degraded") or {}
    if smaller:
        choose_size(smaller, serving.left_out())
    record_vllm_start(config.get("inputs") or [], os.environ, paths.started_with)
    # absent where os_hardening_drop_caches is off; beside another group that one may be serving
    if not paths.name and os.path.exists(DROP_CACHES):
        # none of the engine's variables is for what root runs
        code, _out, said = run_limited([DROP_CACHES], DROP_LIMIT, environment={"PATH": os.defpath})
        if code or said:
            # the engine may do without, and says so where it may not
            print(said.strip() or f"{DROP_CACHES} ended with {code}", file=sys.stderr, flush=True)
    return 0
