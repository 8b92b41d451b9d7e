# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of units in docs/security-details.md names every unit that a template of ours makes."""

from __future__ import annotations

from pathlib import Path

from tools import unit_exposure

TOP = Path(__file__).parents[3]


def test_every_unit_has_its_row() -> None:
    known = unit_exposure.table(unit_exposure.PAGE.read_text())
    templates = {path.stem for path in TOP.glob("roles/*/templates/sparkthor-*.service.j2")}
    # once at boot, on a Thor or by request: the head that the table is made of has neither
    once = {"sparkthor-gpu-clock.service", "sparkthor-jetson-power.service"}
    assert set(known) == templates - once
    # what a unit of systemd's own is without any of this: above 9
    assert all(value < 3 for value in known.values())


def test_a_row_is_read() -> None:
    rows = (
        "| `sparkthor-x.service` | 9.2 | 2.6 | root |",
        "| `sparkthor-y.service` | - | 1.0 | nobody |",
        "| `z` | 1 |",
    )
    assert unit_exposure.table("\n".join(rows)) == {"sparkthor-x.service": 2.6, "sparkthor-y.service": 1.0}
