# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables that the pages name are those that roles and playbooks have, with the same types and defaults.

The reference of all variables is what the roles' argument specs say; that these and the roles' defaults agree is tested
with the check of arguments.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

TOP = Path(__file__).resolve().parents[2]
PAGES = sorted([TOP / "README.md", *TOP.glob("docs/**/*.md"), *TOP.glob("roles/*/README.md")])
ROLES = sorted(path.name for path in (TOP / "roles").iterdir())
#: what Ansible itself knows
ANSIBLE = {"ansible_host", "ansible_user"}
#: names that begin as a role's variables do and are facts, results, tags or names of modules and files
OTHERS = {
    *("preflight_found", "nccl_conf_report", "model_store_inventory", "vllm_serve_ready", "ray_head", "ray_workers"),
    *(f"os_hardening_{area}" for area in ("area", "", "swap")),
    *(path.stem for path in (TOP / "plugins/modules").glob("*.py")),
}
#: words of a row's column "type" -> type of the argument spec
TYPES = {
    **{"string": "str", "path": "str", "list": "list", "mapping": "dict", "boolean": "bool"},
    **{"bytes": "int", "number": "int"},
}


def specs() -> dict[str, dict[str, Any]]:
    """All roles' variables by name."""
    found: dict[str, dict[str, Any]] = {}
    for role in ROLES:
        entries = yaml.safe_load((TOP / "roles" / role / "meta/argument_specs.yml").read_text())["argument_specs"]
        for entry in entries.values():
            found.update(entry.get("options") or {})
    return found


SPECS = specs()


def rows() -> list[list[str]]:
    """Cells of every row of docs/variables.md and docs/options.md that describes a variable."""
    lines = [line for page in ("variables", "options") for line in (TOP / f"docs/{page}.md").read_text().splitlines()]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    return [row for row in cells if len(row) > 2]


ROWS = {row[0].strip("`"): row for row in rows()}


def test_the_page_has_rows() -> None:
    assert {"fabric_topology", "vllm_serve_recipe", "sparkthor_drain_timeout"} <= set(ROWS)


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_variable_of_the_page_is_one(name: str) -> None:
    if name in SPECS or name in ANSIBLE:
        return
    playbooks = [path.strip("` ") for path in ROWS[name][3].split(",")]
    assert playbooks, name
    for playbook in playbooks:
        assert re.search(rf"\b{name}\b", (TOP / "playbooks" / playbook).read_text()), playbook


@pytest.mark.parametrize("name", sorted(set(ROWS) & set(SPECS)))
def test_type_and_default_are_those_of_the_argument_spec(name: str) -> None:
    _name, kind, default, *_rest = ROWS[name]
    choices = re.findall(r"`(\w+)`", kind) or (re.findall(r"\d", kind) if " or " in kind else [])
    if SPECS[name].get("type") == "raw":
        # the plan itself reads what may be written in several ways (fabric_cage: "1"), and checks it
        assert name.startswith("fabric_")
    elif choices:
        assert [str(choice) for choice in SPECS[name]["choices"]] == choices
    else:
        word = re.split(r"[ ,]", kind)[0]
        assert SPECS[name].get("type", "str") in (TYPES[word], "path"), kind
    literal = re.fullmatch(r"`?([\w.]+)`?", default)
    if literal and literal.group(1) != "none" and "default" in SPECS[name]:
        known = SPECS[name]["default"]
        assert (str(known).lower() if isinstance(known, bool) else str(known)) == literal.group(1)
    if default.startswith("none"):
        assert not SPECS[name].get("default")


@pytest.mark.parametrize("name", [name for name in SPECS if name.startswith(("fabric_", "sparkthor_"))])
def test_what_belongs_to_no_role_by_name_has_a_row(name: str) -> None:
    assert name in ROWS


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(TOP)))
def test_a_page_names_no_variable_that_is_gone(page: Path) -> None:
    text = page.read_text()
    named = {
        word
        for word in re.findall(r"`([a-z]+(?:_[a-z0-9]+)+)(?=[`:= ])", text)
        if word.startswith(tuple(f"{role}_" for role in ROLES)) and word not in ROLES
    }
    assert named <= set(SPECS) | OTHERS
