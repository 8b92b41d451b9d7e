# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""For changes that a host rolls back by itself unless a new connection confirms them."""

from __future__ import annotations

import os
from typing import Any

from ansible.errors import AnsibleError


def anew(connection: Any, parent: int, host: str, change: str) -> None:
    """Let go of a connection and of all that is kept open for it, so that the next task needs a new one.

    ``parent`` is the process that started the task.
    """
    if os.getppid() != parent:
        # A killed ansible-playbook leaves its workers running in sessions of their own.  Nobody would see the
        # answer, so nobody is there to confirm to: the host takes the change back.
        raise AnsibleError(f"{host}: the controller process is gone, the {change} change stays unconfirmed")
    try:
        connection.reset()
    except (AttributeError, NotImplementedError, AnsibleError):
        # not every connection plugin can reset, and ssh's fails where its shared connection is gone already: what
        # matters is that this one is not used again, and the confirmation over a new one is the judge of that
        connection.close()
