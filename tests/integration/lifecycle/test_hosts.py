# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts over the years: three that serve, one more, one less, one replaced, another head, and nothing left at the end.

The lab is of this file alone, because it has to know its hosts before the first run.
"""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from sparklab import Lab, LabError

from tests.integration import virgin
from tests.integration.conftest import TOP
from tools.playbooks import Outcome, run_playbook

NAME = "life-hosts"
HOSTS = ["spark-01", "spark-02", "spark-03", "spark-04"]
#: the inventory's paths lead two folders up
INVENTORY = TOP / ".lab" / "life-inventory"
#: of all hosts, whoever is a member: what the lab is made from
MACHINES = TOP / ".lab" / "life-machines"
MODEL = "tiny-qwen3"


class Site:
    """The lab, and an inventory that tests edit as a person would."""

    def __init__(self) -> None:
        shutil.rmtree(INVENTORY, ignore_errors=True)
        shutil.copytree(TOP / "inventories/lab", INVENTORY)
        self.write(HOSTS)
        shutil.rmtree(MACHINES, ignore_errors=True)
        shutil.copytree(INVENTORY, MACHINES)
        self.lab = self.create()
        self.said: list[str] = []

    def create(self) -> Lab:
        """The lab, with what is missing of it."""
        return Lab.create([MACHINES], home=TOP / ".lab", name=NAME, subnet="10.79.16.0/24")

    def write(self, members: list[str], **variables: Any) -> None:
        """The inventory with these hosts, the head first, and a split over all of them."""
        self.members = members
        file, group = INVENTORY / "hosts.yml", INVENTORY / "group_vars/cluster.yml"
        tree = yaml.safe_load(file.read_text())
        children = tree["cluster"]["children"]
        children["ray_head"]["hosts"] = {members[0]: None}
        children["ray_workers"]["hosts"] = dict.fromkeys(members[1:])
        file.write_text(yaml.safe_dump(tree, sort_keys=False))
        given = {**yaml.safe_load(group.read_text()), "vllm_serve_pipeline_parallel_size": len(members), **variables}
        group.write_text(yaml.safe_dump(given, sort_keys=False))

    def play(self, playbook: str = "playbooks/site.yml", *arguments: str, ok: bool = True, **variables: Any) -> Outcome:
        self.said = []
        outcome = run_playbook(
            playbook,
            [INVENTORY, self.lab.folder / "inventory.yml"],
            extra_vars={"monitoring_enabled": True, **variables},
            arguments=list(arguments),
            name="lifecycle",
            say=lambda line: self.said.append(line.strip()),
        )
        print(f"{playbook} {' '.join(arguments)}: {outcome.seconds:.0f} s, rc {outcome.rc}", flush=True)
        if ok:
            assert outcome.rc == 0, outcome.failures
        return outcome

    def on(self, host: str, command: str) -> str:
        return self.lab.exec(host, ["bash", "-c", command]).stdout

    def secrets(self) -> list[str]:
        return [(self.lab.folder / "secrets" / name).read_text() for name in ("api_key", "ray_token")]

    def fabric(self, host: str) -> list[str]:
        # without the number of the other end, which is another machine's
        return self.on(
            host, "ip -br -4 address show scope global | sed -n 's/@if[0-9]*//; /10\\.100\\./p'"
        ).splitlines()

    def serves(self) -> None:
        """By a real completion, and with nothing left to do."""
        address = self.lab.plan.host(self.members[0]).address
        key = self.secrets()[0].strip()
        body = json.dumps({"model": MODEL, "prompt": "hello", "max_tokens": 4}).encode()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{address}:8000/v1/completions", body, headers)
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 4
        assert sum(self.play().changed.values()) == 0


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    try:
        Lab(NAME, TOP / ".lab").destroy()
    except LabError as error:  # it is not there
        print(error)
    made = Site()
    yield made
    made.lab.destroy()


@pytest.fixture(scope="module")
def before(site: Site) -> dict[str, virgin.Known]:
    """All hosts as they were before the first run."""
    return {host: virgin.of(lambda command, host=host: site.on(host, command)) for host in HOSTS}


def test_three_hosts_serve(site: Site, before: dict[str, virgin.Known]) -> None:
    assert set(before) == set(HOSTS)
    site.write(HOSTS[:3])
    site.play()
    site.play("playbooks/monitoring.yml")
    site.serves()


def test_one_more_moves_nobody(site: Site) -> None:
    addresses, secrets = {host: site.fabric(host) for host in HOSTS[:3]}, site.secrets()
    site.write(HOSTS)
    looked = site.play("playbooks/site.yml", "--check")
    assert sum(looked.changed.values()) > 0
    assert "spark-04 is added" in site.said
    site.play()
    assert any(line.startswith("serving stops once") for line in site.said)
    assert {host: site.fabric(host) for host in HOSTS[:3]} == addresses
    assert site.secrets() == secrets
    site.serves()


def test_one_less_leaves_its_place_free(site: Site, before: dict[str, virgin.Known]) -> None:
    gone, rest = HOSTS[1], [HOSTS[0], *HOSTS[2:]]
    addresses = {host: site.fabric(host) for host in rest}
    yes = {"teardown_parts": "all", "teardown_acknowledged": True}
    site.play("playbooks/stop.yml")
    site.play("playbooks/teardown.yml", "--limit", gone, **yes)
    after = virgin.of(lambda command: site.on(gone, command))
    assert virgin.differences(before[gone], after) == []
    # a split that needs the host that is gone is refused, and nothing is changed
    site.write(rest, vllm_serve_pipeline_parallel_size=4)
    refused = site.play(ok=False)
    assert refused.rc != 0
    assert len(refused.failures) == 1
    assert "vllm_serve_pipeline_parallel_size" in refused.failures[0]
    assert sum(refused.changed.values()) == 0
    site.write(rest, vllm_serve_pipeline_parallel_size=3, fabric_reserved=[2])
    site.play()
    assert any(line.startswith(f"{gone} leaves the cluster") for line in site.said)
    assert {host: site.fabric(host) for host in rest} == addresses
    site.serves()


def test_a_dead_host_is_replaced_by_a_virgin_one_of_its_name(site: Site, before: dict[str, virgin.Known]) -> None:
    dead = HOSTS[2]
    address, secrets = site.fabric(dead), site.secrets()
    key = (site.lab.folder / "hosts" / dead / "ssh_host_ed25519_key.pub").read_text()
    site.lab.off(dead)
    shutil.rmtree(site.lab.folder / "hosts" / dead)
    # known_hosts with the new key is what first_contact.yml would leave
    site.lab = site.create()
    assert (site.lab.folder / "hosts" / dead / "ssh_host_ed25519_key.pub").read_text() != key
    before[dead] = virgin.of(lambda command: site.on(dead, command))
    site.play()
    assert any(line.startswith(f"{dead} is another machine than before") for line in site.said)
    assert site.fabric(dead) == address
    assert site.secrets() == secrets
    site.serves()


def test_the_head_moves(site: Site) -> None:
    former, secrets = site.members[0], site.secrets()
    site.write([site.members[1], former, *site.members[2:]])
    site.play()
    assert any(line.startswith(f"the head moves from {former} to {site.members[0]}") for line in site.said)
    assert site.secrets() == secrets
    assert "sparkthor-front.service" not in site.on(former, "systemctl list-units --state=active --plain --no-legend")
    site.serves()


def test_a_reboot_in_order_serves_again(site: Site) -> None:
    boots = {host: site.lab.boot_id(host) for host in site.members}
    site.play("playbooks/reboot.yml", reboot_all=True)
    assert all(site.lab.boot_id(host) != boots[host] for host in site.members)
    site.serves()


def test_nothing_is_left(site: Site, before: dict[str, virgin.Known]) -> None:
    yes = {"teardown_parts": "all", "teardown_acknowledged": True}
    predicted = site.play("playbooks/teardown.yml", "--check", teardown_parts="all")
    taken = site.play("playbooks/teardown.yml", **yes)
    assert taken.changed == predicted.changed
    left = {
        host: virgin.differences(before[host], virgin.of(lambda command, host=host: site.on(host, command)))
        for host in site.members
    }
    assert left == {host: [] for host in site.members}
    assert sum(site.play("playbooks/teardown.yml", **yes).changed.values()) == 0
