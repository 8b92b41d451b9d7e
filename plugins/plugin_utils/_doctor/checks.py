# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks: each rule names one, which reads what the hosts reported.

Pure, on the controller.  A check takes the :class:`~_doctor.case.Case` and yields a :class:`~_doctor.diagnosis.Hit`
for each place where its trouble shows; it never decides what the trouble means, that is the rule's.
"""

from __future__ import annotations

# each import adds its checks to CHECKS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor import (
    checks_engine,
    checks_host,
    checks_nccl,
    checks_network,
    checks_ray,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import CHECKS

__all__ = ["CHECKS", "checks_engine", "checks_host", "checks_nccl", "checks_network", "checks_ray"]
