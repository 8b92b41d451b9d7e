# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs inside a module on the host:
# pylint: disable=ansible-bad-function

"""Roll back from the declared files to those that served last."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Optional

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import serving

#: What may be put back. A rank keeps its copies as the serving user (or where the engine's container writes), and what
#: that user says must not decide which files root writes, nor what root runs.
FILES = (
    "/etc/sparkthor/vllm.yaml",
    "/etc/sparkthor/vllm.env",
    "/etc/sparkthor/vllm/ray_non_carry_over_env_vars.json",
    "/etc/sparkthor/group.json",
    serving.CONFIG,
)


#: Not taken from a rank's copies: these say what root's processes do. A rank's own part of the group is as declared.
_OBEYED_BY_ROOT = ("/group.json", "/serving.json")
#: Variables of the engine and its libraries. Every other one (PATH, LD_PRELOAD, PYTHONPATH ...) may decide what a
#: process of root's loads or runs: with a container the unit's main process is root's.  It looks for the unit's
#: credentials where the paths of tokens lead, so these are not the engine's either.
_ENGINES_OWN = re.compile(
    r"(?!\w*_TOKEN_PATH$)(VLLM|NCCL|GLOO|UCX|OMP|MKL|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|FLASHINFER|CUDA|CUBLAS|CUDNN|CUTLASS|CUTE|HF|"
    r"TRANSFORMERS|TOKENIZERS|SAFETENSORS|RAY|DG|MAX)_[A-Za-z0-9_]+"
)
_ASSIGNMENT = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)=("(?:[^"\\]|\\.)*"|[^\s"\'\\]*)\n', re.DOTALL)
_NO_ASSIGNMENT = re.compile(r"(?:#[^\n\\]*)?\n")


class RollbackError(Exception):
    """Why there is nothing to go back to, and what to do instead."""


class Change(NamedTuple):
    """One file; None stands for its absence."""

    path: str
    # evaluated when the module is loaded, and sanity loads module_utils on every Python that modules may meet
    before: Optional[str]  # noqa: UP045
    after: Optional[str]  # noqa: UP045


def read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def executor_of(files: dict[str, str | None], config: str = serving.CONFIG) -> str:
    """Which executor the kept configuration was of: the head's says so, a rank's is always mp."""
    text = files.get(config)
    if text is None:
        return "mp"
    return "ray" if json.loads(text).get("ray") else "mp"


def _assignments(path: str, text: str) -> dict[str, str]:
    """Name -> the whole assignment, of an environment file as the role writes it; nothing else is understood."""
    found: dict[str, str] = {}
    place = 0
    while place < len(text):
        match = _ASSIGNMENT.match(text, place)
        if match:
            found[match.group(1)] = match.group(0)
        else:
            match = _NO_ASSIGNMENT.match(text, place)
        if not match:
            line = text.count("\n", 0, place) + 1
            raise RollbackError(f"{path}, line {line}: is no assignment that can be rolled back; run site.yml instead")
        place = match.end()
    return found


def _environment(path: str, kept: str, present: str) -> str:
    """The environment that served, except for what root's processes would obey: that stays as it is declared."""
    former, declared = _assignments(path, kept), _assignments(path, present)
    merged = {name: text for name, text in former.items() if _ENGINES_OWN.fullmatch(name)}
    merged.update({name: text for name, text in declared.items() if not _ENGINES_OWN.fullmatch(name)})
    header = present.partition("\n")[0] if present.startswith("#") else ""
    lines = [f"{header}\n"] if header else []
    return "".join([*lines, *(merged[name] for name in sorted(merged, key=str.lower))])


def harmless(files: Mapping[str, str | None]) -> dict[str, str | None]:
    """Of copies that the serving user could have written, what cannot make root run anything."""
    found: dict[str, str | None] = {}
    for path, text in files.items():
        if path.endswith(_OBEYED_BY_ROOT):
            continue
        if path.endswith(".env"):
            found[path] = _environment(path, text or "", read(path) or "")
        else:
            found[path] = text
    return found


def _group_as_declared(files: Mapping[str, str | None]) -> dict[str, str | None]:
    """Of the head's copies, all but who the group is and where it meets: no rank's own is rolled back either, so both
    sides would wait for each other in different places."""
    found = {path: text for path, text in files.items() if not path.endswith("/group.json")}
    kept = found.get(serving.CONFIG)
    if kept:
        served, declared = json.loads(kept), json.loads(read(serving.CONFIG) or "{}")
        expected = (declared.get("settings") or {}).get("expected")
        if expected is not None and (served.get("settings") or {}).get("expected") != expected:
            served["settings"] = {**(served.get("settings") or {}), "expected": expected}
            found[serving.CONFIG] = json.dumps(served, indent=2, sort_keys=True) + "\n"
    return found


def differences(
    executor: str,
    required: bool,
    roots: str = serving.GOOD[0],
    ranks: str = serving.GOOD[1],
    allowed: Sequence[str] = FILES,
) -> list[Change]:
    """What to write for the configuration that served last: by root's own copies, else by those of a rank."""
    files = {path: text for path, text in serving.kept_good(roots).items() if path in allowed}
    if executor == "mp":
        files = _group_as_declared(files)
    if not files:
        files = harmless({path: text for path, text in serving.kept_good(ranks).items() if path in allowed})
    if not files:
        if required:
            raise RollbackError(
                "no configuration has served on this host since it was set up, so there is none to go back to; fix "
                "the inventory and run site.yml"
            )
        return []
    former = executor_of(files)
    if former != executor:
        if not required:
            return []  # a rank's copies of an earlier time; the head decides
        raise RollbackError(
            f"the configuration that served last ran with vllm_serve_executor={former}, and the units of this host are "
            f"{executor}'s: run site.yml with vllm_serve_executor: {former} and the former variables instead"
        )
    changes = [Change(path, read(path), content) for path, content in sorted(files.items())]
    return [change for change in changes if change.before != change.after]


def apply(changes: Iterable[Change]) -> None:
    for change in changes:
        if change.after is None:
            os.unlink(change.path)
        else:
            serving.write_file(change.path, change.after)
