# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Undo what a role declared on a host."""

from __future__ import annotations

import os

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Changes
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.originals import BACKUP_SUFFIX, Originals
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.paths import PathPlanner
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.sysctls import plan_sysctl
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.units import RUNNING
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import (
    UNIT_SUFFIXES,
    UnitSpec,
    Wanted,
    has_marker,
)


def plan_restore(changes: Changes, wanted: Wanted, originals: Originals, paths: PathPlanner, name: str) -> None:
    """Undo: put back what stood there before us; take away what is ours; leave what is foreign."""
    if name.startswith("/"):
        _restore_path(changes, originals, paths, name)
    elif name.endswith(UNIT_SUFFIXES):
        original = originals.recorded("masked", name)
        if original is not None:
            state = "started" if original in RUNNING else None
            wanted.units.append(UnitSpec(name=name, masked=False, state=state))
            # a run that dies before it has unmasked must leave the next one the knowledge to do it
            changes.last_steps.append(lambda: originals.forget("masked", name))
    else:
        original = originals.recorded("sysctls", name)
        if original is not None:
            plan_sysctl(changes, originals, name, str(original), forget=True)


def _restore_path(changes: Changes, originals: Originals, paths: PathPlanner, path: str) -> None:
    real = changes.host.at(path)
    kept = real + BACKUP_SUFFIX
    if os.path.lexists(kept):
        changes.note_path(path, "ours\n", "as it was before\n")
        changes.steps.append(lambda: os.replace(kept, real))
    elif path in originals.entries("links"):
        _restore_link(changes, originals, paths, path)
    elif os.path.isfile(real) and not os.path.islink(real):
        with open(real, "rb") as stream:
            ours = has_marker(stream.read())
        if ours:
            paths.plan_absent(path)


def _restore_link(changes: Changes, originals: Originals, paths: PathPlanner, path: str) -> None:
    real = changes.host.at(path)
    original = originals.recorded("links", path)
    if not os.path.islink(real) or os.readlink(real) == original:
        # somebody was faster; what is put there from now on is not ours to undo
        changes.steps.append(lambda: originals.forget("links", path))
        return
    changes.note_path(path, f"link to {os.readlink(real)}\n", f"link to {original}\n" if original else "")

    def back() -> None:
        if original:
            paths.set_link(path, original)
        else:
            os.unlink(real)
        originals.forget("links", path)

    changes.steps.append(back)
