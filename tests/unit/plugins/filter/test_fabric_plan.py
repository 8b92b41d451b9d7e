# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import sys

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.filter.fabric_plan import FilterModule


def test_the_filter_is_the_plan() -> None:
    plan = FilterModule().filters()["fabric_plan"](["a", "b"], topology="direct", cidr="10.1.0.0/24")
    assert [plan[host]["control_address"] for host in plan] == ["10.1.0.1", "10.1.0.2"]


def test_bad_input_is_a_filter_error_with_the_message() -> None:
    with pytest.raises(AnsibleFilterError, match=r"fabric_plan: fabric_cidr is 10\.1\.0\.9/24: host bits are set"):
        FilterModule().filters()["fabric_plan"](["a", "b"], topology="direct", cidr="10.1.0.9/24")


def test_a_controller_without_netaddr_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "netaddr", None)
    with pytest.raises(AnsibleFilterError, match=r"fabric_plan: Python package netaddr is not installed") as raised:
        FilterModule().filters()["fabric_plan"](["a", "b"], topology="direct", cidr="10.1.0.0/24")
    assert "pip install netaddr" in str(raised.value)
