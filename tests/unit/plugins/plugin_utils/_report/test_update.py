# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an update will do, in words, and what is worse after it.  The versions are those of real hosts."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import update

DRIVER = {"name": "nvidia-driver-580-open", "old": "580.159.03", "new": "580.178.04"}


def plan(*updates: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"updates": list(updates), "new": [], "removed": [], "reboots": bool(updates), **more}


def status(gpus: int = 1, links: tuple[str, ...] = ("up", "up"), **more: Any) -> dict[str, Any]:
    return {
        "node": {"kind": "spark", "gpus": gpus, "kernel": "6.17.0-1032-nvidia", **more.pop("node", {})},
        "rdma": {"links": [{"netdev": f"enp1s0f{number}np0", "state": state} for number, state in enumerate(links)]},
        "units": {},
        "versions": {},
        **more,
    }


def test_workers_come_first_and_the_head_last() -> None:
    many = [{"name": f"a{number}", "old": "1", "new": "2"} for number in range(20)]
    plans = {"head": plan(DRIVER), "one": plan(*many, DRIVER), "two": plan()}
    found = update.lines(plans, ["head"], {})
    assert found[0].startswith("1. one: nvidia-driver-580-open 580.159.03 -> 580.178.04; a0 1 -> 2; ")
    assert found[0].endswith("; and 9 more, and a reboot")
    assert found[1] == "2. head: nvidia-driver-580-open 580.159.03 -> 580.178.04, and a reboot"
    assert found[2].startswith("way back: ")
    assert update.lines({"two": plan()}, [], {}) == ["no host has an update"]


def test_a_host_that_holds_packages_is_named() -> None:
    held = ["linux-nvidia-hwe-24.04", "linux-image-nvidia-hwe-24.04"]
    found = update.lines({"a": plan(DRIVER), "b": plan(DRIVER, kept_back=held), "c": plan(kept_back=held)}, [], {})
    (line,) = [line for line in found if line.startswith("kept back on ")]
    assert line.startswith("kept back on b, c: linux-image-nvidia-hwe-24.04, linux-nvidia-hwe-24.04 (apt-mark showhold")


def test_firmware_that_differs_is_named_and_never_written() -> None:
    plans = {
        "a": plan(firmware={"BIOS": "5.36_0ACUM027", "EC": "2.4"}),
        "b": plan(firmware={"BIOS": "5.36_0ACUM018", "EC": "2.4"}),
        "thor": plan(firmware={"BIOS": "38.2"}),
    }
    before = {
        "a": status(versions={"NIC firmware": "28.45.4028"}),
        "b": status(versions={"NIC firmware": "28.45.4028"}),
        "thor": status(node={"kind": "thor"}),
    }
    assert update.firmware_lines(plans, before) == [
        "firmware differs, and is not written: BIOS is 5.36_0ACUM018 on b, 5.36_0ACUM027 on a"
    ]


def test_firmware_that_makers_number_themselves_is_compared_within_one_maker_s() -> None:
    versions = {
        "msi": {"BIOS": "5.36_1.5.0", "Embedded Controller": "10500", "VBIOS": "9A.0B.1E.00.00"},
        "asus": {"BIOS": "GX10DGX.0104", "Embedded Controller": "0x02000005", "VBIOS": "9A.0B.1E.00.00"},
        "other": {"BIOS": "GX10DGX.0105", "Embedded Controller": "0x02000005", "VBIOS": "9A.0B.25.00.00"},
    }
    products = {"msi": "MS-C931", "asus": "GX10", "other": "GX10"}
    before = {host: status(node={"kind": "spark", "product": product}) for host, product in products.items()}
    assert update.firmware_lines({host: plan(firmware=known) for host, known in versions.items()}, before) == [
        "firmware differs, and is not written: VBIOS is 9A.0B.1E.00.00 on msi, asus, 9A.0B.25.00.00 on other",
        "firmware differs, and is not written: BIOS is GX10DGX.0104 on asus, GX10DGX.0105 on other",
    ]


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (status(), ""),
        (status(gpus=0, node={"gpu_problem": "Driver/library version mismatch"}), "its GPU does not answer"),
        (status(links=("up", "down")), "enp1s0f1np0 has no carrier, and had one"),
        (status(links=("up",)), "enp1s0f1np0 is gone"),
        (status(node={"kernel": "6.17.0-1008-nvidia"}), "6.17.0-1008"),
        (status(node={"cma": {"total": 0, "free": 10_000_000_000}}), "Kexec HandOver"),
        (status(units={"sparkthor-ray": {"active": "failed", "result": "exit-code"}}), "sparkthor-ray has failed"),
    ],
)
def test_what_is_worse_than_before(now: dict[str, Any], words: str) -> None:
    found = update.worse("a", status(), now)
    assert len(found) == bool(words)
    assert words in "; ".join(found)


def test_a_port_without_rdma_that_is_dark_is_worse() -> None:
    """The lanes of a Thor, and what a LAN goes over."""

    def thor(*lit: str) -> dict[str, Any]:
        names = ("mgbe0_0", "mgbe1_0", "mgbe2_0", "docker0")
        found = [{"name": name, "carrier": name in lit, "virtual": name == "docker0"} for name in names]
        return {**status(links=()), "node": {"kind": "thor", "gpus": 1, "kernel": "6.8.12", "interfaces": found}}

    before = thor("mgbe0_0", "mgbe1_0", "docker0")
    assert update.worse("t", before, thor("mgbe0_0", "mgbe1_0", "mgbe2_0")) == []
    assert update.worse("t", before, thor("mgbe0_0")) == ["mgbe1_0 has no carrier, and had one"]
    before["node"]["interfaces"].append({"name": "mgbe3_0", "carrier": True, "virtual": False})
    assert update.worse("t", before, thor("mgbe0_0", "mgbe1_0")) == ["mgbe3_0 is gone"]


def test_what_was_so_before_is_not_worse() -> None:
    known = status(links=("down", "up"), node={"kernel": "6.17.0-1008-nvidia"})
    known["units"] = {"sparkthor-ray": {"active": "failed"}}
    assert update.worse("a", known, known) == []
