# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that nobody has written down: met, found, and deployed by the inventory that discovery writes, unchanged."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from sparklab import Lab, LabError

from tests.integration.sites import TOP, Run, Site

PASSWORD = "of-simulated-hosts-alone"
HALVES = {0: ("enp1s0f0np0", "enP2p1s0f0np0"), 1: ("enp1s0f1np1", "enP2p1s0f1np1")}


def joined(kind: str, *bunches: dict[str, int]) -> dict[str, Any]:
    """A wiring: each bunch of host and cage is a cable, or a switch, for both halves."""
    return {
        kind: [[f"{host}:{HALVES[cage][half]}" for host, cage in bunch.items()] for bunch in bunches for half in (0, 1)]
    }


PAIR = joined("cables", {"spark-01": 1, "spark-02": 0})
RING = joined("cables", {"spark-01": 0, "spark-03": 1}, {"spark-03": 0, "spark-02": 1}, {"spark-02": 0, "spark-01": 1})
SWITCH = joined("switches", {"spark-01": 1, "spark-02": 0, "spark-03": 1, "spark-04": 1})


class Unknown(Site):
    """A lab of which the controller knows nothing but the range that its hosts are in."""

    def meet(self, folder: Path, **fingerprints: str) -> Run:
        """The first contact, by password."""
        key = folder / "id_ed25519"
        if not key.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        given = {
            "discover_addresses": self.addresses,
            "first_contact_key": f"{key}.pub",
            "first_contact_known_hosts": str(folder / "known_hosts"),
            "first_contact_fingerprints": fingerprints or self.fingerprints(),
            "ansible_password": PASSWORD,
        }
        return self.ask("first_contact.yml", folder, given, "--ssh-common-args", "-F /dev/null -o IdentitiesOnly=yes")

    def ssh(self, folder: Path) -> str:
        return f"-F /dev/null -o UserKnownHostsFile={folder / 'known_hosts'} -o IdentitiesOnly=yes"

    @property
    def addresses(self) -> list[str]:
        return [host.address for host in self.lab.plan.hosts]

    def fingerprints(self) -> dict[str, str]:
        """What each machine shows of itself on its own screen."""
        show = "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"
        return {host.address: self.on(host.name, show).split()[1] for host in self.lab.plan.hosts}

    def discover(self, folder: Path, *options: str, **given: Any) -> Run:
        key = ["--private-key", str(folder / "id_ed25519"), "--ssh-common-args", self.ssh(folder)]
        return self.ask("discover.yml", folder, {"discover_addresses": self.addresses, **given}, *key, *options)

    def ask(self, playbook: str, folder: Path, given: dict[str, Any], *options: str) -> Run:
        command = self.command("--user", "nvidia", f"--extra-vars={json.dumps(given)}", *options, playbook=playbook)
        words = [word for word in command if not word.startswith("--inventory=")]
        done = subprocess.run(
            words, env=self.environment(), cwd=TOP, capture_output=True, text=True, timeout=300, check=False
        )
        assert PASSWORD not in done.stdout + done.stderr
        return Run(done.returncode, 0, done.stdout + done.stderr)


def made(folder: Path, name: str, number: int, hosts: dict[str, str], wiring: dict[str, Any]) -> Unknown:
    inventory = folder / "lab.yml"
    first, *others = ({host: {"lab_kind": kind}} for host, kind in hosts.items())
    workers = {host: variables for one in others for host, variables in one.items()}
    groups = {"ray_head": {"hosts": first}, "ray_workers": {"hosts": workers}}
    inventory.write_text(yaml.safe_dump({"cluster": {"vars": {"fabric_topology": "lan"}, "children": groups}}))
    try:
        Lab(name, TOP / ".lab").destroy()
    except LabError as error:  # it is not there
        print(f"{name}: {error}")
    lab = Lab.create(
        [inventory], home=TOP / ".lab", name=name, subnet=f"10.79.{number}.0/24", suite="trixie", wiring=wiring
    )
    site = Unknown(lab, inventory)
    for host in site.hosts:
        site.on(host, f"echo nvidia:{PASSWORD} | chpasswd")
    return site


@pytest.fixture
def unknown(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Unknown]:
    site = made(tmp_path, *request.param)
    yield site
    site.lab.destroy()


def sparks(count: int) -> dict[str, str]:
    return {f"spark-0{number}": "spark" for number in range(1, count + 1)}


@pytest.mark.parametrize(
    ("unknown", "expected"),
    [
        pytest.param(
            ("disc-pair", 31, sparks(2), PAIR), {"fabric_topology": "direct", "cages": {"spark-01": 1, "spark-02": 0}}
        ),
        pytest.param(("disc-ring", 32, sparks(3), RING), {"fabric_topology": "ring", "cages": {}}),
        pytest.param(
            ("disc-switch", 33, {**sparks(4), "thor-01": "thor"}, SWITCH),
            {"fabric_topology": "switch", "cages": {"spark-01": 1, "spark-02": 0, "spark-03": 1, "spark-04": 1}},
        ),
    ],
    ids=["pair", "ring", "switch"],
    indirect=["unknown"],
)
def test_found_and_deployed(unknown: Unknown, expected: dict[str, Any], tmp_path: Path) -> None:
    stranger = unknown.discover(tmp_path)
    assert stranger.rc != 0
    assert "its host key is not known here yet" in stranger.output

    files = unknown.files()
    refused = unknown.meet(tmp_path, **{unknown.addresses[0]: "SHA256:somebody-else"})
    assert "first_contact_fingerprints says SHA256:somebody-else" in refused.output
    assert unknown.files() == files
    met = unknown.meet(tmp_path)
    assert met.rc == 0, met.output
    again = unknown.meet(tmp_path)
    assert set(again.changed.values()) == {0}, again.output

    folder = tmp_path / "found"
    looked = unknown.discover(tmp_path, "--check", discover_inventory=str(folder))
    assert looked.rc == 0, looked.output
    assert not folder.exists()
    found = unknown.discover(tmp_path, discover_inventory=str(folder))
    assert found.rc == 0, found.output
    print(re.search(r"^  ADDRESS(?:.*\n)+?\n", found.output, re.MULTILINE)[0])
    assert unknown.files() == files
    variables = yaml.safe_load((folder / "group_vars/cluster.yml").read_text())
    hosts = yaml.safe_load((folder / "hosts.yml").read_text())
    children = hosts["cluster"]["children"]
    named = {**children["ray_head"]["hosts"], **children["ray_workers"]["hosts"]}
    assert variables["fabric_topology"] == expected["fabric_topology"]
    assert {host: own["fabric_cage"] for host, own in named.items() if "fabric_cage" in own} == expected["cages"]
    assert "thors" not in hosts

    refused = unknown.discover(tmp_path, discover_inventory=str(folder))
    assert "is not overwritten" in refused.output

    unknown.inventory = folder
    deployed = unknown.play()
    assert deployed.rc == 0, deployed.output
    second = unknown.play()
    assert second.rc == 0, second.output
    assert set(second.changed.values()) == {0}, second.output
