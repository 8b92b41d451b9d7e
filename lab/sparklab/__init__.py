# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulated DGX Spark and Jetson Thor hosts on one Linux machine, made from an Ansible inventory."""

from __future__ import annotations

from .lab import Lab, labs, only_lab
from .system import LabError

__all__ = ["Lab", "LabError", "labs", "only_lab"]
