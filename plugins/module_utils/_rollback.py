# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# runs inside a module on the host:
# pylint: disable=ansible-bad-function

"""From the files that are declared back to those that served last."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Optional

from ansible_collections.sparkthor.cluster.plugins.module_utils import _serving

#: What may be put back. A rank keeps its copies as the serving user, and what that user says must not decide which
#: files root writes.
FILES = (
    "/etc/sparkthor/vllm.yaml",
    "/etc/sparkthor/vllm.env",
    "/etc/sparkthor/vllm/ray_non_carry_over_env_vars.json",
    "/etc/sparkthor/group.json",
    _serving.CONFIG,
)


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


def executor_of(files: dict[str, str | None], config: str = _serving.CONFIG) -> str:
    """Which executor the kept configuration was of: the head's says so, a rank's is always mp."""
    text = files.get(config)
    if text is None:
        return "mp"
    return "ray" if json.loads(text).get("ray") else "mp"


def differences(
    executor: str, required: bool, folders: Sequence[str] = _serving.GOOD, allowed: Sequence[str] = FILES
) -> list[Change]:
    files: dict[str, str | None] = {}
    for folder in folders:
        kept = {} if files else _serving.kept_good(folder)
        files = files or {path: text for path, text in kept.items() if path in allowed}
    if not files:
        if required:
            raise RollbackError(
                "no configuration has served on this host since it was set up, so there is none to go back to; mend "
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
            _serving.write_file(change.path, change.after)
