# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``doctor_evidence``: stamps the question and the answer with the controller's clock."""

from __future__ import annotations

import time

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("links", "since", "journal_lines", "timeout", "ray"))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        before = time.time()
        result.update(self._execute_module(task_vars=task_vars))
        result.update(before=before, after=time.time(), changed=False)
        return result
