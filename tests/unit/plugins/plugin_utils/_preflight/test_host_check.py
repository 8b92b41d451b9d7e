# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA, netplan, clock, kernel and image: of each host, and of the hosts of one kind compared."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding, errors_and_others

from tests.unit.plugins.plugin_utils._preflight.planned_world import A0, B0, B1, World


# on a line two neighbours alone use it (serving_groups)
@pytest.mark.parametrize("topology", ["ring", "line"])
def test_no_rdma_where_the_plan_needs_it(topology: str) -> None:
    world = World(topology, ["a", "b", "c"])
    world.probes["c"]["rdma"]["links"] = []
    (error,) = world.errors()
    assert f"host c: it has no RDMA device, which a {topology} fabric needs" in error


@pytest.mark.parametrize("state", ["DOWN", "INIT"])
def test_a_port_with_a_carrier_whose_rdma_is_not_active(state: str) -> None:
    """Up and Down of ibdev2netdev are the carrier; the RDMA port has a state of its own."""
    world = World("direct", ["a", "b"])
    for link in world.probes["a"]["rdma"]["links"]:
        link["port_state"] = "ACTIVE" if link["netdev"] == B1 else state
    (error,) = world.errors()  # the other cage has no cable and is none of the plan's
    assert f"host a: RDMA device rocep1s0f1 is {state} although its NIC {B0} has a carrier; reload the driver" in error
    world.probes["a"]["raised"] = [B0]
    assert world.errors() == [], "a port that has just been set up may still be training"


def test_rdma_faults_of_one_nic() -> None:
    world = World("direct", ["a", "b"])
    links = world.probes["a"]["rdma"]["links"]
    world.probes["a"]["rdma"]["links"] = [link for link in links if link["netdev"] != B1]
    world.probes["b"]["rdma"]["links"][2]["link_layer"] = "InfiniBand"
    world.probes["b"]["rdma"]["links"][3]["rate"] = 100
    errors, others = errors_and_others(world.check())
    assert [error.split(";")[0] for error in errors] == [
        f"host a: NIC {B1} has no RDMA device",
        f"host b: RDMA device rocep1s0f1 of NIC {B0} is in InfiniBand mode, the plan is RoCE",
        f"host b: NIC {B1} to a {B1} negotiated 100 Gb/s, planned are 200, and other links of this fabric have 200: "
        "all ranks wait for the slowest",
    ]
    assert others == []


def test_mixed_speeds_of_ports_that_were_set_up_for_the_probe() -> None:
    world = World("ring", ["a", "b", "c"])
    for host, probe in world.probes.items():
        probe["raised"] = list(probe["ports"])
        for link in probe["rdma"]["links"]:
            link.update(rate=40, state="down")
        for netdev, port in probe["ports"].items():
            port["rate"] = 100.0 if (host, netdev) == ("b", B0) else 200.0
    (error,) = world.errors()
    assert f"host b: NIC {B0} to a {A0} negotiated 100 Gb/s, planned are 200, and other links of this fabric" in error
    # what was down again before it could be read says nothing
    del world.probes["b"]["ports"][B0]["rate"]
    assert world.errors() == []
    # a port of such a host that was up all the time is judged as any
    world.probes["b"]["raised"].remove(B0)
    next(link for link in world.probes["b"]["rdma"]["links"] if link["netdev"] == B0).update(rate=100, state="up")
    assert len(world.errors()) == 1


def finding(kind: str, where: str = "/etc/netplan/50-x.yaml") -> dict[str, t.Any]:
    return Finding(kind, f"{where} is {kind}", "fix it", where=where).to_dict()


def test_netplan_findings_stop_unless_accepted_or_replaced() -> None:
    world = World("direct", ["a", "b"])
    world.probes["b"]["netplan"]["findings"] = [
        finding("pending_edit"),
        finding("invalid_yaml"),
        finding("foreign_file", B0),
        finding("foreign_settings", B1),
    ]
    assert world.errors()[0] == "host b: /etc/netplan/50-x.yaml is pending_edit; fix it"
    assert len(world.errors()) == 4
    left = [
        problem.id
        for problem in world.check(accept=["pending_edit"], replace_foreign=True)
        if problem.severity == "error"
    ]
    assert left == ["invalid_yaml", "foreign_settings"]
    assert len(world.errors(accept=["invalid_yaml"])) == 4, "broken YAML cannot be accepted"


