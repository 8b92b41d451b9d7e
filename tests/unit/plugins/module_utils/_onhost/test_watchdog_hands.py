# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import errno
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import serving, watchdog_hands
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.watchdog_hands import Guard, Hands, Remote

UNIT = "sparkthor-vllm.service"
RUN = "0123456789abcdef0123456789abcdef"


class Doing(Hands):
    """Notes what it was asked to run and say, and does the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def run(self, argv: list[str], seconds: float) -> tuple[int, str, str]:
        self.done.append(f"{' '.join(argv)} {seconds:g}")
        return 0, "out", "err"

    def token(self) -> str:
        return "s3cret"

    def notify(self, text: str) -> None:
        self.done.append(text)


@pytest.fixture
def doing() -> Doing:
    return Doing()


@pytest.fixture
def remote(doing: Doing, tmp_path: Path) -> Iterator[Remote]:
    ours, theirs = socket.socketpair()
    guard = Guard(doing, UNIT, [str(tmp_path / "state.json")])
    thread = threading.Thread(target=guard.serve, args=(theirs,), daemon=True)
    thread.start()
    with ours, theirs:
        yield Remote(ours)
        ours.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    assert not thread.is_alive()


def test_what_is_on_the_list_is_done(remote: Remote, doing: Doing, tmp_path: Path) -> None:
    assert remote.run(serving.show_command(UNIT), 15) == (0, "out", "err")
    for argv in serving.restart_commands(UNIT, kill=True):
        remote.run(argv, 600)
    remote.run(serving.journal_command(UNIT, RUN, 160), 20)
    remote.run(serving.journal_command(UNIT), 20)
    remote.run(["systemctl", "--no-block", "try-restart", "sparkthor-ray.service"], 30)
    assert len(doing.done) == 7
    # nobody waits for ever
    assert doing.done[1].endswith(" 60")
    remote.write(str(tmp_path / "state.json"), "x" * 100_000)
    assert (tmp_path / "state.json").read_text() == "x" * 100_000
    remote.remove(str(tmp_path / "state.json"))
    remote.remove(str(tmp_path / "state.json"))
    assert not (tmp_path / "state.json").exists()
    assert remote.token() == "s3cret"
    remote.notify("WATCHDOG=1")
    assert doing.done[-1] == "WATCHDOG=1"


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["sh", "-c", "id"],
        ["systemctl", "--no-block", "restart", "ssh.service"],
        ["systemctl", "stop", UNIT],
        [*serving.show_command(UNIT), "ssh.service"],
        ["journalctl", "--lines=5", f"_SYSTEMD_UNIT={UNIT}"],
        serving.journal_command("ssh.service"),
        serving.journal_command(UNIT, RUN[:-1] + "x"),
        [*serving.journal_command(UNIT, RUN)[:-1], "--file=/etc/shadow"],
        ["--lines=5", "x"],
    ],
)
def test_what_is_not_on_the_list_is_refused(remote: Remote, doing: Doing, argv: list[str]) -> None:
    with pytest.raises(PermissionError, match="root part does not do that"):
        remote.run(argv, 5)
    assert doing.done == []


def test_no_other_file_is_written_or_removed(remote: Remote, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    for path in (str(other), f"{tmp_path}/x/../state.json", "state.json"):
        with pytest.raises(PermissionError):
            remote.write(path, "planted")
        with pytest.raises(PermissionError):
            remote.remove(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"]
    with pytest.raises(PermissionError):
        remote.notify("MAINPID=1")


def test_an_error_arrives_as_one(remote: Remote, tmp_path: Path) -> None:
    (tmp_path / "state.json").mkdir()
    with pytest.raises(OSError, match="directory") as caught:
        remote.write(str(tmp_path / "state.json"), "x")
    assert caught.value.errno == errno.EISDIR


def test_without_the_root_part_every_question_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    remote = Remote(ours)
    theirs.close()
    with ours, pytest.raises(OSError, match=r"gone|Broken pipe"):
        remote.token()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give root up")
def test_the_child_is_no_longer_root_and_its_parent_ends_with_it(doing: Doing) -> None:
    before, after = os.pipe()
    parent = os.fork()
    if parent == 0:
        remote = watchdog_hands.split(Guard(doing, UNIT, []), "daemon", ["daemon"], watchdog_hands.Remote)
        if remote is not None:
            told = json.dumps([os.getresuid(), os.getresgid(), os.getgroups(), remote.token()])
            os.write(after, told.encode())
        os._exit(0 if remote is None else 7)
    os.close(after)
    with os.fdopen(before, "rb") as stream:
        users, groups, further, token = json.loads(stream.read())
    assert set(users) == {1}
    assert set(groups) == {1}
    assert (further, token) == ([1], "s3cret")
    assert os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1]) == 0
