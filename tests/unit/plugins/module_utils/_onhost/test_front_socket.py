# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import stat
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import peer
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import front_socket

from tests.unit.servers import serving


class Answers(front_socket.FrontHandler):
    def do_GET(self) -> None:
        self.reply(503, b"later", "text/plain", {"Retry-After": "10"})

    do_HEAD = do_GET


def test_the_front_proxy_alone_may_ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "below" / "it.sock"
    path.parent.mkdir()
    # what an earlier process has left
    path.write_text("")
    with serving(front_socket.FrontSocket(str(path), "no-such-group", Answers)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        answer = peer.ask(peer.unix(str(path)), "GET", "/", 5)
        assert (answer.status, answer.body) == (503, b"later")
        assert peer.ask(peer.unix(str(path)), "HEAD", "/", 5).body == b""
    assert capsys.readouterr() == ("", "")
