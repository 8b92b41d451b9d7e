# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of what moving names meant, beside the inventory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import (
    FILE,
    IMAGES,
    MODELS,
    Record,
    hub_key,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_first_value_stays(tmp_path: Path) -> None:
    first, second = Record(tmp_path), Record(tmp_path)
    assert first.of(IMAGES, "x:1") == ""
    assert not Path(first.path).exists()
    assert first.keep(IMAGES, "x:1", "sha256:a") == "sha256:a"
    assert second.keep(IMAGES, "x:1", "sha256:b") == "sha256:a"
    assert second.keep(MODELS, hub_key("o/m", "main"), "c" * 40) == "c" * 40
    assert second.of(MODELS, "o/m") == ""
    assert json.loads(Path(first.path).read_text()) == {"images": {"x:1": "sha256:a"}, "models": {"o/m@main": "c" * 40}}


def test_a_line_that_was_removed_is_recorded_anew(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.keep(IMAGES, "x:1", "sha256:a")
    Path(record.path).write_text('{"images": {}}')
    assert record.keep(IMAGES, "x:1", "sha256:b") == "sha256:b"


def test_without_a_folder_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = Record(None)
    assert (record.keep(IMAGES, "x:1", "sha256:a"), record.of(IMAGES, "x:1")) == ("sha256:a", "")
    assert os.listdir(tmp_path) == []


def test_ansible_does_not_read_it_as_an_inventory(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("cluster: {hosts: {spark-01: {}}}")
    Record(tmp_path).keep(IMAGES, "images", "sha256:a")
    assert (tmp_path / FILE).exists()
    inventory = InventoryManager(loader=DataLoader(), sources=[str(tmp_path)])
    assert sorted(inventory.groups) == ["all", "cluster", "ungrouped"]
