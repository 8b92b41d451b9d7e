# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a unit of the serving user runs as root has nothing of the engine's environment, where HOME is that user's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROLES = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists()) / "roles"
UNITS = [path for path in sorted(ROLES.glob("*/templates/*.service.j2")) if "\nUser=" in path.read_text()]
#: a program of the package, which runs isolated; nothing of the environment at all; a signal
HARMLESS = re.compile(
    r"/usr/bin/python3 -IB /usr/local/lib/sparkthor/sparkthor_host [a-z-]+"
    r"|/usr/bin/env -i |/bin/kill -HUP "
)


def as_root(unit: Path) -> list[str]:
    return re.findall(r"^Exec\w+=-?\+(.+)$", unit.read_text(), re.MULTILINE)


def test_the_units_are_found() -> None:
    assert {"sparkthor-ray.service.j2", "sparkthor-vllm.service.j2"} <= {unit.name for unit in UNITS if as_root(unit)}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_root_gets_nothing_of_the_engines_environment(unit: Path) -> None:
    assert [command for command in as_root(unit) if not HARMLESS.match(command)] == []
