# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Alerts judge by the numbers of status and the doctor, and are as severe as the doctor's rules."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import kernel_log
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import limits
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.checks import CHECKS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.logs import load_rules

from tests.unit import role_state

RULES = {rule.id: rule for rule in load_rules(CHECKS)}
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((role_state.ROLES / "monitoring/files/alerts.yml").read_text())["groups"]
    for rule in group["rules"]
}
#: alert -> the doctor's rule about the same, and the numbers by which both judge
SAME: dict[str, tuple[str, list[float]]] = {
    "HostAway": ("host-unreachable", []),
    "AnswersWrong": ("answers-wrong", []),
    "MemoryShort": ("memory-nearly-gone", [limits.MEMORY_LEFT]),
    "Swapping": ("swap-in-use", [limits.SWAPPED]),
    "DiskFull": ("disk-full", [limits.DISK_LEFT, limits.DISK_BYTES]),
    "FirewallOpen": ("firewall-open", []),
    "FabricLinkDown": ("half-cable", []),
    "FabricNicMissing": ("cable-down", []),
    "FabricMtuDiffers": ("mtu-mismatch", []),
    "GpuSlowed": ("gpu-slowed", []),
    "GpuHeldBack": ("gpu-slowed", [limits.GPU_BUSY / 100, limits.GPU_SHARE]),
    "LinkFlaps": ("link-flaps", [limits.FLAPS]),
    "FabricLoses": ("fabric-loses", [limits.LOST, limits.LOST_SHARE]),
    "FabricLinkSlow": ("link-rate", []),
    "FabricSpeedsMixed": ("link-speeds-mixed", []),
    "PcieErrors": ("pcie-errors", [1, limits.PCIE_CORRECTED]),
}


@pytest.mark.parametrize("alert", SAME)
def test_an_alert_is_as_severe_as_the_rule_and_judges_by_its_numbers(alert: str) -> None:
    name, numbers = SAME[alert]
    severity = ALERTS[alert]["labels"]["severity"]
    assert {"critical": "error", "warning": "warning"}[severity] == RULES[name].severity
    found = {float(text) for text in re.findall(r"(?:[<>]=?|\)|,|-) ?(\d[\d.e-]*)\b(?![a-z\]])", ALERTS[alert]["expr"])}
    assert set(map(float, numbers)) <= found


def test_a_rule_that_an_alert_names_exists() -> None:
    named = {name for rule in ALERTS.values() for name in re.findall(r"\(([a-z-]+)\)", rule["annotations"]["fix"])}
    assert {"gpu-slowed", "pcie-errors"} <= named <= set(RULES)


def test_log_rules_count_as_the_alerts_do() -> None:
    assert {pattern.least for pattern in RULES["link-flaps"].log} == {limits.FLAPS}
    corrected = [pattern.least for pattern in RULES["pcie-errors"].log if pattern.least > 1]
    assert set(corrected) == {limits.PCIE_CORRECTED}


def test_status_reads_each_line_that_a_rule_finds_in_the_kernels_log() -> None:
    kernel = [rule for rule in RULES.values() if rule.kernel]
    assert {"gpu-error", "host-lockup", "nic-gone", "pcie-errors", "link-flaps"} <= {rule.id for rule in kernel}
    for rule in kernel:
        for pattern in rule.log:
            assert any(word in pattern.has for word in kernel_log.WORDS), (rule.id, pattern.has)
