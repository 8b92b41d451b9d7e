# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import observation


@pytest.mark.parametrize(
    ("unit", "running"),
    [
        (observation.Unit("active", "running", "a", 7), True),
        (observation.Unit("reloading", "reload", "a", 7), True),
        (observation.Unit("active", "exited", "a", 0), False),
        # its preparation runs, the engine does not
        (observation.Unit("activating", "start-pre", "a", 7), False),
        (observation.Unit("failed", "failed", "a", 0, "exit-code"), False),
        (observation.Unit(), False),
    ],
)
def test_a_unit_runs_with_a_main_process_only(unit: observation.Unit, running: bool) -> None:
    assert unit.running is running


@pytest.mark.parametrize("kind", ["timeout", "refused", "http", "rejected"])
def test_only_an_answered_completion_is_ok(kind: str) -> None:
    assert observation.Probe(1.0, 1.5, "ok").ok
    assert not observation.Probe(1.0, 1.5, kind).ok


def test_a_probe_never_takes_less_than_no_time() -> None:
    assert observation.Probe(1.0, 3.5, "ok").seconds == 2.5
    assert observation.Probe(3.5, 1.0, "ok").seconds == 0.0
