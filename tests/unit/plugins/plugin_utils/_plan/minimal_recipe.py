# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The least that a recipe has to say."""

from __future__ import annotations

from typing import Any

MINIMAL: dict[str, Any] = {"name": "n", "summary": "s", "model": "m", "runtime": "venv", "hosts": 1, "args": {}}
