# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Letting go of a connection before a change is confirmed over a new one."""

from __future__ import annotations

import os

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import reconnect


class Connection:
    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.calls: list[str] = []

    def reset(self) -> None:
        self.calls.append("reset")
        if self.error:
            raise self.error

    def close(self) -> None:
        self.calls.append("close")


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (None, ["reset"]),
        # what ansible-core's base class of connections raises where a plugin has no reset
        (NotImplementedError(), ["reset", "close"]),
        (AnsibleConnectionFailure("gone"), ["reset", "close"]),
    ],
)
def test_the_old_connection_is_let_go_of_whatever_it_is(error: Exception | None, calls: list[str]) -> None:
    connection = Connection(error)
    reconnect.anew(connection, os.getppid(), "a", "network")
    assert connection.calls == calls


def test_nobody_confirms_for_a_controller_that_is_gone() -> None:
    connection = Connection(None)
    with pytest.raises(AnsibleError, match="a: the controller process is gone, the network change stays unconfirmed"):
        reconnect.anew(connection, os.getppid() + 1, "a", "network")
    assert connection.calls == []
