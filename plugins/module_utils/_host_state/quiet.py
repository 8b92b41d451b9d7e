# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module whose arguments are nobody's business."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule


class QuietModule(AnsibleModule):  # type: ignore[misc]
    """File contents, secrets among them, have no business in the host's system log."""

    def _log_invocation(self) -> None:
        self.log("Invoked")
