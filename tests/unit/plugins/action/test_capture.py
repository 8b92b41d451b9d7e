# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archive of a capture: who is in it, its mode, and that nothing is overwritten."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

PLAY = """
- hosts: a,b
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact:
        read: "{{ {'capture': {'bundle': {'version': 1}, 'evidence': {'node': {}}}} if inventory_hostname == 'a'
          else {'unreachable': true, 'msg': 'no route'} }}"
    - sparkthor.cluster.capture: {read: read, path: "FILE", hide_names: HIDE}
      run_once: true
"""


def write(folder: Path, hide: bool = False, *options: str, text: str = PLAY) -> subprocess.CompletedProcess[str]:
    play = folder / "play.yml"
    play.write_text(text.replace("FILE", str(folder / "c.tar.gz")).replace("HIDE", str(hide).lower()))
    command = [
        str(Path(sys.executable).with_name("ansible-playbook")),
        "-i",
        "a,b,",
        "-c",
        "local",
        str(play),
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("hide", "name"), [(False, "a"), (True, "host-1")])
def test_the_archive_holds_those_that_answered_and_is_never_overwritten(tmp_path: Path, hide: bool, name: str) -> None:
    done = write(tmp_path, hide)
    assert done.returncode == 0, done.stdout
    assert "b is not in the archive: no route" in done.stdout
    path = tmp_path / "c.tar.gz"
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        assert sorted(archive.getnames()) == ["c/README.txt", f"c/{name}/bundle.json", f"c/{name}/evidence.json"]
        bundle = archive.extractfile(f"c/{name}/bundle.json")
        assert bundle is not None
        assert json.load(bundle) == {"version": 1}
    again = write(tmp_path, hide)
    assert again.returncode != 0
    assert "capture_file" in again.stdout


def test_a_host_whose_answer_is_none_does_not_keep_the_others_out(tmp_path: Path) -> None:
    done = write(tmp_path, text=PLAY.replace("{'unreachable': true, 'msg': 'no route'}", "{'capture': ['none']}"))
    assert "b is not in the archive: what it answered is no capture" in done.stdout
    with tarfile.open(tmp_path / "c.tar.gz") as archive:
        assert sorted(archive.getnames()) == ["c/README.txt", "c/a/bundle.json", "c/a/evidence.json"]


def test_check_mode_writes_nothing(tmp_path: Path) -> None:
    done = write(tmp_path, False, "--check")
    assert done.returncode == 0, done.stdout
    assert not (tmp_path / "c.tar.gz").exists()


def test_a_host_says_nothing_of_where_its_part_lies_and_the_file_is_fit_for_a_terminal(tmp_path: Path) -> None:
    play = tmp_path / "play.yml"
    play.write_text(
        PLAY.replace("'bundle': {'version': 1}", "'../../../evil': 1, 'bundle': {'x': hostile}")
        .replace("  tasks:", '  vars: {hostile: "\\e]52;c;eA==\\a\\u202e\\x9b2J\\x7f"}\n  tasks:')
        .replace("FILE", str(tmp_path / "c.tar.gz"))
        .replace("HIDE", "false")
    )
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    done = subprocess.run(
        [program, "-i", "a,b,", "-c", "local", str(play)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    with tarfile.open(tmp_path / "c.tar.gz") as archive:
        assert sorted(archive.getnames()) == ["c/README.txt", "c/a/bundle.json", "c/a/evidence.json"]
        bundle = archive.extractfile("c/a/bundle.json")
        assert bundle is not None
        text = bundle.read().decode()
    assert text.replace("\n", "").isprintable()
    assert json.loads(text) == {"x": "\x1b]52;c;eA==\x07\u202e\x9b2J\x7f"}
