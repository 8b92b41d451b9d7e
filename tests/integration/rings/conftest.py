# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab of the scenario as the host layer's tests see it, and labs of other rings and lines, gone afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sparklab import Lab

from tests.integration.host_layer.conftest import records
from tests.integration.sites import TOP, Maker, Site

__all__ = ["records"]


@pytest.fixture(scope="session")
def site() -> Iterator[Maker]:
    maker = Maker()
    yield maker
    maker.destroy()


@pytest.fixture(scope="session")
def ring() -> Site:
    """The ring of four that the scenario converged."""
    return Site(Lab(os.environ["SPARKLAB_NAME"], home=TOP / ".lab"), TOP / "inventories/4spark_ring")


@pytest.fixture
def other(site: Maker) -> Iterator[Callable[..., Site]]:
    """A lab beside the ring for one test: of an inventory, with a wiring of its own where the test gives one."""

    def make(inventory: str, **given: Any) -> Site:
        return site("rings-other", inventory, 28, **given)

    yield make
    if made := site.sites.pop("rings-other", None):
        made.lab.destroy()
