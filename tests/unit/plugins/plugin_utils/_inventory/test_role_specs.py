# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import RoleSpecs

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
ROLES = sorted(path.parent.parent.name for path in TOP.glob("roles/*/meta/argument_specs.yml"))

SPECS = {
    "engine": {
        "main": {
            "options": {
                "engine_runtime": {"description": "x", "type": "str", "choices": ["venv", "container"]},
                "engine_threads": {"description": "x", "type": "int", "required": True},
                "engine_env": {"type": "dict", "options": {"a": {"type": "int", "description": "x"}}},
                "engine_token": {"type": "int", "no_log": True},
            }
        }
    }
}


def problems(**variables):
    return [str(problem) for problem in RoleSpecs(SPECS).problems({"one": variables, "two": variables})]


def test_sound_variables_and_foreign_names_pass():
    assert problems(engine_runtime="venv", other_name=1) == []


def test_a_wrong_choice_names_role_variable_value_choices_and_hosts():
    [problem] = problems(engine_runtime="vm")
    for word in ("role engine", "engine_runtime", "vm", "venv, container", "on one, two"):
        assert word in problem


def test_a_wrong_type():
    [problem] = problems(engine_threads="many")
    assert "engine_threads" in problem


def test_an_unknown_name_gets_the_closest_one():
    [problem] = problems(engine_runtme="venv")
    assert "engine_runtme" in problem
    assert "did you mean 'engine_runtime'" in problem


def test_a_secret_is_never_part_of_a_message():
    [problem] = problems(engine_token="hunter2hunter2")
    assert "hunter2" not in problem


@pytest.mark.parametrize("role", ROLES)
def test_defaults_and_argument_specs_agree(role):
    """Every public default is a described option and the other way round, with the same default value."""
    specs = yaml.safe_load((TOP / "roles" / role / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    path = TOP / "roles" / role / "defaults" / "main.yml"
    defaults = yaml.safe_load(path.read_text()) if path.exists() else {}
    described: dict = {}
    for entry_point in specs.values():
        described.update(entry_point.get("options") or {})
    assert {name for name, option in described.items() if "default" in option} == set(defaults or {})
    for name, option in described.items():
        assert option.get("description"), name
        if "default" in option:
            assert option["default"] == defaults[name], name
