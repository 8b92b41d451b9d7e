# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples are deployed from the collection that the tests of the installation build."""

from __future__ import annotations

from tests.integration.installed.conftest import built, commands

__all__ = ["built", "commands"]
