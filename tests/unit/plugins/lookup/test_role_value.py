# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A role's variable where the role itself is not in the play."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleLookupError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.sparkthor.cluster.plugins.lookup.role_value import LookupModule


def value(name: str, **given: Any) -> Any:
    variables = {key: trust_as_template(item) if isinstance(item, str) else item for key, item in given.items()}
    templar = Templar(loader=DataLoader(), variables=variables)
    [found] = LookupModule(loader=None, templar=templar).run([name], variables=variables)
    return found


def test_the_default_is_the_roles_own() -> None:
    assert value("roce_network_netplan_path") == "/etc/netplan/40-cx7.yaml"
    assert value("roce_network_renderer") == ""
    # a template among the play's variables
    assert value("roce_network_accept", preflight_accept="runtime_address, clock") == ["runtime_address"]


def test_a_given_value_has_its_declared_type() -> None:
    assert value("vllm_serve_ready_timeout", vllm_serve_ready_timeout="60") == 60
    assert value("roce_network_replace_foreign", roce_network_replace_foreign="yes") is True
    assert value(
        "roce_network_netplan_path", where="50", roce_network_netplan_path="/etc/netplan/{{ where }}.yaml"
    ) == ("/etc/netplan/50.yaml")


def test_one_without_a_default_is_nothing() -> None:
    assert value("vllm_serve_virtual_address") is None
    assert value("vllm_serve_virtual_address", vllm_serve_virtual_address="10.0.0.1/24") == "10.0.0.1/24"


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("roce_network_path", {}, "no role has a variable roce_network_path"),
        ("vllm_serve_ready_timeout", {"vllm_serve_ready_timeout": "soon"}, "vllm_serve_ready_timeout"),
    ],
)
def test_what_is_wrong_is_named(name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(AnsibleLookupError, match=message):
        value(name, **given)
