# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is logged in on the host's desktop."""

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Command

_GRAPHICAL = ("x11", "wayland", "mir")
#: loginctl takes no list as systemctl does
_ASKED = [f"--property={name}" for name in ("Name", "Class", "Type", "State")]


def desktop_users(run: Command) -> list[str]:
    """Users with a graphical session; the login screen is nobody's, and a host without logind has no desktop."""
    users = set()
    for line in run(["loginctl", "list-sessions", "--no-legend"], 20)[1].splitlines():
        # one by one: a session that ends meanwhile would take the answers about the others with it
        shown = run(["loginctl", "show-session", *_ASKED, "--", *line.split()[:1]], 20)[1]
        session = dict(item.split("=", 1) for item in shown.splitlines() if "=" in item)
        if (
            session.get("Type") in _GRAPHICAL
            and session.get("Class", "").startswith("user")
            and session.get("State") != "closing"
        ):
            users.add(session.get("Name", "somebody"))
    return sorted(users)
