# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from sparklab import inventory
from sparklab.inventory import default_name, interpret, members
from sparklab.plan import Wish
from sparklab.system import LabError


def data(hostvars: dict[str, dict[str, object]] | None = None, **groups: dict[str, list[str]]):
    return {
        "_meta": {"hostvars": hostvars or {}},
        "cluster": {"children": ["ray_workers", "ray_head"]},
        "ray_head": {"hosts": ["spark-09"]},
        "ray_workers": {"hosts": ["spark-02", "spark-01"]},
        **groups,
    }


def test_the_head_is_first_and_workers_keep_their_order():
    assert members(data(), "cluster") == ["spark-09", "spark-02", "spark-01"]


def test_hosts_in_two_groups_are_there_once():
    both = data(cluster={"children": ["ray_head", "ray_workers"], "hosts": ["spark-01", "other"]})
    assert members(both, "cluster") == ["spark-09", "spark-02", "spark-01", "other"]


def test_kinds_by_group_and_by_variable():
    request = interpret(data({"spark-01": {"lab_kind": "spark"}}, thors={"hosts": ["spark-01", "spark-02"]}))
    assert request.wishes == (Wish("spark-09"), Wish("spark-02", "thor"), Wish("spark-01"))


def test_lab_variables():
    variables = {
        "lab_name": "mine",
        "lab_subnet": "10.1.0.0/24",
        "lab_suite": "trixie",
        "lab_disk": "4G",
        "fabric_topology": "ring",
        "fabric_cage": 0,
    }
    addresses = {"spark-09": "10.1.0.9", "spark-02": "10.1.0.2", "spark-01": "10.1.0.1"}
    request = interpret(data({host: {**variables, "ansible_host": address} for host, address in addresses.items()}))
    assert (request.name, request.subnet, request.suite, request.disk) == ("mine", "10.1.0.0/24", "trixie", "4G")
    assert (request.topology, request.cage) == ("ring", 0)
    assert [wish.address for wish in request.wishes] == ["10.1.0.9", "10.1.0.2", "10.1.0.1"]


def test_hosts_may_have_their_cable_in_different_cages():
    variables = {"spark-09": {"fabric_cage": 1}, "spark-02": {"fabric_cage": 0}, "spark-01": {}}
    request = interpret(data(variables))
    assert (request.cage, request.other_cage) == (1, ("spark-02",))


def test_without_variables_nothing_is_wished():
    request = interpret(data())
    assert (request.name, request.subnet, request.suite, request.disk) == (None, None, None, None)
    assert (request.topology, request.cage) == ("lan", 1)


def test_variables_that_differ_between_hosts_are_named():
    with pytest.raises(LabError, match="fabric_topology differs"):
        interpret(data({"spark-01": {"fabric_topology": "ring"}, "spark-02": {"fabric_topology": "lan"}}))


def test_an_inventory_without_cluster_is_refused():
    with pytest.raises(LabError, match="no host in the group cluster"):
        interpret({"_meta": {"hostvars": {}}, "web": {"hosts": ["a"]}})


def test_the_default_name_is_the_folders(tmp_path: Path):
    folder = tmp_path / "3spark_ring"
    folder.mkdir()
    (folder / "hosts.yml").touch()
    assert default_name(interpret(data()), [str(folder)]) == "3spark_ring"
    assert default_name(interpret(data()), [str(folder / "hosts.yml")]) == "3spark_ring"
    named = interpret(data({"spark-01": {"lab_name": "other"}}))
    assert default_name(named, [str(folder)]) == "other"


def test_a_real_inventory_is_read_in_its_order(tmp_path: Path):
    (tmp_path / "hosts.yml").write_text(
        """
cluster:
  children:
    ray_workers: {hosts: {b: {}, a: {}}}
    ray_head: {hosts: {z: {ansible_host: 10.77.0.99}}}
  vars: {fabric_topology: switch, fabric_cage: "0"}
thors: {hosts: {a: {}}}
"""
    )
    request = interpret(inventory.read([str(tmp_path)]))
    assert request.wishes == (Wish("z", address="10.77.0.99"), Wish("b"), Wish("a", "thor"))
    assert (request.topology, request.cage) == ("switch", 0)


def test_a_missing_or_broken_inventory_is_named(tmp_path: Path):
    with pytest.raises(LabError, match="no inventory at"):
        inventory.read([str(tmp_path / "none.yml")])
    (tmp_path / "hosts.yml").write_text("cluster: [")
    with pytest.raises(LabError, match="exit"):
        inventory.read([str(tmp_path / "hosts.yml")])


def test_gpus_can_be_named():
    everywhere = ("spark-09", "spark-02", "spark-01")
    assert interpret(data({host: {"lab_gpu": [2, 0, 1]} for host in everywhere})).gpu == (2, 0, 1)
    assert interpret(data({host: {"lab_gpu": True} for host in everywhere})).gpu is True
    with pytest.raises(LabError, match="the numbers of GPUs, one for each host"):
        interpret(data({host: {"lab_gpu": [-1]} for host in everywhere}))
