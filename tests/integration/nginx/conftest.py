# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables are those of the planner's own tests."""

from __future__ import annotations

from tests.unit.plugins.plugin_utils._plan.conftest import variables

__all__ = ["variables"]
