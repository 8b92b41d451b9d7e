# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The labs for faults, gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.sites import Maker, Site


@pytest.fixture(scope="session")
def site() -> Iterator[Maker]:
    maker = Maker()
    yield maker
    maker.destroy()


@pytest.fixture(scope="session")
def ring(site: Maker) -> Site:
    """Three virgin hosts, rightly cabled; every test leaves them as it found them."""
    return site("hf-ring", "3spark_ring", 10)
