# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an inventory alone can be wrong about stops a run before any host is spoken to; here there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.sites import TOP

SECONDS = 15


def refused(inventory: str, variables: dict[str, object], *options: str) -> str:
    begun = time.monotonic()
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("ansible-playbook")),
            str(TOP / "playbooks" / "host_layer.yml"),
            f"--inventory={TOP / 'inventories' / inventory}",
            f"--extra-vars={json.dumps(variables)}",
            *options,
        ],
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_FORCE_COLOR": "0",
        },
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    assert "Nothing was changed" in done.stdout
    assert "Gather facts about every host" not in done.stdout, "a host was spoken to"
    assert "Traceback" not in done.stdout + done.stderr
    assert time.monotonic() - begun <= SECONDS
    return done.stdout


OVERRIDE = {"enp1s0f0np0": "10.100.0.77/24"}


@pytest.mark.parametrize(
    ("inventory", "variables", "words"),
    [
        (
            "4spark",
            {"fabric_cidr": "10.100.0.0/29"},
            ("fabric_cidr", "10.100.0.0/29", "too small", "use a /28 or larger"),
        ),
        ("3spark_ring", {"fabric_cidr": "10.100.0.0/28"}, ("fabric_cidr", "too small", "use a /27 or larger")),
        (
            "3spark_ring",
            {"fabric_cidr": "192.168.0.0/16"},
            ("fabric_cidr", "overlaps the management network", "spark-01"),
        ),
        ("2spark", {"fabric_cidr": "fd00::/64"}, ("fabric_cidr", "fd00::/64", "IPv6")),
        ("2spark", {"fabric_cidr": "10.100.0.7/24"}, ("fabric_cidr", "host bits", "10.100.0.0/24")),
        ("2spark", {"fabric_cidr": "10.100.0.0"}, ("fabric_cidr", "not an IPv4 range")),
        ("2spark", {"fabric_cage": 2}, ("fabric_cage", "is 2", "cages 0 and 1")),
        ("2spark", {"fabric_mtu": 1279}, ("fabric_mtu", "1279", "from 1280 to 9216")),
        ("2spark", {"fabric_mtu": 9217}, ("fabric_mtu", "9217", "from 1280 to 9216")),
        ("2spark", {"fabric_topology": "ring"}, ("ring with 2 hosts", "for two hosts use direct")),
        ("3spark", {"fabric_topology": "direct"}, ("direct with 3 hosts", "use ring, line or switch")),
        (
            "2spark_2thor",
            {"fabric_topology": "switch", "fabric_cidr": "10.100.0.0/16"},
            ("thor-01", "no RDMA NIC", "lan"),
        ),
        ("2spark", {"ansible_host": "192.0.2.9"}, ("ansible_host", "spark-01 and spark-02", "192.0.2.9")),
        ("3spark_ring", {"fabric_overrides": OVERRIDE}, ("fabric_overrides", "10.100.0.77", "given twice")),
        ("2spark", {"fabric_topology": "mesh"}, ("fabric_topology", "mesh", "direct, ring, line, switch, lan")),
    ],
)
def test_stopped_before_any_host_is_spoken_to(
    inventory: str, variables: dict[str, object], words: tuple[str, ...]
) -> None:
    output = " ".join(refused(inventory, variables).split())
    for word in words:
        assert word in output, f"{word!r} is not in: {output}"


@pytest.mark.parametrize(("inventory", "forks"), [("3spark_ring", 2), ("2spark", 1)])
def test_too_few_forks_to_probe_cables_together(inventory: str, forks: int) -> None:
    assert f"forks: {forks} is less than" in refused(inventory, {}, f"--forks={forks}")
