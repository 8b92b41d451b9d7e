# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of every pytest run here."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# How long one example takes says something about the machine's other work only; benchmarks measure time.
settings.register_profile("anywhere", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("anywhere")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A skipped test fails the run: what cannot run here must be said, not passed over."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", [])) if reporter else 0
    if skipped and session.exitstatus == 0:
        reporter.write_line(f"{skipped} test(s) skipped: a skipped test fails the run", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
