# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A clock that stands in for the module ``time`` in one module under test, and nowhere else."""

from __future__ import annotations


class Clock:
    """Starts at 0 and moves only when somebody sleeps.

    A test gives it to the module under test by ``monkeypatch.setattr(module, "time", clock)``.  Setting
    ``module.time.sleep`` instead would change the clock of every thread of this process.
    """

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
