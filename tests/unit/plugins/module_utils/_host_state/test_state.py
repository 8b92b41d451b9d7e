# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import HostStateError

from tests.unit.simulated_host import UNIT, FakeHost, read, snapshot

STATE = {
    "groups": [{"name": "ray"}],
    "files": [
        {"path": "/etc/sparkthor/ray.env", "content": "A=1\n"},
        {"path": "/etc/systemd/system/a.service", "content": UNIT},
    ],
    "units": [{"name": "a.service", "enabled": True, "state": "started"}],
}


def test_accounts_files_and_units_come_in_this_order(host: FakeHost) -> None:
    result = host.converge(**STATE)
    assert next(call[0] for call in host.calls if call[:2] != ["systemctl", "show"]) == "groupadd"
    assert host.verbs()[1:] == ["daemon-reload", "enable a.service", "start a.service"]
    assert result.changed_accounts == ["group ray"]
    assert {"/etc/sparkthor/ray.env", "/etc/systemd/system/a.service"} <= set(result.changed_paths)
    assert result.changed_units == ["a.service"]
    assert read(host, "/etc/sparkthor/ray.env") == "A=1\n"


def test_check_mode_reports_what_the_run_does_and_does_nothing(host: FakeHost) -> None:
    predicted = host.apply(check=True, **STATE)
    assert predicted.changed
    assert (snapshot(host.root), host.verbs()) == ({}, [])
    assert host.apply(**STATE).diff == predicted.diff


def test_a_plan_that_cannot_be_made_changes_nothing(host: FakeHost) -> None:
    files = [{"path": "/etc/new", "content": "x"}]
    with pytest.raises(HostStateError):
        host.apply(files=files, units=[{"name": "missing.service", "state": "started"}])
    assert host.verbs() == []
