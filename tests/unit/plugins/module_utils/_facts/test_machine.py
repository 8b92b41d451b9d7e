# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kinds of machines and releases of their systems; outputs of real ones are in tests/unit/test_captured.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import machine


@pytest.mark.parametrize(
    ("product", "gpus", "tegra", "model", "pci", "kind"),
    [
        ("NVIDIA_DGX_Spark", ["NVIDIA GB10"], False, "", [], "spark"),
        ("Ascent GX10", ["NVIDIA GB10"], False, "", [], "spark"),
        ("NVIDIA_DGX_Spark", [], False, "", [], "spark"),
        ("MS-C931", [], False, "", ["10de:22d1", "10DE:2E12"], "spark"),
        ("RTX Spark", ["NVIDIA RTX Spark N1X"], False, "", ["10de:2e06"], "generic"),
        ("NVIDIA_DGX_Spark", [], False, "", ["10de:2e03"], "generic"),
        ("RTX Spark N1X", ["NVIDIA GB10"], False, "", [], "generic"),
        ("", ["NVIDIA Thor"], True, "", [], "thor"),
        ("", [], False, "NVIDIA Jetson AGX Thor Developer Kit", [], "thor"),
        ("PowerEdge", ["NVIDIA H200"], False, "", ["10de:2335"], "generic"),
    ],
)
def test_kind(product: str, gpus: list[str], tegra: bool, model: str, pci: list[str], kind: str) -> None:
    assert machine.detect_kind(product, gpus, tegra, model, pci) == kind


def test_a_maker_that_leaves_the_family_as_nvidia_has_it() -> None:
    """Seen on an HP ZGX Nano G1n: a Spark whose GPU and PCI cannot be read is still known."""
    product = "HP ZGX Nano G1n AI Station"
    assert machine.detect_kind(product, [], False, "", family="DGX Spark\n") == "spark"
    assert machine.detect_kind(product, [], False, "", family="RTX Spark\n") == "generic"
    assert machine.detect_kind(product, [], False, "", ["10de:2e06"], family="DGX Spark\n") == "generic"


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('DGX_SWBUILD_VERSION="7.2.3"\nDGX_OTA_VERSION="7.5.0"\nDGX_OTA_DATE="lun. 14 sept."\n', "7.5.0"),
        ("DGX_NAME=DGX Spark\nDGX_SWBUILD_VERSION=7.2.3\nDGX_PLATFORM=DGX Server for KVM\n", "7.2.3"),
        ("DGX_OTA_VERSION=7.4.0\nDGX_OTA_VERSION=7.6.0\nDGX_SWBUILD_VERSION=7.2.3\n", "7.6.0"),
        ("", ""),
    ],
)
def test_dgx_version(text: str, version: str) -> None:
    assert machine.dgx_version(text) == version


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("0\n", 0.0),
        ("torn-score: 2.6\n", 2.6),
        ("OTA2607 torn-score: 0\n", 0.0),
        ("detected_ota OTA2607\ntorn_score 2\n", 2.0),
        ("OTA2607\n", None),
        ("no score\n", None),
    ],
)
def test_torn_score(text: str, score: float | None) -> None:
    assert machine.torn_score(text) == score


def test_a_machine_is_known_by_a_hash_of_its_id() -> None:
    one, other = (machine.identity(f"{digit * 32}\n") for digit in "ab")
    assert re.fullmatch("[0-9a-f]{32}", one)
    assert one != other
    assert one != "a" * 32
    assert machine.identity("a" * 32) == one
    # an image before its first boot, and a file that is none
    assert {machine.identity(text) for text in ("", "uninitialized\n", "A" * 32, "a" * 31)} == {""}


def test_this_machine_s_own_identity(tmp_path: Path) -> None:
    assert machine.read_identity(str(tmp_path / "absent")) == ""
    (tmp_path / "machine-id").write_text("a" * 32 + "\n")
    assert machine.read_identity(str(tmp_path / "machine-id")) == machine.identity("a" * 32)


def test_clones_cannot_be_told_apart() -> None:
    assert machine.told_apart({"a": "x", "b": "y", "c": "y", "d": ""}) == {"a": "x"}
