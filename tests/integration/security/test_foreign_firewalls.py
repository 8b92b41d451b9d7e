# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The distribution's own firewalls beside ours: whatever they flush, load or reload, the host is closed afterwards.

A small lab of its own, because only this needs their packages.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sparklab import Lab, LabError

from tests.integration.conftest import TOP
from tests.integration.scan import tcp_ports

from .test_firewall import AWAY, TABLE

NAME = "mol-firewall"
HOST = "spark-01"
#: a stranger's port that somebody left open behind the firewall
PORT = 6379
#: what Docker does with its own chains when it starts
DOCKER = (
    "for table in filter nat; do iptables -t $table -F; iptables -t $table -X; iptables -t $table -N DOCKER;"
    " iptables -t $table -A DOCKER -j RETURN; done; iptables -P FORWARD DROP; iptables -A FORWARD -j DOCKER;"
    " iptables -I INPUT -j ACCEPT"
)
#: in this order: ufw and firewalld are not meant to run at the same time
ATTACKS = (
    "ufw allow 22/tcp && ufw --force enable",
    "ufw allow 6379/tcp",
    "systemctl restart ufw",
    "ufw reload",
    "ufw --force reset",
    "systemctl start firewalld",
    "firewall-cmd --zone=public --add-port=6379/tcp",
    "firewall-cmd --reload",
    "firewall-cmd --complete-reload",
    "systemctl restart firewalld",
    "systemctl stop firewalld",
    DOCKER,
)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    inventory = TOP / "inventories" / "2spark"
    try:
        Lab(NAME, TOP / ".lab").destroy()
    except LabError as error:  # it is not there, or creating it says what is wrong
        print(f"{NAME}: {error}")
    made = Lab.create(
        [inventory], home=TOP / ".lab", name=NAME, subnet="10.79.51.0/24", suite="trixie", layers=["firewalls"]
    )
    try:
        subprocess.run(
            [
                Path(sys.executable).with_name("ansible-playbook"),
                TOP / "playbooks/host_layer.yml",
                *(f"--inventory={item}" for item in (inventory, made.folder / "inventory.yml")),
            ],
            env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg")},
            cwd=TOP,
            timeout=600,
            check=True,
        )
        listener = f"systemd-run --unit=open-door python3 -m http.server {PORT}"
        made.exec(HOST, ["bash", "-c", listener])
        yield made
    finally:
        made.destroy()


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_host_is_closed_after_it(lab: Lab, attack: str) -> None:
    text = lab.exec(HOST, ["bash", "-c", AWAY.format(table=TABLE, attack=attack)]).stdout
    print(f"\nclosed again {text.strip()} ms after {attack}", end="", flush=True)
    address = {row["host"]: row["address"] for row in lab.status()}[HOST]
    assert tcp_ports(address, [PORT]) == []
    # the door is there: it is the firewall that is closed
    asked = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://127.0.0.1:{PORT}/"]
    assert lab.exec(HOST, asked).stdout == "200"
