# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of NCCL's settings the role writes, and which it removes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import lookup_loader
from ansible.template import Templar
from ansible_collections.sparkthor.cluster.plugins.lookup import role_value
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import role_tasks

from tests.unit.role_state import variables_of


@pytest.fixture(autouse=True)
def lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_loader, "get", lambda _name, **given: role_value.LookupModule(**given))


def told(env: dict[str, str] | None = None, **given: Any) -> dict[str, Any]:
    """The module's arguments on a host whose engine has this environment."""
    loader = DataLoader()
    fabric = {} if env is None else {"sparkthor_fabric": {"one": {"env": env}}}
    variables = variables_of("nccl_conf", **fabric, **given)
    [call] = role_tasks.calls_that_make_files("nccl_conf", Templar(loader=loader, variables={}), variables) or []
    assert call["module"] == "nccl_conf"
    return dict(call["arguments"])


def test_with_rdma_nothing_may_switch_it_off() -> None:
    found = told({"NCCL_IB_HCA": "mlx5_1", "UCX_TLS": "rc"})
    assert (found["present"], found["absent"]) == ({}, ["NCCL_IB_DISABLE"])
    assert found["planned"] == {"NCCL_IB_HCA": "mlx5_1"}


def test_where_a_host_lacks_rdma_all_switch_it_off() -> None:
    found = told({"NCCL_IB_DISABLE": "1"}, nccl_conf_remove="NCCL_ALGO,NCCL_PROTO")
    assert (found["present"], found["absent"]) == ({"NCCL_IB_DISABLE": "1"}, ["NCCL_ALGO", "NCCL_PROTO"])


def test_the_user_s_settings_win() -> None:
    found = told({"NCCL_IB_DISABLE": "1"}, nccl_conf_settings="NCCL_IB_DISABLE=0,NCCL_DEBUG=INFO")
    assert found["present"] == {"NCCL_IB_DISABLE": "0", "NCCL_DEBUG": "INFO"}
    kept = told({}, nccl_conf_settings={"NCCL_IB_DISABLE": "1"})
    assert (kept["present"], kept["absent"]) == ({"NCCL_IB_DISABLE": "1"}, [])


def test_without_a_plan_there_is_nothing_to_compare_with() -> None:
    assert told()["planned"] == {}
