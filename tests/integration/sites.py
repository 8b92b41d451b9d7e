# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs that tests make for themselves, each with a name and subnet of its own, and what happens on their hosts."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_interface
from pathlib import Path
from typing import Any

from sparklab import Lab, LabError

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
#: everything that a run could write by way of configuration; what changes by itself is left out
TREES = "/etc /usr/local/lib /var/lib/sparkthor-netplan"
ARMED = "/var/lib/sparkthor-netplan/plan.json"

#: somebody else acts on a host as soon as a condition holds there
WATCHER = """
rm -f /run/somebody-acted
systemd-run --quiet --collect --unit=somebody /bin/bash -c '
  for _ in $(seq 2400); do {condition} && break; sleep 0.05; done
  umask 077
  {action}
  touch /run/somebody-acted'
"""


@dataclass
class Run:
    """What one run of the playbook came to."""

    rc: int
    seconds: float
    output: str

    @property
    def changed(self) -> dict[str, int]:
        """How many tasks changed each host; the controller's own plays only ask."""
        counts = re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", self.output, re.MULTILINE)
        return {host: int(count) for host, count in counts if host != "localhost"}


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

    def __call__(self, name: str, inventory: str, number: int, **given: Any) -> Site:
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
                **{"suite": "trixie", **given},
            )
            self.sites[name] = Site(lab, folder)
        return self.sites[name]

    def destroy(self) -> None:
        for one in self.sites.values():
            one.lab.destroy()


def within(seconds: float, holds: Callable[[], bool]) -> float:
    begun = time.monotonic()
    while not holds():
        assert time.monotonic() - begun < seconds, f"not within {seconds} s"
        time.sleep(0.5)
    return time.monotonic() - begun


def answers(site, host: str) -> bool:
    """Whether somebody can log in on the host's own management address."""
    done = subprocess.run(site.lab.ssh_command(host, ["true"]), capture_output=True, timeout=60, check=False)
    return done.returncode == 0


def armed(site) -> list[str]:
    return [host for host in site.hosts if site.on(host, f"test -e {ARMED} && echo yes", check=False)]


def lost_pings(site, payload: int) -> list[str]:
    """Ways on which a do-not-fragment ping of this size, bound to its NIC, does not come back.

    What hangs on a switch is joined with the others of its subnet there.
    """

    def addresses(host: str) -> dict[str, str]:
        links = [link for link in json.loads(site.on(host, "ip -json -4 address show")) if link.get("addr_info")]
        return {link["ifname"]: "{local}/{prefixlen}".format_map(link["addr_info"][0]) for link in links}

    where = {host: addresses(host) for host in site.hosts}
    lost, pings = [], {host: [] for host in site.hosts}
    for segment in site.lab.plan.segments:
        for (host, netdev), (peer, peer_netdev) in itertools.permutations(segment.ends, 2):
            here, there = where[host].get(netdev), where[peer].get(peer_netdev)
            apart = here and there and ip_interface(here).network != ip_interface(there).network
            if apart and segment.kind == "switch":
                continue
            way = f"{host} {netdev} to {peer} {peer_netdev}"
            if not there:
                lost.append(way)
                continue
            ping = f"ping -q -n -c 1 -W 2 -M do -s {payload} -I {netdev} {there.partition('/')[0]}"
            pings[host].append(f"{ping} >/dev/null 2>&1 || echo '{way}'")
    return lost + [way for host, lines in pings.items() for way in site.on(host, "\n".join(lines)).splitlines()]
