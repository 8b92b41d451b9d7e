# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of units in docs/security-details.md names every unit that a template of ours makes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.unit.role_state import variables_of
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


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
@pytest.mark.parametrize("unit", unit_exposure.ASKED_FOR)
def test_units_that_no_plain_cluster_has_are_as_closed_as_their_row_says(unit: str, tmp_path: Path) -> None:
    loader = DataLoader()
    [template] = TOP.glob(f"roles/*/templates/{unit}.j2")
    variables = variables_of("vllm_serve")
    text = Templar(loader=loader, variables=variables).template(trust_as_template(template.read_text()))
    (tmp_path / unit).write_text(text)
    listed = unit_exposure.table(unit_exposure.PAGE.read_text())[unit]
    assert unit_exposure.exposure(tmp_path / unit) == listed


def test_a_row_is_read() -> None:
    rows = (
        "| `sparkthor-x.service` | 9.2 | 2.6 | root |",
        "| `sparkthor-y.service` | - | 1.0 | nobody |",
        "| `z` | 1 |",
    )
    assert unit_exposure.table("\n".join(rows)) == {"sparkthor-x.service": 2.6, "sparkthor-y.service": 1.0}
