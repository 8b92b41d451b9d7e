# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Status, runs and diagnosis of clusters as they were captured on simulated hosts."""

from __future__ import annotations

import json
from pathlib import Path

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())


def captured(shape):
    return json.loads((TOP / f"tests/fixtures/report/{shape}.json").read_text())
