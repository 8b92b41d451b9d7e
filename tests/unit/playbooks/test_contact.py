# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that let nobody in: preflight, status and doctor say the same of each, in one line, and nothing besides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.plays import PLAYBOOKS

TOP = PLAYBOOKS.parent
#: sudo as one with a password is: ours is root's, and asks for none
SUDO = """#!/bin/sh
prompt=
while [ $# -gt 0 ]; do
  case "$1" in -p) prompt=$2; shift 2;; -n) echo "sudo: a password is required" >&2; exit 1;; *) shift;; esac
done
printf %s "$prompt" >&2; read -r _given; echo "Sorry, try again." >&2; printf %s "$prompt" >&2; read -r _given; exit 1
"""
WORDS = {
    "refused": ("the machine answers but runs no ssh server on that port", "install openssh-server"),
    "missing": ("user nvidia needs a password for sudo", "run with -K (--ask-become-pass)"),
    "wrong": ("the become password is wrong for user nvidia", "set ansible_become_password per host"),
    "python": ("there is no Python at ansible_python_interpreter", "install python3 on it"),
}


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contact")
    sudo = folder / "sudo"
    sudo.write_text(SUDO, encoding="utf-8")
    sudo.chmod(0o755)
    here = {"ansible_connection": "local", "ansible_become_exe": str(sudo)}
    hosts = {
        "refused": {"ansible_host": "127.0.0.1", "ansible_port": 1},
        "missing": {**here, "ansible_host": "127.0.0.2"},
        "wrong": {**here, "ansible_host": "127.0.0.3", "ansible_become_password": "not-it"},
        "python": {
            **{"ansible_connection": "local", "ansible_host": "127.0.0.4", "ansible_become_exe": "/usr/bin/env"},
            **{"ansible_python_interpreter": "/usr/bin/python9", "ansible_become_flags": "", "ansible_become": False},
        },
    }
    head, *others = hosts
    groups = {
        "ray_head": {"hosts": {head: hosts[head]}},
        "ray_workers": {"hosts": {name: hosts[name] for name in others}},
    }
    given = {"fabric_topology": "switch", "fabric_cidr": "10.100.0.0/16", "vllm_serve_recipe": "qwen3.5-397b-a17b-fp8"}
    cluster = {"children": groups, "vars": {**given, "ansible_user": "nvidia"}}
    (folder / "hosts.yml").write_text(json.dumps({"cluster": cluster}), encoding="utf-8")
    return folder / "hosts.yml"


@pytest.mark.parametrize("playbook", ["site", "status", "doctor"])
def test_each_host_has_its_cause_and_its_fix(inventory: Path, playbook: str) -> None:
    settings = {"ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), f"playbooks/{playbook}.yml", "-i", str(inventory)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=TOP,
        # root asks root for a password as well
        env={**os.environ, **settings, "ANSIBLE_BECOME_ALLOW_SAME_USER": "1"},
    )
    text = done.stdout.lower()
    for what, fix in WORDS.values():
        assert what.lower() in text
        assert fix.lower() in text
    assert "unreachable!" not in text
    assert "ignoring" not in text
    assert "power button" not in text
    # the task that judges all of them fails, and no other one
    assert done.returncode != 0
    assert done.stdout.count("[ERROR]") == 1
    assert playbook == "site" or "No host could be read; of each the lines above say why, and the fix." in done.stdout
    # one judgement each, and no cause besides it
    assert all(text.count(fix.lower()) == 1 for _what, fix in WORDS.values()) or playbook == "site"
    assert "frozen" not in text
