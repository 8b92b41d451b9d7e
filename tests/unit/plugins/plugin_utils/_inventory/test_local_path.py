# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError, Target
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import wheels
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import secrets_dir
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.local_path import local
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report.results import results_folder


def test_a_path_is_printed_without_steps_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "inventories/lab").mkdir(parents=True)
    assert local(f"{tmp_path}/inventories/lab/../../.lab/x") == f"{tmp_path}/.lab/x"
    assert local("~/inventories/../.lab") == f"{tmp_path}/.lab"
    assert local("") == ""


def test_steps_back_from_a_link_stay(tmp_path: Path) -> None:
    """There they lead to the folder that holds what is linked."""
    (tmp_path / "elsewhere/lab").mkdir(parents=True)
    (tmp_path / "lab").symlink_to("elsewhere/lab")
    assert local(f"{tmp_path}/lab/../secrets") == f"{tmp_path}/lab/../secrets"


def test_whoever_names_a_path_of_the_inventory_names_it_so(tmp_path: Path) -> None:
    (tmp_path / "inventories/lab").mkdir(parents=True)
    given = f"{tmp_path}/inventories/lab/../../.lab"
    assert secrets_dir({"sparkthor_secrets_dir": given}, lambda value: value) == f"{tmp_path}/.lab"
    assert results_folder({}, given) == f"{tmp_path}/.lab"
    with pytest.raises(EngineError) as caught:
        wheels.read_engine_of({"requirements": f"{given}/lock.txt"}, Target("3.11", "aarch64", "2.36"))
    assert f"{tmp_path}/.lab/lock.txt" in str(caught.value)
    assert ".." not in str(caught.value)
