# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import role_values


def test_a_role_finds_its_own_files() -> None:
    given = {"x": 1, "role_path": "/roles/preflight", "playbook_dir": "/plays"}
    seen = role_values.role_variables(given, "a", Path("/r"))
    assert seen["role_path"] == "/r/a"
    assert seen["ansible_search_path"] == ["/r/a", "/r/a/tasks", "/plays"]
    assert (seen["role_name"], seen["x"]) == ("sparkthor.cluster.a", 1)


def test_the_folder_of_the_roles_is_the_collections_own() -> None:
    assert (role_values.ROLES / "engine" / "vars" / "main.yml").is_file()


def test_a_value_is_templated_among_its_own_variables() -> None:
    templar = SimpleNamespace(available_variables={"x": "outside"})
    templar.template = lambda raw: raw.replace("x", templar.available_variables["x"])
    assert role_values.templated(templar, "y", {"x": "inside", "y": "is x"}) == "is inside"
    assert templar.available_variables == {"x": "outside"}
