# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is logged in on the desktop, by what loginctl prints."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.sessions import desktop_users

SSH = "Name=nvidia\nType=tty\nClass=user\nState=active\n"
GREETER = "Name=gdm\nType=wayland\nClass=greeter\nState=active\n"
MANAGER = "Name=nvidia\nType=unspecified\nClass=manager\nState=active\n"
DESKTOP = "Name=ada\nType=wayland\nClass=user\nState=active\n"


@pytest.mark.parametrize(
    ("sessions", "users"),
    [
        ([], []),
        ([SSH, GREETER, MANAGER], []),
        ([GREETER, DESKTOP], ["ada"]),
        ([DESKTOP.replace("wayland", "x11").replace("=active", "=online"), DESKTOP], ["ada"]),
        ([DESKTOP.replace("Class=user", "Class=user-early").replace("ada", "bob"), DESKTOP], ["ada", "bob"]),
        ([DESKTOP.replace("=active", "=closing")], []),
        (["", DESKTOP], ["ada"]),  # the first one has just ended
    ],
)
def test_who_is_logged_in_on_the_desktop(sessions: list[str], users: list[str]) -> None:
    def run(argv: list[str], timeout: float) -> tuple[int, str, str]:
        assert argv[0] == "loginctl"
        if argv[1] == "list-sessions":
            return 0, "".join(f"{number:>7} 1000 somebody seat0\n" for number in range(len(sessions))), ""
        assert not [word for word in argv if "," in word], "loginctl takes no list"
        return (0, sessions[int(argv[-1])], "") if sessions[int(argv[-1])] else (1, "", "No session")

    assert desktop_users(run) == users


def test_a_host_without_logind_has_no_desktop() -> None:
    assert desktop_users(lambda argv, timeout: (127, "", "loginctl: not installed")) == []
