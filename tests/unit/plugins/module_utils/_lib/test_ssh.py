# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.ssh import connection


def process(proc: Path, pid: int, parent: int, environment: str) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "environ").write_text(environment)
    (folder / "status").write_text(f"Name:\tpython3\nPPid:\t{parent}\n")


def test_the_connection_is_found_above_sudo(tmp_path: Path) -> None:
    process(tmp_path, 300, 200, "PATH=/bin\0SUDO_USER=nvidia\0")
    process(tmp_path, 200, 100, "XSSH_CONNECTION=no\0")
    process(tmp_path, 100, 1, "HOME=/home/nvidia\0SSH_CONNECTION=192.168.1.5 50022 192.168.1.11 2222\0")
    assert connection(str(tmp_path), 300) == ["192.168.1.5", "50022", "192.168.1.11", "2222"]


def test_no_ssh(tmp_path: Path) -> None:
    process(tmp_path, 300, 1, "PATH=/bin\0")
    assert connection(str(tmp_path), 300) == []


def test_a_process_that_ended_meanwhile(tmp_path: Path) -> None:
    process(tmp_path, 300, 200, "")
    assert connection(str(tmp_path), 300) == []


def test_a_circle_of_parents_ends(tmp_path: Path) -> None:
    process(tmp_path, 300, 301, "")
    process(tmp_path, 301, 300, "")
    assert connection(str(tmp_path), 300) == []
