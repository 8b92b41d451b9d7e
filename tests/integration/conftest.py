# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests on a converged lab share.  A molecule scenario names its lab by SPARKLAB_NAME and its inventory by
SPARKLAB_INVENTORY before it runs them in its verify step."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from sparklab import Lab

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())


@dataclass
class Cluster:
    """A lab with the inventories it was converged by."""

    lab: Lab
    inventories: list[Path]
    head: str
    hosts: list[str]
    addresses: dict[str, str]

    def run(self, host: str, command: str, *, check: bool = True, timeout: float = 120) -> str:
        """Standard output of a shell line on a host, as root, without ssh."""
        done = subprocess.run(
            self.lab.enter_command(host, ["bash", "-c", command]),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{host}: {shlex.quote(command)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    @property
    def endpoint(self) -> str:
        return f"http://{self.addresses[self.head]}:8000"

    @property
    def secrets(self) -> Path:
        """The folder of this lab's secrets on the controller."""
        return self.lab.folder / "secrets"

    def secret(self, name: str) -> str:
        return (self.secrets / name).read_text(encoding="utf-8").strip()

    @property
    def api_key(self) -> str:
        return self.secret("api_key")


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    name = os.environ["SPARKLAB_NAME"]
    inventory = TOP / "inventories" / os.environ.get("SPARKLAB_INVENTORY", "lab_tiny")
    lab = Lab(name, home=TOP / ".lab")
    rows = lab.status()
    hosts = [row["host"] for row in rows]
    return Cluster(
        lab=lab,
        inventories=[inventory, TOP / ".lab" / name / "inventory.yml"],
        head=hosts[0],
        hosts=hosts,
        addresses={row["host"]: row["address"] for row in rows},
    )
