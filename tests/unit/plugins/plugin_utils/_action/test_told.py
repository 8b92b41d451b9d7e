# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the programs on hosts really read has the form that the controller expects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import evidence, host_status
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import shape, told

from tests.unit import honest_host


def nothing_installed(argv: list[str]) -> tuple[int, str, str]:
    return 127, "", f"{argv[0]}: not found"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "var/lib").mkdir(parents=True)
    return tmp_path


def test_a_bare_host(root: Path) -> None:
    found = json.loads(json.dumps(host_status.HostReader(nothing_installed, str(root)).read()))
    shape.check(found, told.STATUS)
    shape.check(found["node"], told.NODE)
    seen = json.loads(json.dumps(evidence.Collector(nothing_installed, str(root)).collect()))
    shape.check(seen, told.EVIDENCE)


def test_a_part_that_could_not_be_read_is_empty_and_no_mistake(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = evidence.Collector(nothing_installed, str(root))

    def part(name: str, _read: Any, empty: Any) -> Any:
        return evidence.Collector.part(collector, name, lambda: 1 / 0, empty)

    monkeypatch.setattr(collector, "part", part)
    seen = json.loads(json.dumps(collector.collect()))
    assert len(seen["errors"]) > 15
    shape.check(seen, told.EVIDENCE)


def test_every_part_of_what_a_host_tells_has_a_form(root: Path) -> None:
    """One without would be read as it came: who trips over it ends the run of all hosts."""
    seen = evidence.Collector(nothing_installed, str(root)).collect()
    status = host_status.HostReader(nothing_installed, str(root)).read()
    for found, form in ((seen, told.EVIDENCE), (status, told.STATUS), (status["node"], told.NODE)):
        assert set(found) <= {name.rstrip("?") for name in form}


@pytest.mark.parametrize(
    ("fact", "lie"),
    [
        ("gpu_clock_limit", "x"),
        ("gpu_clock_limit", -1),
        ("gpu_problem", ["x"]),
        ("ssh_port", 70000),
        ("ssh_port", "22}"),
    ],
)
def test_a_lie_about_a_fact_is_that_hosts_failure(root: Path, fact: str, lie: Any) -> None:
    node = host_status.HostReader(nothing_installed, str(root)).read()["node"]
    shape.check({**node, "gpu_clock_limit": 0, "gpu_problem": "", "ssh_port": 22}, told.NODE)
    with pytest.raises(shape.Misshapen, match=fact):
        shape.check({**node, fact: lie}, told.NODE)


HANG = {
    **{"taken": 1.0, "reason": "", "nccl": "", "gpus": [], "late": []},
    "processes": [{"title": "", "state": "S", "waits_in": [], "stack": ""}],
}


@pytest.mark.parametrize(
    ("part", "lie"),
    [
        ("hangs", "x"),
        ("hangs", [{}]),
        ("hangs", [{**HANG, "taken": "yesterday"}]),
        ("hangs", [{**HANG, "taken": 1e300}]),
        ("hangs", [{**HANG, "processes": [{"title": "x"}]}]),
        ("hangs", [{**HANG, "gpus": [{"watts": "x"}]}]),
        ("hangs", [{**HANG, "nccl": None}]),
        ("rdma_counters", ["mlx5_0"]),
        ("rdma_counters", {"mlx5_0": 3}),
        ("rdma_counters", {"mlx5_0": {"port_rcv_packets": "x"}}),
        ("rdma_counters", {"mlx5_0": {"port_rcv_packets": -1}}),
        ("previous_boot", {"how": "cut", "ended": 2**62, "last": []}),
        ("previous_boot", {"how": ["cut"], "ended": 1}),
        ("previous_boot", {"how": "panic", "ended": 1, "last": 3}),
    ],
)
def test_a_lie_about_a_part_of_the_evidence_is_that_hosts_failure(root: Path, part: str, lie: Any) -> None:
    seen = json.loads(json.dumps(evidence.Collector(nothing_installed, str(root)).collect()))
    shape.check({**seen, "hangs": [HANG], "rdma_counters": {"mlx5_0": {"port_rcv_packets": 3}}}, told.EVIDENCE)
    with pytest.raises(shape.Misshapen, match=part):
        shape.check({**seen, part: lie}, told.EVIDENCE)


@pytest.mark.parametrize("value", ["10.0.0.1", "fe80::1", "::ffff:10.0.0.1"])
def test_addresses(value: str) -> None:
    assert told.an_address(value)
    assert told.an_address_with_its_length(f"{value}/24")


@pytest.mark.parametrize(
    ("test", "value"),
    [
        (told.an_address, "10.0.0.1/24"),
        (told.an_address, "10.0.0.01"),
        (told.an_address, 1),
        (told.an_address_with_its_length, "10.0.0.1"),
        (told.an_address_with_its_length, "10.0.0.1/33"),
        (told.a_count, True),
        (told.a_count, -1),
        (told.a_time, told.TIME_LIMIT),
        (told.a_number_as_text, "nan"),
        (told.a_number_as_text, ""),
        (told.a_moment, "9999-99-99T99:99:99Z"),
        (told.a_moment, "2026-11-21 08:00:00Z"),
        (told.a_moment, 1790000000),
    ],
)
def test_what_is_none(test: Any, value: Any) -> None:
    with pytest.raises(shape.Misshapen, match=str(test.__name__).replace("_", " ")):
        shape.check(value, test)


def test_a_gate_that_could_not_ask_says_why_and_nothing_else() -> None:
    form = told.STATUS["ray"]
    shape.check({"configured": True, "cluster": {"healthy": False, "reason": "no answer"}}, form)
    with pytest.raises(shape.Misshapen):
        shape.check({"configured": True, "cluster": {"healthy": False, "reason": "x", "alive": 5}}, form)


def test_what_a_head_keeps_of_playbooks_has_a_form() -> None:
    kept = honest_host.CHECKS
    shape.check(kept, told.CHECKS)
    shape.check({"doctor": None, "drift": None}, told.CHECKS)
    for amiss in ({"taken": "now"}, {"errors": -1}, {"errors": "1"}, {"findings": {}}, {"findings": ["x"]}):
        with pytest.raises(shape.Misshapen):
            shape.check({**kept, "doctor": {**kept["doctor"], **amiss}}, told.CHECKS)
    with pytest.raises(shape.Misshapen):
        shape.check({**kept, "drift": {**kept["drift"], "lines": [7]}}, told.CHECKS)
