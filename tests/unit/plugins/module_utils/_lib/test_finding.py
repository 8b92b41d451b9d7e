# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a finding reads, and what a run says that stops over some."""

from __future__ import annotations

import json

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import (
    UNKNOWN,
    WARNING,
    Finding,
    errors_and_others,
    nothing_changed,
)

CARRIER = Finding("carrier", "NIC enp1s0f1np1 has no carrier", "plug in its cable", "a", "enp1s0f1np1")
PORT = Finding("value", "is not a port", "give 1 to 65535", where="fabric_port", value=0, severity=WARNING)


def test_a_finding_as_a_line() -> None:
    assert str(CARRIER) == "host a: NIC enp1s0f1np1 has no carrier; plug in its cable"
    assert str(Finding("x", "they differ", "make them alike", "a, b")) == "hosts a, b: they differ; make them alike"
    assert str(PORT) == "fabric_port: 0: is not a port; give 1 to 65535"
    assert str(Finding("x", "the cluster has no head", "give it one")) == "the cluster has no head; give it one"


def test_what_stops_a_run() -> None:
    unknown = Finding("clock", "no clock", "look", "b", severity=UNKNOWN)
    errors, others = errors_and_others([PORT, CARRIER, unknown])
    assert errors == [str(CARRIER)]
    assert others == [str(PORT), str(unknown)]


def test_what_a_run_says_that_changed_nothing() -> None:
    assert nothing_changed([CARRIER]) == f"Nothing was changed: one problem to fix first.\n  - {CARRIER}"
    assert nothing_changed(["a", "b"]) == "Nothing was changed: 2 problems to fix first.\n  - a\n  - b"


def test_a_module_returns_what_the_controller_reads() -> None:
    finding = Finding("mtu", "is too large", "lower it", "a", "fabric_mtu", 9000, severity=WARNING)
    assert json.loads(json.dumps(finding.to_dict()))["where"] == "fabric_mtu"
    assert Finding.from_dict(json.loads(json.dumps(finding.to_dict()))) == finding
