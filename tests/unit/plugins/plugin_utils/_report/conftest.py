# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every host of a healthy cluster answered."""

from __future__ import annotations

import pytest

from tests.unit.plugins.plugin_utils._report.captured_status import HOSTS, status_of


@pytest.fixture
def outcomes():
    return {host: {"status": status_of(host)} for host in HOSTS}
