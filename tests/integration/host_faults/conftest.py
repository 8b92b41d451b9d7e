# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs for faults: made by the tests, each with a name and subnet of its own, gone afterwards."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sparklab import Lab, LabError

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
#: everything that a run could write by way of configuration; what changes by itself is left out
TREES = "/etc /usr/local/lib /var/lib/sparkthor-netplan"


@dataclass
class Run:
    """What one run of the playbook came to."""

    rc: int
    seconds: float
    output: str

    @property
    def changed(self) -> dict[str, int]:
        found = re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", self.output, re.MULTILINE)
        return {host: int(count) for host, count in found}


@dataclass
class Site:
    """A lab and the inventory it was made from."""

    lab: Lab
    inventory: Path

    @property
    def hosts(self) -> list[str]:
        return [host.name for host in self.lab.plan.hosts]

    def on(self, host: str, command: str, *, check: bool = True) -> str:
        return self.lab.exec(host, ["bash", "-c", command], check=check).stdout

    def command(self, *arguments: str, playbook: str = "host_layer.yml") -> list[str]:
        return [
            str(Path(sys.executable).with_name("ansible-playbook")),
            str(TOP / "playbooks" / playbook),
            f"--inventory={self.inventory}",
            f"--inventory={self.lab.folder / 'inventory.yml'}",
            *arguments,
        ]

    def environment(self) -> dict[str, str]:
        # molecule forces colours on, and these tests read the text
        plain = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}
        return {**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), **plain}

    def play(self, *arguments: str, playbook: str = "host_layer.yml", timeout: float = 400) -> Run:
        begun = time.monotonic()
        done = subprocess.run(
            self.command(*arguments, playbook=playbook),
            env=self.environment(),
            cwd=TOP,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Run(done.returncode, time.monotonic() - begun, done.stdout)

    def files(self) -> dict[str, str]:
        """One hash a host over names, modes and contents."""
        command = (
            f"find {TREES} -xdev \\( -type f -o -type l \\) -printf '%p %m %l\\n' 2>/dev/null | sort; "
            f"find {TREES} -xdev -type f -print0 2>/dev/null | sort -z | xargs -0 sha256sum"
        )
        return {host: self.on(host, command) for host in self.hosts}

    def netplan(self) -> dict[str, str]:
        return {host: self.on(host, "cd /etc/netplan && sha256sum *") for host in self.hosts}

    def live(self) -> dict[str, str]:
        """Addresses and MTU of every NIC; not its state, which a probe may leave for a moment."""
        command = 'ip -br -4 address show | awk \'{sub(/@.*/, "", $1); $2=""; print}\'; grep . /sys/class/net/*/mtu'
        return {host: self.on(host, command) for host in self.hosts}


class Maker:
    def __init__(self) -> None:
        self.sites: dict[str, Site] = {}

    def __call__(self, name: str, inventory: str, number: int, wiring: dict[str, Any] | None = None) -> Site:
        if name not in self.sites:
            folder = TOP / "inventories" / inventory
            try:
                Lab(name, TOP / ".lab").destroy()
            except LabError as error:  # it is not there, or creating it says what is wrong
                print(f"{name}: {error}")
            lab = Lab.create(
                [folder],
                home=TOP / ".lab",
                name=name,
                subnet=f"10.79.{number}.0/24",
                suite="trixie",
                wiring=wiring,
            )
            self.sites[name] = Site(lab, folder)
        return self.sites[name]


@pytest.fixture(scope="session")
def site() -> Iterator[Maker]:
    maker = Maker()
    yield maker
    for one in maker.sites.values():
        one.lab.destroy()


@pytest.fixture(scope="session")
def ring(site: Maker) -> Site:
    """Three virgin hosts, rightly cabled; every test leaves them as it found them."""
    return site("hf-ring", "3spark_ring", 10)
