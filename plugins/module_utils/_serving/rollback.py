# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs inside a module on the host:
# pylint: disable=ansible-bad-function

"""Roll back from the declared files to those that served last."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Optional

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import write_atomic
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import serving

#: what may be put back
FILES = (
    "/etc/sparkthor/vllm.yaml",
    "/etc/sparkthor/vllm.env",
    "/etc/sparkthor/vllm/ray_non_carry_over_env_vars.json",
    "/etc/sparkthor/group.json",
    serving.CONFIG,
)


class RollbackError(Exception):
    """Why there is nothing to go back to, and what to do instead."""


class Change(NamedTuple):
    """One file; None stands for its absence."""

    path: str
    # evaluated when the module is loaded, and sanity loads module_utils on every Python that modules may meet
    before: Optional[str]  # noqa: UP045
    after: Optional[str]  # noqa: UP045

    @property
    def secret(self) -> bool:
        """As the role declares it: what a person sets for vLLM may be one, whatever it is called."""
        return self.path.endswith("/vllm.env")

    def shown(self) -> dict[str, str]:
        """For a diff."""
        before, after = self.before or "", self.after or ""
        if self.secret:
            before = before and "(present secret content is not shown)\n"
            after = after and "(former secret content is not shown)\n"
        return {"before_header": self.path, "after_header": self.path, "before": before, "after": after}


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
    copies: str = serving.GOOD,
    allowed: Sequence[str] = FILES,
) -> list[Change]:
    """What to write for the configuration that served last."""
    files = {path: text for path, text in serving.kept_good(copies).items() if path in allowed}
    if executor == "mp":
        files = _group_as_declared(files)
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
            continue
        try:
            there = os.stat(change.path)
            owned = (there.st_uid, there.st_gid, stat.S_IMODE(there.st_mode))
        except FileNotFoundError:
            owned = (-1, -1, 0o600 if change.secret else 0o644)
        write_atomic(change.path, change.after, *owned)
