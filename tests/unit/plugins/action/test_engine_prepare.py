# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is checked on the controller before the first change: wheels, image, and the digest of a tag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import engine_prepare

from tests.unit.delivery import act


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def engine(locked_wheels: dict[str, str]) -> dict[str, Any]:
    return {**locked_wheels, "download": False}


def test_a_lacking_wheel_names_host_and_target(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    next(Path(engine["wheel_dir"]).glob("vllm*")).unlink()
    with pytest.raises(AnsibleActionFail, match=r"host spark-01: .*for Python 3\.12 on aarch64 .*: vllm==0\.32\.0\."):
        act(engine_prepare, monkeypatch, engine, [])


def test_check_mode_fetches_nothing(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    next(Path(engine["wheel_dir"]).glob("vllm*")).unlink()
    args = {**engine, "download": True}
    result, _calls = act(engine_prepare, monkeypatch, args, [], check=True)
    assert (result["changed"], result["missing"]) == (False, ["vllm==0.32.0"])


def test_wheels_need_to_know_the_host(engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AnsibleActionFail, match="node_info first"):
        act(engine_prepare, monkeypatch, engine, [], facts={})
    result, _calls = act(engine_prepare, monkeypatch, engine, [])
    assert (result["target"], result["fetched"]) == ("cp312-aarch64", [])


@pytest.mark.parametrize("check", [False, True])
def test_a_swapped_wheel_is_refused_before_anything_changes(
    engine: dict[str, Any], monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    Path(engine["wheel_dir"], "uv-0.13.8-py3-none-any.whl").write_bytes(b"#!/bin/sh")
    with pytest.raises(AnsibleActionFail, match=r"^host spark-01: engine_wheel_dir: .* does not name: uv-0\.13\.8"):
        act(engine_prepare, monkeypatch, engine, [], check=check)
