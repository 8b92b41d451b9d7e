# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whoever reads a role's variable reads the same: preflight's probe, the role's change and its teardown, planners and
playbooks. A default is written once, in the role's defaults/main.yml.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import pins
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_change, ports
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import inventory, role_specs

TOP = Path(__file__).resolve().parents[3]
ROLES = TOP / "roles"
DEFAULTS = role_specs.defaults()
NAMES = {*DEFAULTS, *role_specs.of_collection().names}
PYTHON = sorted((TOP / "plugins").rglob("*.py"))
YAML = sorted([*(TOP / "roles").rglob("*.yml"), *(TOP / "playbooks").rglob("*.yml")])


def loaded(path: str) -> Any:
    return yaml.safe_load((ROLES / path).read_text())


def variables_of(value: Any, known: dict[str, Any]) -> set[str]:
    """The roles' variables that an argument is made of, also by way of a private variable of its role."""
    words = set(re.findall(r"\w+", str(value)))
    inner = [variables_of(known[word], known) for word in words if word.startswith("__") and word in known]
    return (words & NAMES).union(*inner)


def test_preflights_probe_asks_by_what_the_role_and_its_teardown_change() -> None:
    """An option that two of them have is made of the same variables; none has a default of its own there."""
    wanted = loaded("roce_network/vars/main.yml")
    probe = loaded("preflight/vars/main.yml")["__preflight_ports"]
    [absent] = [
        task["sparkthor.cluster.netplan_apply"]
        for task in loaded("roce_network/tasks/teardown.yml")
        if "sparkthor.cluster.netplan_apply" in task
    ]
    tasks = loaded("roce_network/tasks/main.yml")
    change = next(
        task["sparkthor.cluster.netplan_apply"] for task in tasks if "sparkthor.cluster.netplan_apply" in task
    )
    decides = set(netplan_change.ARGUMENTS) & set(ports.ARGUMENTS) - {"links"}
    assert {"path", "renderer", "floating"} == decides
    for option in decides:
        read = variables_of(change[option], wanted)
        assert read, option
        assert variables_of(probe[option], wanted) == read, option
    for option in set(absent) - {"state"}:
        assert variables_of(absent[option], wanted) == variables_of(change[option], wanted), option
    assert ports.ARGUMENTS["path"]["required"]
    assert ports.ARGUMENTS["renderer"]["required"]


def test_preflight_judges_by_what_the_role_accepts() -> None:
    """What would stop the change stops preflight, and what the inventory allows there it allows before as well."""
    [judge] = [
        task["sparkthor.cluster.cluster_plan"]
        for task in loaded("preflight/tasks/main.yml")
        if task.get("sparkthor.cluster.cluster_plan", {}).get("stage") == "hosts"
    ]
    change = next(
        task["sparkthor.cluster.netplan_apply"]
        for task in loaded("roce_network/tasks/main.yml")
        if "sparkthor.cluster.netplan_apply" in task
    )
    judged, wanted = loaded("preflight/vars/main.yml"), loaded("roce_network/vars/main.yml")
    for option, more in (("accept", {"preflight_accept"}), ("replace_foreign", set())):
        read = variables_of(change[option], wanted)
        assert read, option
        assert variables_of(judge[option], judged) == read | more, option


def literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None


@pytest.mark.parametrize("path", YAML, ids=[str(path.relative_to(TOP)) for path in YAML])
def test_no_playbook_or_role_has_a_default_of_its_own(path: Path) -> None:
    for name, given in re.findall(r"\b(\w+)\s*\|\s*default\(([^(),]+)", path.read_text()):
        value = {"true": True, "false": False}.get(given.strip(), literal(given.strip()))
        if name in DEFAULTS and value:
            pytest.fail(f"{name}: lookup('sparkthor.cluster.role_value', '{name}') instead of default({given})")


def fallbacks(tree: ast.AST) -> Iterator[tuple[str, Any]]:
    """``x.get("name", literal)`` and ``x.get("name") or literal``: the name and the literal."""

    def asked(node: ast.AST) -> str:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"):
            return ""
        first = node.args[0] if node.args else None
        return str(first.value) if isinstance(first, ast.Constant) else ""

    for node in ast.walk(tree):
        if asked(node) and isinstance(node, ast.Call) and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            yield asked(node), node.args[1].value
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and isinstance(node.values[-1], ast.Constant):
            for name in filter(None, map(asked, node.values)):
                yield name, node.values[-1].value


