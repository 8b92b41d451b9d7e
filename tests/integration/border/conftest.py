# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller without an ansible.cfg, and hosts that are folders of it: their Python answers what a test wants.

No module runs anywhere, so the hosts change nothing on this machine, whatever is played.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.assumed import assumed_node

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
LIAR = Path(__file__).with_name("liar.py")


def node(number: int, **more: Any) -> dict[str, Any]:
    """The fact ``sparkthor_node`` of a machine on a LAN."""
    address = f"192.0.2.{10 + number}"
    told = [{"address": f"{address}/24", "family": "inet", "scope": "global", "dynamic": False}]
    nic = {"name": "eth0", "mac": f"02:00:00:00:00:{number:02x}", "mtu": 1500, "max_mtu": 9000, "up": True}
    nic |= {"carrier": True, "operstate": "up", "kind": "", "master": "", "addresses": told, "phys_port_name": ""}
    programs = dict.fromkeys(("earlyoom", "keepalived", "netplan", "nmcli", "nvidia-smi", "nginx_js", "uv"), "")
    return {
        **assumed_node("generic", number, address),
        "assumed": False,
        "hostname": f"host-{number}",
        "hostname_on_loopback": True,
        "boot_id": f"4456562a-5131-462e-9162-dc795a22a57{number}",
        "os": {
            "id": "ubuntu",
            "version": "24.04",
            "codename": "noble",
            "pretty": "Ubuntu 24.04",
            "dgx": "",
            "tegra": "",
        },
        "kernel": "6.8.0",
        "reboot": "",
        "python": {"version": "3.12.3", "tag": "cp312", "platform": "linux_x86_64"},
        "glibc": "2.39",
        "serving": False,
        "beside": [],
        "driver": "",
        "interfaces": [{**nic, "phys_switch_id": "", "speed": "1000", "virtual": False}],
        "binaries": programs | {"apt-get": "/usr/bin/apt-get", "nft": "/usr/sbin/nft", "nginx": "/usr/sbin/nginx"},
        "toolchain": {"cc": "/usr/bin/cc", "python_headers": True, "nvcc": "", "cuda": ""},
        "declared": {},
        "models": {},
        "hub_models": {},
        "time": {"synchronized": True},
        "clock": time.time(),
        **more,
    }


class Border:
    """A home with an inventory of hosts that lie."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.hosts: dict[str, Path] = {}
        (home / "inventory").mkdir()

    def inventory(self, hosts: Mapping[str, Mapping[str, Any]], **variables: Any) -> None:
        """Hosts with their variables; the first one is the head, and ``variables`` are those of all."""
        rows = {}
        for name, host_variables in hosts.items():
            folder = self.hosts[name] = self.home / "hosts" / name
            folder.mkdir(parents=True, exist_ok=True)
            python = folder / "python"
            python.write_text(f'#!/bin/sh\nexec {sys.executable} -I {LIAR} {folder}/answers "$@"\n')
            python.chmod(0o755)
            self.answers(name, {})
            rows[name] = {
                "ansible_python_interpreter": str(python),
                "ansible_connection": "local",
                "ansible_remote_tmp": str(folder / "tmp"),
                "ansible_become": False,
                **host_variables,
            }
        head, *workers = rows
        document = {
            "cluster": {
                "vars": variables,
                "children": {
                    "ray_head": {"hosts": {head: rows[head]}},
                    "ray_workers": {"hosts": {name: rows[name] for name in workers}},
                },
            }
        }
        (self.home / "inventory" / "hosts.yml").write_text(yaml.safe_dump(document), encoding="utf-8")

    def answers(self, host: str, said: Mapping[str, Any]) -> None:
        (self.hosts[host] / "answers.json").write_text(json.dumps(said), encoding="utf-8")
        (self.hosts[host] / "asked.jsonl").write_text("")

    def asked(self, host: str, module: str) -> list[dict[str, Any]]:
        """The arguments of every call of a module on a host."""
        lines = (self.hosts[host] / "asked.jsonl").read_text(encoding="utf-8").splitlines()
        return [call["arguments"] for call in map(json.loads, lines) if call["module"] == module]

    def play(self, playbook: str | Path, *arguments: str, watched: tuple[str, ...] = ("nothing",)) -> str:
        """The output of a run with Ansible's default configuration. What is watched is in :meth:`variables` then."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        done = subprocess.run(
            [
                str(Path(sys.executable).with_name("ansible-playbook")),
                str(playbook),
                f"--inventory={self.home / 'inventory'}",
                *arguments,
            ],
            cwd=self.home,
            env={
                **kept,
                "HOME": str(self.home),
                "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_CALLBACK_PLUGINS": str(TOP / "tests/integration/callback_plugins"),
                "ANSIBLE_CALLBACKS_ENABLED": "record_variables",
                "SPARKTHOR_VARIABLES": str(self.home / "variables.json"),
                "SPARKTHOR_VARIABLES_NAMES": ",".join(watched),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
        )
        return done.stdout.decode("utf-8", "surrogateescape")

    def variables(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = json.loads((self.home / "variables.json").read_text(encoding="utf-8"))
        return found

    def sent(self, text: bytes) -> list[str]:
        """Files of any host that hold these bytes."""
        found = []
        for folder in self.hosts.values():
            for path in folder.rglob("*"):
                if path.is_file() and text in path.read_bytes():
                    found.append(str(path))
        return found


@pytest.fixture
def border(tmp_path: Path) -> Border:
    return Border(tmp_path)
