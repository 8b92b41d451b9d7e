# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks of a host: clock, kernel, versions, disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.registry import PACKAGES
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import Case, Serve
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.checks_host import memory_short

from tests.unit.plugins.plugin_utils._doctor.sound_cluster import GIB, ev, found, world


def skew(case: Case) -> None:
    case.clocks["b"] = (59.0, 61.0)


def kernel(case: Case) -> None:
    for host in case.hosts:
        ev(case, host)["node"]["kernel"] = "6.17.0-1008-nvidia"


def handover(case: Case) -> None:
    ev(case, "a")["memory"] = {"CmaTotal": 32 << 20, "CmaFree": 9 << 30}
    ev(case, "b")["node"]["cma"] = {"total": 0, "free": 9 << 30}


def odd_driver(case: Case) -> None:
    ev(case, "b")["node"]["driver"] = "570.1"


def inodes(case: Case) -> None:
    ev(case, "b")["disks"][0]["inodes_free"] = 0


def renamed(case: Case) -> None:
    node = case.evidence["b"]["node"]
    node.update(hostname="kitchen", declared={**(node.get("declared") or {}), "hostname": "b"})


def read_only(case: Case) -> None:
    ev(case, "b")["disks"][0]["read_only"] = True


def test_half_a_cluster_without_a_plan() -> None:
    case = world()
    case.cluster = case.fabric = None
    case.plan_error = "host a: is a thor"
    assert found(case) == [("plan-contradicted", ())]


def test_memory_for_a_group_beside_is_asked_of_its_own_host() -> None:
    case = world()
    case.serves = [Serve("a", "/etc/x.yaml", {"gpu-memory-utilization": 0.9}, group="embed")]
    for host in ("a", "b"):
        ev(case, host)["memory"]["MemAvailable"] = 20 * GIB
    (hit,) = memory_short(case)
    assert hit.host == "a"
    assert "gpu-memory-utilization 0.9 of the group embed asks for" in hit.evidence[0]


def test_a_share_of_the_memory_is_asked_of_the_hosts_of_its_own_group() -> None:
    case = world()
    case.serves = [Serve("a", "/etc/x.yaml", {"gpu-memory-utilization": 0.9})]
    for host in ("a", "b"):
        ev(case, host)["memory"]["MemAvailable"] = 20 * GIB
    assert [hit.host for hit in memory_short(case)] == ["a", "b"]
    case.parts = [("big", ["a"], {}), ("gguf", ["b"], {})]
    assert [hit.host for hit in memory_short(case)] == ["a"]


def test_serving_groups_may_have_different_engines() -> None:
    case = world()
    ev(case, "b")["engine"]["versions"] = {"llama-cpp-programs": "0.1", "python": "3.11"}
    assert found(case) == [("engine-versions-differ", ("b",))]
    case.parts = [("big", ["a"], {}), ("gguf", ["b"], {})]
    assert found(case) == []


@pytest.mark.parametrize("name", PACKAGES)
def test_hosts_that_serve_together_have_one_build_of_their_engine(name: str) -> None:
    case = world()
    for host, version in (("a", "0.1"), ("b", "0.2")):
        ev(case, host)["engine"]["versions"][name] = version
    assert found(case) == [("engine-versions-differ", ("b",))]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (skew, [("clock-skew", ("b",))]),
        (kernel, [("kernel-known-bad", ("a",)), ("kernel-known-bad", ("b",))]),
        (handover, [("kernel-keeps-memory", ("a",)), ("kernel-keeps-memory", ("b",))]),
        (odd_driver, [("versions-differ", ("b",))]),
        (read_only, [("disk-read-only", ("b",))]),
        (renamed, [("host-renamed", ("b",))]),
        (inodes, [("disk-full", ("b",))]),
    ],
)
def test_what_a_lab_cannot_lay(change: Callable[[Case], None], expected: list[Any]) -> None:
    case = world()
    change(case)
    assert found(case) == expected


def test_contiguous_memory_without_its_total_says_nothing() -> None:
    case = world()
    ev(case, "a")["memory"] = {"CmaFree": 9 << 30}
    ev(case, "b")["node"]["cma"] = {"free": 9 << 30}
    assert found(case) == []


def test_a_gpu_that_does_not_answer_comes_before_what_follows() -> None:
    case = world()
    ev(case, "a")["node"].update(gpus=0, gpu_problem="Failed to initialize NVML: Driver/library version mismatch")
    assert found(case) == [("gpu-missing", ("a",))]


def test_a_gpu_at_two_thirds_of_its_clock() -> None:
    case = world()
    for host, clock in (("a", 2400.0), ("b", 1500.0)):
        ev(case, host)["gpus"] = [{"sm_mhz": clock, "celsius": 60.0, "watts": 40.0, "utilization": 96.0, "slowed": []}]
    assert found(case) == [("gpu-slowed", ("b",))]


@pytest.mark.parametrize(
    ("how", "ago", "expected"),
    [
        ("cut", 3600, [("boot-cut", ("a",))]),
        ("panic", 3600, [("boot-cut", ("a",))]),
        ("orderly", 3600, []),
        ("cut", 30 * 86400, []),
    ],
)
def test_the_end_of_the_boot_before(how: str, ago: float, expected: list[Any]) -> None:
    case = world()
    ev(case, "a")["previous_boot"] = {
        "how": how,
        "ended": int(ev(case, "a")["ended"] - ago),
        "last": ["the last words"],
    }
    assert found(case) == expected


def test_memory_that_is_nearly_gone_and_errors_that_devices_counted() -> None:
    case = world()
    ev(case, "a")["memory"]["MemAvailable"] = 3 << 30
    ev(case, "b")["pcie_errors"] = {"hours": 2.0, "devices": {"0000:01:00.0": {"uncorrected": 1}}}
    assert found(case) == [("memory-nearly-gone", ("a",)), ("pcie-errors", ("b",))]