def test_parity_names_the_odd_host() -> None:
    world = World("switch", ["a", "b", "c"])
    world.nodes["c"]["kernel"] = "6.17.0-1026-nvidia"
    world.nodes["b"]["os"]["dgx"] = world.nodes["b"]["os"]["dgx"].replace("7.5.0", "7.4.0")
    for link in world.probes["a"]["rdma"]["links"]:
        link["firmware"] = "28.45.4000"
    errors = world.errors()
    assert [error.split(":")[0] for error in errors] == ["host c", "host a", "host b"]
    assert "kernel is 6.17.0-1026-nvidia, but 6.17.0-1031-nvidia on a, b" in errors[0]
    assert "ConnectX firmware is 28.45.4000" in errors[1]
    assert "OS image is Ubuntu 24.04.3 LTS DGX OS 7.4.0" in errors[2]
    assert world.errors(accept=["parity"]) == errors
    values = ["6.17.0-1026-nvidia", "Ubuntu 24.04.3 LTS DGX OS 7.4.0", "28.45.4000"]
    assert world.errors(accept=[f"parity={value}" for value in values]) == []


def test_one_accepted_value_accepts_no_other() -> None:
    world = World("direct", ["a", "b"])
    world.nodes["b"]["kernel"] = "6.17.0-1026-nvidia"
    accepted = ["parity=6.17.0-1026-nvidia"]
    assert world.errors(accept=accepted) == []
    world.nodes["b"]["kernel"] = "6.17.0-1021-nvidia"
    assert "list 'parity=6.17.0-1021-nvidia' in preflight_accept" in world.errors(accept=accepted)[0]
    world.nodes["b"].update(kernel="6.17.0-1026-nvidia", driver="580.1")
    assert "NVIDIA driver is 580.1" in world.errors(accept=accepted)[0]


def test_images_of_several_makers_are_only_told_where_all_else_is_one() -> None:
    world = World("switch", ["a", "b", "c", "d"])
    for host in "cd":
        world.nodes[host]["os"]["dgx"] = ""
    assert world.errors() == []
    told = [str(finding) for finding in world.check() if finding.id == "parity"]
    assert len(told) == 1
    assert "hosts of several makers work together" in told[0]
    world.nodes["d"]["driver"] = "580.1"
    assert len(world.errors()) == 2


def test_hosts_of_different_kinds_may_differ() -> None:
    world = World("lan", ["a", "b"], kinds={"a": "spark", "b": "thor"})
    world.nodes["b"].update(kernel="6.8.12-tegra", driver="")
    assert world.check() == []


def test_a_kernel_is_not_refused_by_its_name() -> None:
    world = World("direct", ["a", "b"])
    for host in "ab":
        world.nodes[host]["kernel"] = "6.17.0-1008-nvidia"
    errors, others = errors_and_others(world.check())
    assert errors == []
    assert "kernel 6.17.0-1008-nvidia is known bad: it panics under load" in others[0]
    own = [{"fact": "os.pretty", "match": "Ubuntu 24.04*", "reason": "tested", "fix": "nothing"}]
    assert "os.pretty Ubuntu 24.04.3 LTS is known bad" in errors_and_others(world.check(known_bad=own))[1][0]


GIB = 2**30
#: kernel, command line, contiguous memory in total and free: as seen on machines with and without the fault
SOUND = [
    ("7.0.0-1019-nvidia", {"kho": "off"}, {"total": 0, "free": 0}),
    ("7.0.0-1019-nvidia-64k", {"kho": "off"}, {"total": 0, "free": 0}),
    ("6.17.0-1032-nvidia", {}, {"total": 134217728, "free": 70983680}),
    ("6.17.0-1032-nvidia", {"kho": "off"}, {"total": 134217728, "free": 70983680}),
    ("9.1.0-1-unheard-of", {}, {}),
]
SICK = [
    ("7.0.0-1019-nvidia", {}, {"total": 0, "free": 226226176}, "no kho=off"),
    ("7.0.0-31-generic", {}, {"total": 32 * 2**20, "free": 9 * GIB}, "no kho=off"),
    ("7.0.0-1019-nvidia", {"kho": "on"}, {"total": 0, "free": 9 * GIB}, "kho=on"),
]


@pytest.mark.parametrize(("kernel", "parameters", "cma"), SOUND)
def test_a_kernel_that_keeps_no_memory_is_sound(kernel: str, parameters: dict[str, str], cma: dict[str, int]) -> None:
    world = World("direct", ["a", "b"])
    for host in "ab":
        world.nodes[host].update(kernel=kernel, kernel_parameters=parameters, cma=cma)
    assert world.check() == []


@pytest.mark.parametrize(("kernel", "parameters", "cma", "words"), SICK)
def test_a_kernel_that_keeps_memory_is_named_with_nvidias_package(
    kernel: str, parameters: dict[str, str], cma: dict[str, int], words: str
) -> None:
    world = World("direct", ["a", "b"])
    for host in "ab":
        world.nodes[host].update(kernel=kernel, kernel_parameters=parameters, cma=cma)
    errors = world.errors()
    assert len(errors) == 2
    assert f"kernel {kernel} keeps memory for Kexec HandOver" in errors[0]
    assert words in errors[0]
    assert "nvidia-spark-grub-kho" in errors[0]
    assert "6.17" not in errors[0]
    assert world.errors(accept=["known_bad"]) == errors
    assert world.errors(accept=["known_bad=7.0.0-1020-nvidia"]) == errors
    assert world.errors(accept=[f"known_bad={kernel}"]) == []


