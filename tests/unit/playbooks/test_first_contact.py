# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first contact writes host keys into the file that was named, and logs in by that file."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

from tests.unit.plays import PLAYBOOKS


def program(path: Path, line: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def test_a_machine_is_logged_in_to_by_the_file_that_got_its_key(tmp_path: Path) -> None:
    folder = tmp_path / "my keys"
    folder.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "id"], check=True)
    shown = subprocess.run(["ssh-keygen", "-lf", folder / "id.pub"], check=True, capture_output=True, text=True).stdout
    key = (folder / "id.pub").read_text(encoding="utf-8")
    # a machine that offers this key, and a login that ends as soon as ssh has said what it was called with
    program(tmp_path / "bin/ssh-keyscan", f"echo 127.0.0.1 {shlex.quote(key.strip())}")
    program(tmp_path / "bin/ssh", f'printf "%s\\n" "$@" >>{shlex.quote(str(tmp_path / "called"))}; exit 255')
    with socket.create_server(("127.0.0.1", 0)) as machine:
        port = machine.getsockname()[1]
        given = {
            "discover_addresses": "127.0.0.1",
            "discover_port": port,
            "first_contact_key": "id.pub",
            "first_contact_known_hosts": "known",
            "first_contact_fingerprints": {"127.0.0.1": shown.split()[1]},
            "ansible_password": "",
        }
        command = [Path(sys.executable).with_name("ansible-playbook"), PLAYBOOKS / "first_contact.yml"]
        done = subprocess.run(
            [*command, "-e", json.dumps(given)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "ANSIBLE_CONFIG": str(PLAYBOOKS.parent / "ansible.cfg"),
                "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            },
        )
    assert (tmp_path / "called").exists(), done.stdout + done.stderr
    kept = (folder / "known").read_text(encoding="utf-8")
    assert kept.startswith(f"[127.0.0.1]:{port} ssh-ed25519 {key.split()[1]}")
    called = (tmp_path / "called").read_text(encoding="utf-8").splitlines()
    assert "StrictHostKeyChecking=yes" in called
    assert f'-oUserKnownHostsFile="{folder}/known"' in called
