# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ray cannot run with stops the play with a message before any unit of any host is touched."""

from __future__ import annotations

import json

import pytest

from tests.integration.ray.conftest import assert_members

#: so that there is something to restart, which must not happen
CHANGE = {"ray_node_ports": {"metrics_export": 6395}}
METADATA = "/opt/sparkthor/venv/lib/python3.11/site-packages/ray-2.60.0.dist-info/METADATA"


@pytest.fixture
def untouched(three):
    """The cluster serves on as it was, whatever the test did; afterwards it is set right by an ordinary run."""
    three.healthy()
    units, nodes = three.units(), three.node_ids()
    yield three
    assert three.units() == units
    answer = three.healthy(60)
    assert_members(three, answer)
    assert three.node_ids() == nodes


def refused(site, *words: str, **variables) -> str:
    run = site.ray("--extra-vars", json.dumps(variables))
    assert run.rc != 0, run.output
    for word in words:
        assert word in run.output, run.output
    assert "Start Ray" not in run.output
    return run.output


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"ray_node_ports": {"gcs": 6380}}, "port 6380 is wanted by ray_node_ports.gcs and by"),
        ({"ray_node_ports": {"gcs": 29501}}, "vllm_serve_master_port"),
        ({"ray_node_ports": {"gcs": 20500}}, "lies inside the worker range 20000-20999"),
        ({"ray_node_worker_port_max": 20010}, "holds 11 ports"),
        ({"ray_node_object_store_memory": 1 << 50}, "is more than the"),
        ({"ray_node_object_store_memory": 1000}, "less than Ray's minimum"),
    ],
)
def test_settings_that_cannot_work(untouched, variables, words):
    refused(untouched, "Ray was not touched", words, **variables)


def test_a_foreign_program_on_a_port(three):
    """Before the first start as well as before a restart: who holds the port is named."""
    worker = three.workers[1]
    three.healthy()
    units = three.units()
    three.on(worker, "systemd-run --collect --unit=squatter python3 -m http.server 6395")
    try:
        three.on(
            worker, "for i in $(seq 50); do ss -ltnH 'sport = :6395' | grep -q . && exit 0; sleep 0.2; done; exit 1"
        )
        refused(three, worker, "port 6395 (ray_node_ports.metrics_export) is taken by", "http.server", **CHANGE)
        assert three.units() == units
        assert three.healthy(60)["healthy"]
    finally:
        three.on(worker, "systemctl stop squatter")
    # what was owed is made up for: nothing of the failed run is lost, and the cluster is of one mind
    fixed = three.ray("--extra-vars", json.dumps(CHANGE))
    assert fixed.rc == 0, fixed.output
    assert_members(three, three.healthy())
    assert three.units() != units
    back = three.ray()
    assert back.rc == 0, back.output
    assert_members(three, three.healthy())


def test_versions_that_differ_are_a_table(untouched):
    worker = untouched.workers[1]
    untouched.on(worker, f"cp {METADATA} /run/metadata; sed -i 's/^Version: .*/Version: 2.59.0/' {METADATA}")
    try:
        said = refused(untouched, "Ray was not touched", **CHANGE)
    finally:
        untouched.on(worker, f"cat /run/metadata >{METADATA}")
    for host in untouched.hosts:
        assert f"{host}  {'2.59.0' if host == worker else '2.60.0'}" in said, said
    refused_nothing = untouched.ray("--check")
    assert refused_nothing.rc == 0, refused_nothing.output


def test_a_ray_that_is_too_old(untouched):
    for host in untouched.hosts:
        untouched.on(host, f"cp {METADATA} /run/metadata; sed -i 's/^Version: .*/Version: 2.53.1/' {METADATA}")
    try:
        refused(untouched, "Ray 2.53.1 is older than 2.54", **CHANGE)
    finally:
        for host in untouched.hosts:
            untouched.on(host, f"cat /run/metadata >{METADATA}")


@pytest.mark.parametrize(
    ("fault", "fix", "words"),
    [
        # somebody's route that swallows the head: preflight names it, before Ray's own check does
        (
            "ip route add unreachable {head}/32",
            "ip route del unreachable {head}/32",
            "{head}",
        ),
        (
            "ip address del {own}/{prefix} dev {nic}",
            "ip address add {own}/{prefix} dev {nic}",
            "{own} is on no interface",
        ),
    ],
)
def test_a_control_address_that_cannot_be_reached(three, fault, fix, words):
    """ssh goes over the management network, so the play gets there."""
    worker = three.workers[1]
    three.healthy()
    units = three.units()
    own, nic = three.control(worker), three.fabric_nic(worker)
    prefix = three.on(worker, f"ip -br -4 address show to {own}").split("/")[-1].strip()
    names = {"head": three.control(three.head), "own": own, "nic": nic, "prefix": prefix}
    three.on(worker, fault.format(**names))
    try:
        refused(three, worker, words.format(**names), **CHANGE)
        for host in (three.head, three.workers[0]):
            assert three.units()[host] == units[host]
    finally:
        three.on(worker, fix.format(**names))
    three.healthy()
    back = three.ray()
    assert back.rc == 0, back.output
    assert_members(three, three.healthy())


def test_an_object_store_larger_than_what_is_free(three):
    """Before a first start: no Ray runs there, so what is free is what it would get."""
    worker = three.workers[1]
    three.healthy()
    three.on(worker, "systemctl stop sparkthor-ray")
    three.lab.memory(worker, 512)
    units = three.units()
    try:
        refused(three, worker, "1,024 MiB is more than the 512 MiB that are free on this host")
        assert three.units() == units
    finally:
        three.lab.memory(worker, 100000)
    back = three.ray()
    assert back.rc == 0, back.output
    assert_members(three, three.healthy())
