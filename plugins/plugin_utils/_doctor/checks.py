# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks: each rule names one, which reads what the hosts reported.

Pure, on the controller.  A check takes the :class:`~_doctor.case.Case` and yields a :class:`~_doctor.diagnosis.Hit`
for each place where its trouble shows; it never decides what the trouble means, that is the rule's.
"""

from __future__ import annotations

# each import adds its checks to CHECKS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor import (
    checks_engine,  # noqa: F401
    checks_host,  # noqa: F401
    checks_nccl,  # noqa: F401
    checks_network,  # noqa: F401
    checks_ray,  # noqa: F401
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import CHECKS

__all__ = ["CHECKS"]
