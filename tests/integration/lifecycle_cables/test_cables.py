# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pair on one cable that moves behind a switch, to the other cage, and then to both: one variable, and site.yml."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.integration.lifecycle.edited_site import Site

HOSTS = ["spark-01", "spark-02"]
#: the lab's inventory plans TP=2 for a pair
SPLIT = {"vllm_serve_tensor_parallel_size": 1}
#: which starts of the engine these are
STARTED = "systemctl show -p InvocationID sparkthor-ray.service sparkthor-vllm.service"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Site("life-cables", "lab_direct", HOSTS, "10.79.17.0/24")
    yield made
    made.lab.destroy()


def test_a_pair_on_one_cable_serves(site: Site) -> None:
    site.write(HOSTS, **SPLIT)
    site.play()
    site.serves()


@pytest.mark.parametrize(
    "change",
    [{"fabric_topology": "switch"}, {"fabric_topology": "switch", "fabric_cage": 0}],
    ids=["a switch", "the other cage"],
)
def test_other_cables_keep_addresses_and_secrets(site: Site, change: dict[str, object]) -> None:
    addresses, secrets = {host: site.addresses(host) for host in HOSTS}, site.secrets()
    site.write(HOSTS, **SPLIT, **change)
    if "fabric_cage" in change:
        # the plan and the cables do not agree yet
        early = site.play(ok=False)
        assert early.rc != 0
        assert sum(early.changed.values()) == 0
        assert all("fabric_cage" in text for text in early.failures), early.failures
    else:
        # a pair's cable is what a switch of two ports would be
        site.play("playbooks/site.yml", "--check")
    site.cable()
    site.play()
    assert any(line.startswith("serving stops once") for line in site.said)
    assert {host: site.addresses(host) for host in HOSTS} == addresses
    assert site.secrets() == secrets
    site.serves()


def test_a_second_cable_joins_and_serving_goes_on_without_the_first(site: Site) -> None:
    addresses = {host: site.addresses(host) for host in HOSTS}
    # the hosts reach each other over the LAN now, where keys go by TLS
    site.write(HOSTS, **SPLIT, fabric_topology="direct", fabric_cages=[0, 1], vllm_serve_tls="off")
    site.cable()
    site.play()
    for host in HOSTS:
        # the same addresses in halves of the former ranges
        kept, now = ({address.split("/")[0] for address in given} for given in (addresses[host], site.addresses(host)))
        assert len(now) == 4
        assert kept < now
    site.serves()
    started = {host: site.on(host, STARTED) for host in HOSTS}
    cable = ("enp1s0f0np0", "enP2p1s0f0np0")
    site.lab.cut("spark-02", *cable)
    try:
        # longer than NCCL, Gloo or Ray wait for a peer that is gone
        end = time.monotonic() + 90
        while time.monotonic() < end:
            site.completes()
        told = " ".join(site.play("playbooks/status.yml", ok=False).output.split())
        assert told.count("one of two cables is lost: of cage 0") == len(HOSTS), told
        assert {host: site.on(host, STARTED) for host in HOSTS} == started
    finally:
        site.lab.fix("spark-02", *cable)
    site.serves()
    assert {host: site.on(host, STARTED) for host in HOSTS} == started
