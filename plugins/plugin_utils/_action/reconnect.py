# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""For changes that a host rolls back by itself unless a new connection confirms them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.deadline import ask_until


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


def ask(
    connection: Any,
    parent: int,
    host: str,
    change: str,
    question: Callable[[], dict[str, Any]],
    seconds: float,
    pause: float,
) -> tuple[dict[str, Any] | None, str]:
    """Ask over new connections until the host answers, and what was last said of one that did not lead to it."""
    last = ""

    def once() -> dict[str, Any] | None:
        nonlocal last
        anew(connection, parent, host, change)
        try:
            answer = question()
        except AnsibleConnectionFailure as error:
            answer = {"unreachable": True, "msg": str(error)}
        if not answer.get("unreachable"):
            return answer
        last = str(answer.get("msg", ""))
        return None

    return ask_until(once, lambda answer: answer is not None, seconds, pause), last
