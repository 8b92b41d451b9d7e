# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ring that the scenario converged, as the tests of serving see a lab."""

from __future__ import annotations

from tests.integration.serve.conftest import serving

__all__ = ["serving"]