def test_a_host_whose_kernel_was_started_otherwise_is_named() -> None:
    world = World("switch", ["a", "b", "c"])
    for host in "abc":
        world.nodes[host]["kernel_parameters"] = {"kho": "off"} if host != "b" else {"iommu": "pt"}
    errors, others = errors_and_others(world.check())
    assert errors == []
    assert len(others) == 2
    assert "host b: the kernel's command line has iommu=pt, and no iommu on a, c" in others[0]
    assert "host b: the kernel's command line has no kho, and kho=off on a, c" in others[1]


@pytest.mark.parametrize(("offset", "words"), [(31.0, "31 s ahead of"), (-86400.0, "86400 s behind"), (30.0, "")])
def test_a_clock_that_is_off_is_named(offset: float, words: str) -> None:
    world = World("lan", ["a", "b"])
    world.nodes["b"]["clock_offset"] = offset
    errors = world.errors()
    assert [words in error and error.startswith("host b: its clock") for error in errors] == ([True] if words else [])
    assert world.errors(accept=["clock"]) == []


def test_an_end_that_the_peer_has_set_down_again_is_no_fault_of_rdma() -> None:
    """Heard while the peer had its port up for the probe; the state was read after that, with the carrier gone."""
    world = World("direct", ["a", "b"])
    for link in world.probes["a"]["rdma"]["links"]:
        link.update(port_state="DOWN", state="down")
    world.probes["b"]["raised"] = [B0, B1]
    assert world.errors() == []
    for link in world.probes["a"]["rdma"]["links"]:
        link.update(port_state="DOWN", state="up")
    assert len(world.errors()) == 2


@pytest.mark.parametrize(
    ("system", "seen"),
    [
        ({"id": "ubuntu", "version": "24.04"}, ""),
        ({"id": "debian", "version": "13"}, ""),
        ({}, ""),
        (
            {"id": "ubuntu", "version": "22.04", "pretty": "Ubuntu 22.04.5 LTS"},
            "Ubuntu 22.04.5 LTS (/etc/os-release: ID=",
        ),
        ({"id": "ubuntu", "version": "22.04"}, "ID=ubuntu, VERSION_ID=22.04)"),
        ({"id": "debian", "version": "", "pretty": "Debian GNU/Linux forky/sid"}, "ID=debian, VERSION_ID=not given)"),
        ({"id": "fedora", "version": "43"}, "ID=fedora, VERSION_ID=43)"),
    ],
)
def test_a_system_that_nobody_tried_is_said_and_not_refused(system: dict[str, str], seen: str) -> None:
    world = World("direct", ["a", "b"])
    for node in world.nodes.values():
        node["os"].update(system)
    errors, others = errors_and_others(world.check())
    assert errors == []
    assert len(others) == (2 if seen else 0)
    for text in map(str, others):
        assert seen in text
        assert "Ubuntu 24.04, Debian 12, Debian 13" in text


def test_clones_of_one_disk_are_named() -> None:
    world = World("switch", ["a", "b", "c"])
    for number, host in enumerate("abc"):
        world.nodes[host]["machine"] = "x" if host != "c" else "y"
        for link in world.nodes[host]["interfaces"]:
            link["mac"] = "" if link["name"] == "lo" else f"02:00:00:00:00:{number:02}"
    (warning,) = world.check()
    assert (warning.host, warning.severity) == ("a, b", "warning")
    assert "one machine-id, as clones of a disk do" in warning.what
    assert "systemd-machine-id-setup" in warning.fix
    # a host by two addresses is no clone, and cannot be two hosts
    world.nodes["b"]["interfaces"] = world.nodes["a"]["interfaces"]
    (error,) = world.errors()
    assert error.startswith("hosts a, b: these names lead to one machine; correct ansible_host")
    # where it cannot be known nothing is said
    for host in "abc":
        world.nodes[host]["machine"] = ""
    assert world.errors() == []


def test_a_spark_whose_gpu_does_not_answer_is_named() -> None:
    world = World("direct", ["a", "b"])
    world.nodes["b"].update(gpus=0, gpu_problem="Failed to initialize NVML: Driver/library version mismatch")
    told = [str(finding) for finding in world.check() if finding.id == "gpus"]
    assert len(told) == 1
    assert told[0].startswith("host b: its GPU does not answer (nvidia-smi: Failed to initialize NVML")
    assert "reboot the host" in told[0]
