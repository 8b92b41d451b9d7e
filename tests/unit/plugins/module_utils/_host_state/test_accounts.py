# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users and groups."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import (
    HostStateError,
)

from tests.unit.simulated_host import MARK, FakeHost


def test_new_user_owns_new_files(host: FakeHost) -> None:
    (host.root / "srv").mkdir(mode=0o755)
    done = host.converge(
        groups=[{"name": "sparkthor"}],
        users=[{"name": "sparkthor", "groups": ["video", "render"], "home": "/var/lib/sparkthor"}],
        directories=[{"path": "/srv/d", "owner": "sparkthor"}],
        files=[{"path": "/srv/d/f", "content": MARK, "owner": "sparkthor"}],
    )
    assert done.changed_accounts == ["group sparkthor", "user sparkthor"]
    assert done.skipped_groups == ["render"]
    useradd = next(call for call in host.calls if call[0] == "useradd")
    assert useradd[useradd.index("--groups") + 1] == "video"
    assert useradd[useradd.index("--gid") + 1] == "sparkthor"
    assert useradd[useradd.index("--shell") + 1] == "/usr/sbin/nologin"


def test_user_gains_a_group_it_lacks(host: FakeHost) -> None:
    host.accounts.users["sparkthor"] = {"home": "/x", "shell": "/bin/sh", "groups": ["sparkthor"]}
    done = host.converge(users=[{"name": "sparkthor", "groups": ["video"]}])
    assert done.changed_accounts == ["user sparkthor"]
    assert ["usermod", "--append", "--groups", "video", "sparkthor"] in host.calls


def test_account_tool_fails(host: FakeHost) -> None:
    real = host.run
    host.run = lambda argv, t: (9, "", "useradd: locked") if argv[0] == "useradd" else real(argv, t)  # type: ignore[method-assign]
    with pytest.raises(HostStateError, match=r"user x cannot be set up: useradd .* ended with 9: useradd: locked"):
        host.apply(users=[{"name": "x"}])