@pytest.mark.parametrize("path", PYTHON, ids=[str(path.relative_to(TOP)) for path in PYTHON])
def test_no_program_has_a_default_of_its_own(path: Path) -> None:
    for name, value in fallbacks(ast.parse(path.read_text())):
        if name in DEFAULTS and value:
            assert value == DEFAULTS[name], f"{name}: {value!r}"
            pytest.fail(f"{name}: role_specs.defaults() has {value!r}")


def settings() -> list[type]:
    """Every dataclass of the planners whose fields are roles' variables."""
    found: list[type] = []
    base = "ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan"
    for path in sorted((TOP / "plugins" / "plugin_utils" / "_plan").glob("*.py")):
        for kind in vars(importlib.import_module(f"{base}.{path.stem}")).values():
            if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind not in found:
                if {field.name for field in dataclasses.fields(kind)} & NAMES:
                    found.append(kind)
    return found


@pytest.mark.parametrize("kind", settings(), ids=lambda kind: kind.__name__)
def test_planners_know_the_roles_defaults(kind: type) -> None:
    for field in dataclasses.fields(kind):
        if field.name not in DEFAULTS or "{{" in str(DEFAULTS[field.name]):
            continue
        default = field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default
        if default is not dataclasses.MISSING:
            assert (default or None) == (DEFAULTS[field.name] or None), field.name


def _compares(node: ast.AST, number: int) -> bool:
    sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
    return any(isinstance(side, ast.Constant) and side.value == number for side in sides)


def test_figures_that_many_need_have_one_home() -> None:
    """Who needs one of them imports it, or asks for the role's variable."""
    assert DEFAULTS["roce_network_netplan_path"] == netplan_change.ARGUMENTS["path"]["default"]
    # the role that writes it names it, and nobody can change that alone
    tasks = loaded("roce_network/tasks/main.yml")
    written = next(
        task["sparkthor.cluster.netplan_apply"]["environment_path"]
        for task in tasks
        if "sparkthor.cluster.netplan_apply" in task
    )
    assert written == environment_file.FABRIC
    assert not [name for name, value in DEFAULTS.items() if value == written]
    assert {path.relative_to(TOP) for path in YAML if written in path.read_text()} == {
        Path("roles/roce_network/tasks/main.yml"),
        Path("roles/roce_network/tasks/teardown.yml"),
    }
    homes = {
        f'"{environment_file.FABRIC}"': {"module_utils/_lib/environment_file.py"},
        f'"{pins.RAY_MINIMUM}"': {"module_utils/_engine/pins.py"},
        "MINIMUM_SECRET_LENGTH = ": {"plugin_utils/_inventory/inventory.py"},
    }
    for text, home in homes.items():
        found = {str(path.relative_to(TOP / "plugins")) for path in PYTHON if text in path.read_text()}
        assert found == home, text
    assert inventory.MINIMUM_SECRET_LENGTH == 16
    # a length of a secret is compared with the constant, in no program with a number of its own
    compared = {path.name for path in PYTHON for node in ast.walk(ast.parse(path.read_text())) if _compares(node, 16)}
    assert compared <= {"verify.py"}, "verify.py means Gb/s"


_SETTINGS = {"_plan/ray_node.py", "_plan/vllm_serve.py"}


@pytest.mark.parametrize(
    ("number", "variable", "elsewhere"),
    [
        # vLLM and another tool's recipes have 8000 for themselves, and settings are compared above
        (8000, "vllm_serve_api_port", {*_SETTINGS, "_doctor/checks_engine.py", "_plan/recipe_export.py"}),
        # a module of its own right says its default in its documentation
        (2700, "vllm_serve_ready_timeout", {"modules/vllm_service.py", "_onhost/on_demand.py"}),
    ],
)
def test_a_default_stands_in_no_program(number: int, variable: str, elsewhere: set[str]) -> None:
    assert DEFAULTS[variable] == number
    found = set()
    for path in PYTHON:
        numbers = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
        if any(value == number and isinstance(value, (int, float)) for value in numbers):
            found.add(f"{path.parent.name}/{path.name}")
    assert found <= elsewhere
    # nor in a task or a template
    texts = [path for path in YAML if "meta" not in path.parts] + sorted((TOP / "roles").rglob("*.j2"))
    written = {
        str(path.relative_to(TOP)) for path in texts if re.search(rf"(?<![\w.]){number}(?![\w.])", path.read_text())
    }
    assert written == {"roles/vllm_serve/defaults/main.yml"}
