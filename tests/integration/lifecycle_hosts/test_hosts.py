# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts over the years: three that serve, one more, one less, one replaced, another head, and nothing left at the end.

The lab is of this file alone, because it has to know its hosts before the first run.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.integration import virgin
from tests.integration.lifecycle.edited_site import Site

HOSTS = ["spark-01", "spark-02", "spark-03", "spark-04"]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Site("life-hosts", "lab_tiny", HOSTS, "10.79.16.0/24")
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
