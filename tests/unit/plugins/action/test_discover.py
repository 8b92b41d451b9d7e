# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine says of itself reaches neither the inventory nor the terminal as anything but text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PLAY = """
- hosts: discovered
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact:
        nodes: {ansible_facts: {sparkthor_node: "{{ told[inventory_hostname] }}"}}
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - sparkthor.cluster.discover: {stage: propose, nodes: nodes, neighbours: seen, inventory: "FOLDER"}
"""


def node(number: int, hostname: str, **more: Any) -> dict[str, Any]:
    address = f"192.168.1.{number}"
    return {
        "hostname": hostname,
        "boot_id": f"boot-{number}",
        "kind": "thor",
        "product": "",
        "gpu_names": [],
        "interfaces": [],
        "routes": [],
        "management": {"netdev": "eth0", "address": address, "cidr": f"{address}/24"},
        **more,
    }


def propose(
    folder: Path, user: str, *nodes: dict[str, Any], check: bool = False, **more: str
) -> subprocess.CompletedProcess[str]:
    told = {item["management"]["address"]: item for item in nodes}
    (folder / "vars.json").write_text(json.dumps({"told": told, **more}))
    (folder / "play.yml").write_text(PLAY.replace("FOLDER", str(folder / "new")))
    hosts = "\n".join(told)
    (folder / "hosts").write_text(f"[discovered]\n{hosts}\n")
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    words = [
        program,
        "-i",
        str(folder / "hosts"),
        "-c",
        "local",
        str(folder / "play.yml"),
        "-e",
        f"@{folder}/vars.json",
    ]
    words += ["--check"] if check else []
    return subprocess.run([*words, "-u", user], capture_output=True, text=True, check=False)


def on_screen(done: subprocess.CompletedProcess[str]) -> str:
    text = done.stdout + done.stderr
    assert text.replace("\n", "").replace("\ufffd", "").isprintable()
    return text


def test_a_sound_proposal_is_written(tmp_path: Path) -> None:
    done = propose(tmp_path, "nvidia", node(11, "thor-1"), node(12, "thor-2", product="\x1b]52;c;eA==\x07AGX\u202e"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "AGX\ufffd" in on_screen(done)
    assert "thor-2" in (tmp_path / "new" / "hosts.yml").read_text()


def test_the_picture_is_there_before_the_inventory(tmp_path: Path) -> None:
    machines = (node(11, "thor-1"), node(12, "thor-2"))
    checked = propose(tmp_path, "nvidia", *machines, check=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert not list(tmp_path.glob("new*"))
    # nothing can be made below a file: the picture is there, the inventory is not
    (tmp_path / "new").write_text("")
    assert propose(tmp_path, "nvidia", *machines).returncode != 0
    drawn = tmp_path / "new-cables.html"
    text = drawn.read_text()
    assert "<svg" in text
    assert all(name in text for name in ("thor-1", "thor-2", "192.168.1.12", "eth0"))
    # the next run draws it anew
    drawn.write_text(text.replace("thor-1", "thor-9"))
    (tmp_path / "new").unlink()
    done = propose(tmp_path, "nvidia", *machines)
    shown = on_screen(done)
    assert done.returncode == 0, shown
    assert drawn.read_text() == text
    assert shown.index(f"picture of what is cabled: {drawn}") < shown.index(f"written to {tmp_path}/new")
    # what somebody else put there is kept, and the folder stays as it is
    (tmp_path / "new").rename(tmp_path / "kept")
    drawn.write_text("<html>somebody's own</html>")
    again = propose(tmp_path, "nvidia", *machines)
    assert again.returncode != 0
    assert "new-cables.html is there already, and is not overwritten" in again.stdout + again.stderr
    assert not (tmp_path / "new").exists()
    assert drawn.read_text() == "<html>somebody's own</html>"


@pytest.mark.parametrize(
    "name",
    [
        "a:\n      vars: {x: \"{{ lookup('pipe', 'id') }}\"}\n    b",
        "\x1b]52;c;eA==\x07\x1b[?1049ha\u202e",
        "all",
        "a_b",
    ],
)
def test_a_hostile_name_ends_it_with_the_machines_address(tmp_path: Path, name: str) -> None:
    done = propose(tmp_path, "nvidia", node(11, "thor-1"), node(12, name))
    assert done.returncode != 0
    text = on_screen(done)
    assert "Nothing was changed: one problem to fix first" in text
    assert "host 192.168.1.12: hostname: " in text
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("user", ["{{ 7 * 6 }}", "a b", "-oProxyCommand=id", "a\nb"])
def test_a_user_that_is_none_is_not_written(tmp_path: Path, user: str) -> None:
    done = propose(tmp_path, "nvidia", node(11, "thor-1"), ansible_user=user)
    assert done.returncode != 0
    assert "is no user name that can be written into an inventory" in on_screen(done)
    assert not (tmp_path / "new").exists()
