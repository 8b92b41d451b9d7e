# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engine import EngineSettings
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.ray_node import RaySettings
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import (
    SettingsError,
    plain,
    read_settings,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_serve import ServingSettings


@dataclass(frozen=True)
class Example:
    port: int
    share: float = 0.5
    on: bool = False
    tls: str = "off"
    length: int | None = None
    names: list[str] = field(default_factory=list)
    args: dict[str, Any] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list, repr=False)


def test_fields_are_filled_by_their_names() -> None:
    given = {"port": 8443, "share": 11, "on": True, "names": ["a"], "other": 1}
    read = read_settings(Example, given)
    assert read == Example(8443, 11.0, True, "off", None, ["a"])
    # as it is written into a file
    assert str(read.share) == "11.0"


@pytest.mark.parametrize("nothing", [{}, {"length": None, "on": None}])
def test_what_is_not_given_keeps_its_default(nothing: dict[str, Any]) -> None:
    assert read_settings(Example, {"port": 1, **nothing}) == Example(1)


def test_what_has_no_default_is_named() -> None:
    with pytest.raises(SettingsError, match="port is undefined or null; give it a value"):
        read_settings(Example, {})


def test_a_secret_is_not_shown() -> None:
    assert "hunter2" not in repr(read_settings(Example, {"port": 1, "keys": ["hunter2hunter2hunter2"]}))


def test_plain_values_have_python_s_own_types() -> None:
    class Marked(str):
        __slots__ = ()

    class Number(int):
        pass

    found = plain({Marked("a"): [Marked("b"), Number(3), True, None, 0.5, (Marked("c"),)]})
    assert found == {"a": ["b", 3, True, None, 0.5, ["c"]]}
    assert [type(key) for key in found] == [str]
    assert [type(item) for item in found["a"]][:3] == [str, int, bool]


@pytest.mark.parametrize("kind", [EngineSettings, RaySettings, ServingSettings])
def test_defaults_are_those_of_the_roles(kind: type[Any], variables: dict[str, Any]) -> None:
    """A role that is not in the play has no defaults there; the settings then take the same value."""
    read = read_settings(kind, {**variables, "vllm_serve_model": ""})
    without = {
        name: value
        for name, value in variables.items()
        if name not in kind.__dataclass_fields__ or not hasattr(kind, name)
    }
    without.pop("vllm_serve_model", None)
    assert read_settings(kind, without) == read
