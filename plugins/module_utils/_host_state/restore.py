# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Undo what a role declared on a host."""

from __future__ import annotations

import os
from functools import partial

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.accounts import plan_account_restore
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
    elif name.startswith(("user ", "group ")):
        plan_account_restore(changes, originals, name)
    elif name.endswith(UNIT_SUFFIXES):
        _restore_unit(changes, wanted, originals, name)
    else:
        original = originals.recorded("sysctls", name)
        if original is not None:
            plan_sysctl(changes, originals, name, str(original), forget=True)


def _restore_unit(changes: Changes, wanted: Wanted, originals: Originals, name: str) -> None:
    masked, before = originals.recorded("masked", name), originals.recorded("units", name)
    if masked is None and before is None:
        return
    unit = UnitSpec(name=name, optional=True, restored=True)
    if before is not None:
        unit.enabled, unit.state = before.get("enabled"), before.get("state")
        # what goes on running runs with the files that come back in this call
        unit.restart_on = [path for path in wanted.restore if path.startswith("/")]
    if masked is not None:
        unit.masked = False
        unit.state = "started" if masked in RUNNING else unit.state
    wanted.units.append(unit)
    # a run that dies before it has done so must leave the next one the knowledge to do it
    for kind in ("masked", "units"):
        changes.last_steps.append(partial(originals.forget, kind, name))


def _restore_path(changes: Changes, originals: Originals, paths: PathPlanner, path: str) -> None:
    real = changes.host.at(path)
    kept = real + BACKUP_SUFFIX
    if os.path.lexists(kept):
        changes.note_path(path, "ours\n", "as it was before\n")
        changes.steps.append(lambda: os.replace(kept, real))
    elif path in originals.entries("links"):
        _restore_link(changes, originals, paths, path)
    elif os.path.isdir(real) and not os.path.islink(real):
        if path in originals.entries("folders"):
            paths.plan_absent(path)
        else:
            changes.result.warnings.append(f"{path} was there before and stays; remove what you no longer need in it")
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
    if not original:
        paths.gone.add(path)

    def back() -> None:
        if original:
            paths.set_link(path, original)
        else:
            os.unlink(real)
        originals.forget("links", path)

    changes.steps.append(back)
